"""Workers that are drained: their slots are served by others, or they stay."""

from __future__ import annotations

import asyncio

import pytest

from rowtide.core.values.errors import Rejected, Unavailable
from tests.simulation.program import in_world
from tests.simulation.world import World

SERVED_S = 60.0
SLOTS = 2


async def drain_workers(world: World, *numbers: int, apart_ms: int = 0) -> list[bool]:
    """Drain workers at about the same time; return which of them were."""

    async def drain(number: int) -> bool:
        worker = world.worker(number)
        assert worker is not None
        try:
            await worker.handover.drain()
        except (Rejected, Unavailable):
            return False
        return True

    draining = []
    for number in numbers:
        worker = world.worker(number)
        assert worker is not None
        draining.append(worker.tasks.create_task(drain(number), context=worker.process.context))
        await asyncio.sleep(apart_ms / 1000)
    return [await task for task in draining]


async def begin(world: World) -> None:
    """Return once each worker serves the slot of its number."""
    await world.begin()
    workers = [world.worker(number) for number in range(SLOTS)]
    addresses = {n: worker.address for n, worker in enumerate(workers) if worker is not None}
    world.shared.group.divide(addresses)
    await wait_until_served(world, among=SLOTS)


async def wait_until_served(world: World, *, among: int = 1) -> None:
    """Return once every slot is served, by so many workers at least."""
    async with asyncio.timeout(SERVED_S):
        while True:
            await asyncio.sleep(0.5)
            world.check()
            by = [{n for n, s in w.roster.slots.items() if s.is_readable()} for w in world.live()]
            if set().union(*by) == {*range(SLOTS)} and len([*filter(None, by)]) >= among:
                return


@pytest.mark.parametrize("apart_ms", [0, 1, 5, 30])
def test_two_workers_that_are_drained_at_once_do_not_leave_the_slots_to_nobody(
    apart_ms: int,
) -> None:
    async def program(world: World) -> None:
        await begin(world)
        assert not all(await drain_workers(world, 0, 1, apart_ms=apart_ms))
        await wait_until_served(world)

    in_world(program, workers=2, slots=SLOTS)


def test_a_worker_may_be_drained_again_and_the_last_one_not() -> None:
    async def program(world: World) -> None:
        await begin(world)
        assert await drain_workers(world, 0) == [True]
        assert await drain_workers(world, 0) == [True]
        assert await drain_workers(world, 1) == [False]
        await wait_until_served(world)

    in_world(program, workers=2, slots=SLOTS)
