"""A slot that goes to a worker whose rows of it can't be used: its owner serves meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from unittest.mock import patch

from rowtide.stream.slots.failures import StoreBehind
from tests.simulation.program import in_world
from tests.simulation.simulated_worker import SimulatedSlot, SimulatedWorker
from tests.simulation.world import World


def test_rows_that_have_not_seen_a_shard_come_are_rebuilt_before_the_slot_is_asked_for() -> None:
    """They were found out under the new owner's claim, while nobody served: for as long as it takes
    to read all rows of the slot, where no other worker might take it."""
    served_meanwhile: list[bool] = []

    async def program(world: World) -> None:
        async def until(holds: Callable[[], bool]) -> None:
            async with asyncio.timeout(60):
                while not holds():
                    world.check()
                    await asyncio.sleep(0.01)

        world.shared.group.tell_s_max = 0.01
        await world.begin()
        first, second, third = world.live()

        async def give(to: SimulatedWorker) -> None:
            world.shared.group.divide({0: first.address, 1: to.address})
            await until(lambda: serves(to, 1))

        def behind(slot: SimulatedSlot, why: str) -> StoreBehind:
            served_meanwhile.append(serves(third, 1))
            return thrown_away(slot, why)

        await give(second)
        await until(lambda: serves(first, 0))
        await give(third)
        world.move(0, 1, 1)
        await until(lambda: "s11" in third.roster.slots[1].shards)
        world.flush(third.number)
        thrown_away = SimulatedSlot._behind
        with patch.object(SimulatedSlot, "_behind", behind):
            await give(second)
        await world.settle()

    in_world(program, workers=3, slots=2)
    assert served_meanwhile == [True]


def serves(worker: SimulatedWorker, number: int) -> bool:
    """Say whether a worker serves a slot."""
    slot = worker.roster.slots.get(number)
    return slot is not None and slot.opened.is_set() and slot.readable()
