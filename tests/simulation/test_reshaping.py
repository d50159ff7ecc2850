"""Split, merge and move, with a crash between any two steps.

For every k the worker that does the work, or the one that owns the catalog, is killed just after
its k-th record has landed, before it hears of it; or it is stopped there for three seconds and goes
on as a zombie. Others finish. Clients write all the time. What must hold is held at every look,
and in the end every worker serves alone: order per row over parents and children, lineage, rows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count

import pytest

from tests.simulation.program import in_world
from tests.simulation.simulated_worker import SimulatedWorker
from tests.simulation.tables import INSTANCE, PLAIN
from tests.simulation.world import World

CATALOG, PARENTS = 0, 1
"""Worker 0 has slot 0 and with it the catalog, worker 1 has slot 1 and the shards in question."""
LOOK_S = 0.01
DONE_S = 30.0
SERVED_S = 1.0
WRITES = (0, 1, 3, 10, 40)
"""Follows which clients write: each of their records is a place to crash at, too."""


class Crash:
    """Kills or stops a worker after its k-th record, those of leases not counted."""

    def __init__(self, world: World, worker: SimulatedWorker, k: int, stopped_ms: int) -> None:
        self.happened = False
        self._world = world
        self._worker = worker
        self._left = k
        self._stopped_ms = stopped_ms
        worker.link.landing = self._note_landing

    def _note_landing(self, event: str) -> None:
        if ".lease" in event:
            return
        self._left -= 1
        if self._left == 0:
            self.happened = True
            if self._stopped_ms:
                self._world.pause(self._worker.number, self._stopped_ms)
            else:
                self._world.kill(self._worker.number, self._world.chance.randrange(1001))


async def begin(world: World) -> None:
    """Give each worker its slot, and split a shard: two neighbours are in slot 1 then."""
    world.shared.group.tell_s_max = 0.01
    await world.begin()
    addresses = {slot: worker.address for slot, worker in enumerate(world.live())}
    world.shared.group.divide(addresses)
    await until(world, lambda: all(owns(world, slot) for slot in (CATALOG, PARENTS)))
    world.split(0, 0)  # Table "plain", at row "b": shard s1 becomes s11 and s12.
    await until(world, lambda: shards(world) == ["s11", "s12", "s2"])


def owns(world: World, number: int) -> bool:
    """True if a worker has opened the slot of its number."""
    worker = world.worker(number)
    slot = worker.roster.slots.get(number) if worker is not None else None
    return slot is not None and slot.opened.is_set() and slot.is_readable()


def shards(world: World) -> list[str]:
    """Return the shards of the table as the catalog's owner has them, once no change is planned."""
    for worker in world.live():
        if worker.catalog_owner.is_owner and not worker.process.frozen:
            catalog = worker.catalog
            if not catalog.reshapes:
                return [s.shard_id for s in catalog.tables[INSTANCE, PLAIN].shards]
    return []


async def until(world: World, holds: Callable[[], bool]) -> None:
    """Let clients write a little and read, holding the invariants, until something holds."""
    async with asyncio.timeout(DONE_S):
        for look in count():
            if holds():
                return
            if look in WRITES:
                world.write(0, 3)
            world.read(0)
            await asyncio.sleep(LOOK_S)
            world.check()


CHANGES: dict[str, tuple[Callable[[World], None], int]] = {
    "split": (lambda world: world.split(0, 1), 4),
    "merge": (lambda world: world.merge(0, 0), 2),
    "move": (lambda world: world.move(0, 1, 0), 3),
}
"""The requested change, and the number of the table's shards after it."""


def crash_at(change: str, victim: int, k: int, stopped_ms: int) -> bool:
    """Do one change with a crash at the k-th record; return whether there was one."""
    ask, after = CHANGES[change]
    crashes: list[Crash] = []

    async def program(world: World) -> None:
        await begin(world)
        former = shards(world)
        worker = world.worker(victim)
        assert worker is not None
        crashes.append(Crash(world, worker, k, stopped_ms))
        ask(world)
        crash = crashes[0]

        def is_done() -> bool:
            now = shards(world)
            # A plan that never stood is nobody's to finish.
            return bool(now) and (now != former or crash.happened)

        await until(world, is_done)
        # The children open, and take writes.
        until_s = asyncio.get_running_loop().time() + SERVED_S
        await until(world, lambda: asyncio.get_running_loop().time() > until_s)
        await world.settle()
        found = world.settled_catalog.tables[INSTANCE, PLAIN].shards
        assert len(found) in (after, len(former))
        assert crash.happened or len(found) == after

    in_world(program, seed=k, workers=3, slots=2)
    return crashes[0].happened


def enumerate_crashes(change: str, victim: int, stopped_ms: int) -> int:
    """Crash at every record there is; return how many there are."""
    for k in count(1):
        if not crash_at(change, victim, k, stopped_ms):
            return k - 1
        assert k < 200, "clients write on and on: the change is never done"
    raise AssertionError


@pytest.mark.parametrize("victim", [CATALOG, PARENTS], ids=["catalog", "parents"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_crash_after_any_record(change: str, victim: int) -> None:
    assert enumerate_crashes(change, victim, 0) > 1


@pytest.mark.slow
@pytest.mark.parametrize("victim", [CATALOG, PARENTS], ids=["catalog", "parents"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_stop_after_any_record(change: str, victim: int) -> None:
    assert enumerate_crashes(change, victim, 3000) > 1
