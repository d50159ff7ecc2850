"""A slot that goes to other workers is served all the while: by its former owner until then."""

from __future__ import annotations

import asyncio
from unittest.mock import patch

import pytest

from rowtide.stream.slot.failures import StoreBehind
from tests.simulation.environment import SimulatedSlot
from tests.simulation.program import in_world
from tests.simulation.scene import SHARD, Scene, play
from tests.simulation.simulated_worker import SimulatedWorker
from tests.simulation.world import World


def test_rows_that_have_not_seen_a_shard_come_are_rebuilt_before_the_slot_is_asked_for() -> None:
    """They were found under the new owner's claim, while no worker served: for as long as
    it takes to read all rows of the slot, and no other worker could take it.
    """
    served_meanwhile: list[bool] = []

    async def program(world: World) -> None:
        world.shared.group.tell_s_max = 0.01
        await world.begin()
        first, second, third = world.live()

        async def give(to: SimulatedWorker) -> None:
            world.shared.group.divide({0: first.address, 1: to.address})
            await world.until(lambda: serves(to, 1))

        def behind(slot: SimulatedSlot, why: str) -> StoreBehind:
            served_meanwhile.append(serves(third, 1))
            return thrown_away(slot, why)

        await give(second)
        await world.until(lambda: serves(first, 0))
        await give(third)
        world.move(0, 1, 1)
        await world.until(lambda: "s11" in third.roster.slots[1].shards)
        world.flush(third.number)
        thrown_away = SimulatedSlot._behind
        with patch.object(SimulatedSlot, "_behind", behind):
            await give(second)
        await world.settle()

    in_world(program, workers=3, slots=2)
    assert served_meanwhile == [True]


def serves(worker: SimulatedWorker, number: int) -> bool:
    """True if a worker serves a slot."""
    slot = worker.roster.slots.get(number)
    return slot is not None and slot.opened.is_set() and slot.is_readable()


@pytest.mark.parametrize("apart_ms", [10, 20, 30, 40, 100])
def test_a_slot_that_is_given_to_two_workers_in_turn_is_handed_over_twice(apart_ms: int) -> None:
    """Two workers join, one right after the other. The second sent its request to the
    first owner, which no longer had the slot, and claimed it over the one that had just
    got it. No worker had it for as long as a lease.
    """
    first, last = 1, 2

    async def story(scene: Scene) -> None:
        await scene.write(0)
        clock, group = asyncio.get_running_loop().time, scene.world.shared.group
        group.divide({0: scene.worker(first).address})
        await asyncio.sleep(apart_ms / 1000)
        group.divide({0: scene.worker(last).address})
        longest_s, since_s, until_s = 0.0, clock(), clock() + 5.0
        while clock() < until_s:
            found = scene.world.owner(SHARD)
            if found is not None and found[1].is_open:
                since_s = clock()
            longest_s = max(longest_s, clock() - since_s)
            await asyncio.sleep(0.005)
        assert scene.serves(last)
        assert longest_s < 0.5, f"nobody had it for {longest_s:.2f} s"

    play(story, workers=3)
