"""A scene for interleavings written by hand: one slot, workers by letter, one client."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from rowtide.core.protocol.plainbuffer import increment_cell, put_cell
from rowtide.core.rows.mutation import DELETE, IGNORE, PUT, UPDATE, ChangeRequest
from rowtide.core.values import variant
from rowtide.stream.shard.owner import ShardOwner
from tests.simulation.clients import Attempt
from tests.simulation.invariants import check_outcomes
from tests.simulation.network import Fate
from tests.simulation.program import in_world
from tests.simulation.row_model import MARK
from tests.simulation.simulated_worker import SimulatedWorker
from tests.simulation.tables import PLAIN, Place
from tests.simulation.world import World

__all__ = ["ROW", "SHARD", "Scene", "play"]

T = TypeVar("T")

ROW = Place(PLAIN, "a")
SHARD = "s1"
"""Where the row is."""
LOOK_S = 0.01


class Scene:
    """A world of one slot, with what a story needs. Worker A has the slot at first."""

    def __init__(self, world: World) -> None:
        self.world = world

    def worker(self, number: int) -> SimulatedWorker:
        """Return a worker, which lives."""
        worker = self.world.worker(number)
        assert worker is not None
        return worker

    def shard(self, number: int) -> ShardOwner:
        """Return the row's shard at a worker that has it open."""
        [owner] = [o for o in self.worker(number).open_shards() if o.shard.shard_id == SHARD]
        return owner

    async def give(self, number: int) -> None:
        """Let the group give the slot to a worker; return when it serves."""
        self.world.shared.group.divide({0: self.worker(number).address})
        await self.until(lambda: self.serves(number))

    def serves(self, number: int) -> bool:
        """True if a worker serves reads of the row."""
        found = self.world.owner(SHARD)
        return found is not None and found[0].number == number

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait, holding the invariants all the time."""
        await self.world.until(holds)

    async def watch(self, seconds: float) -> None:
        """Let time pass, holding the invariants all the time."""
        for _ in range(int(seconds / LOOK_S)):
            self.world.check()
            await asyncio.sleep(LOOK_S)

    def ask(self, number: int, kind: int, *, expects: int = IGNORE) -> Attempt:
        """Ask a worker for a change of the row: one that counts, unless it deletes."""
        clients = self.world.clients
        mark = None if kind == DELETE else f"{len(clients.attempts)}"
        cells = [] if mark is None else [put_cell(MARK, variant.encode(mark), None)]
        if kind == UPDATE:
            cells.append(increment_cell(b"n", variant.encode(1)))
        change = ChangeRequest(kind, ROW.key, cells, expects)
        return clients.ask(self.worker(number), ROW, change, mark)

    async def write(self, number: int, kind: int = PUT) -> Attempt:
        """Ask for a change; return when it is acknowledged."""
        attempt = self.ask(number, kind)
        await self.until(lambda: attempt.result is not None)
        assert attempt.applied, f"{attempt}: {attempt.result}"
        return attempt

    async def flush(self, number: int) -> None:
        """Have a worker flush everything, then trim all it may."""
        before = self.worker(number).roster.slots[0].flushed_s
        self.world.flush(number)
        await self.watch(0.3)
        assert self.worker(number).roster.slots[0].flushed_s != before
        self.world.trim(number)
        await self.watch(0.3)

    def begin(self, number: int, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Have something done in a worker's process."""
        worker = self.worker(number)
        return worker.tasks.create_task(work, context=worker.process.context)

    def hold_next(self, number: int) -> None:
        """Keep a worker's next batch on its way until ``land`` is called."""
        link = self.worker(number).link
        link.holding = True
        link.fates.append(Fate.DELAYED)

    def land(self) -> None:
        """Let arrive what is on its way."""
        self.world.network.land_held()

    def stands(self, attempt: Attempt) -> bool:
        """True if a change is in the log, valid."""
        return attempt.mark in self.world.clients.model(ROW.table).stood


def play(
    story: Callable[[Scene], Awaitable[None]], *, workers: int = 2, copies: bool = False
) -> None:
    """Run a story of some workers, then let each worker serve alone, and check everything."""

    async def whole(world: World) -> None:
        world.shared.group.tell_s_max = 0.01
        world.shared.copies = copies
        await world.begin()
        scene = Scene(world)
        await scene.give(0)
        await story(scene)
        await world.settle()
        check_outcomes(world.clients)

    in_world(whole, workers=workers, slots=1)
