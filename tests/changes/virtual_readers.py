"""Readers of one consumer in virtual time: what they read, what they deliver, and faults
on the way.

The table, the leases and the target are in memory. Calls to them are slow, fail, or
arrive after the caller has given up. One seed is one run.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from rowtide.client.changes.leases import MemoryLeases, ReaderLease
from rowtide.client.changes.shard_follower import Unfinished
from rowtide.client.changes.source import ChangePage, RowPage, SourceShard
from rowtide.client.changes.start import Begin
from rowtide.client.changes.worker import Batch, ChangeWorker, FollowerSettings
from rowtide.core.values import key as key_order
from rowtide.core.values import variant
from rowtide.core.values.errors import OutcomeUnknown, StoreError, Unavailable, first_failure
from tests.changes.virtual_table import Table, Target
from tests.simulation.virtual_time import OUTSIDE, Process

__all__ = ["World"]

KEYS = [key_order.encode([variant.encode(f"{letter}{n}")]) for letter in "abcdef" for n in range(3)]
SETTINGS = FollowerSettings(batch_changes_max=7)
READERS_MAX = 3
CATCH_UP_S = 600
STOP_S = 60

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Weather:
    """Shares of calls that are never sent, whose answers are lost, and that take long."""

    refused: float
    lost: float
    slow: float

    @classmethod
    def draw(cls, chance: random.Random) -> Weather:
        """Return any weather."""
        few, many = (0.0, 0.05, 0.3), (0.0, 0.1, 0.9)
        return cls(chance.choice(few), chance.choice(few), chance.choice(many))


class Way:
    """One process's connections to everything. A sent call arrives even if the caller has
    given up.
    """

    def __init__(self, chance: random.Random, weather: Callable[[], Weather]) -> None:
        self.chance = chance
        self._weather = weather

    async def ask(self, work: Callable[[], Answer]) -> Answer:
        """Return what ``work`` gives. Raises what it raises, or what befell it on the way."""
        loop, weather = asyncio.get_running_loop(), self._weather()
        if self.chance.random() < weather.refused:
            await asyncio.sleep(self._latency_s())
            raise Unavailable
        lost = self.chance.random() < weather.lost
        answer: asyncio.Future[Answer] = loop.create_future()

        def arrive() -> None:
            outcome: Answer | StoreError
            try:
                outcome = work()
            except StoreError as error:
                outcome = error
            result = OutcomeUnknown("lost") if lost else outcome
            loop.call_later(self._latency_s(), settle, result, context=OUTSIDE)

        def settle(outcome: Answer | StoreError) -> None:
            if answer.done():
                return  # Cancelled meanwhile.
            if isinstance(outcome, StoreError):
                answer.set_exception(outcome)
            else:
                answer.set_result(outcome)

        loop.call_later(self._latency_s(), arrive, context=OUTSIDE)
        return await answer

    def _latency_s(self) -> float:
        slow = self.chance.random() < self._weather().slow
        return self.chance.uniform(0.2, 4.0) if slow else self.chance.uniform(0.001, 0.02)


class VirtualSource:
    """The table from one process."""

    def __init__(self, table: Table, way: Way) -> None:
        self._table = table
        self._way = way

    async def table_name(self) -> str:
        return "t"

    async def now_us(self) -> int:
        return await self._way.ask(lambda: self._table.stamp + 1)

    async def shards(self) -> list[SourceShard]:
        return await self._way.ask(lambda: [s.shard for s in self._table.shards])

    async def position(self, shard_id: str, since_us: int | None) -> str:
        return await self._way.ask(lambda: self._table.position(shard_id, since_us))

    async def read(self, position: str, *, limit: int, wait_s: float) -> ChangePage:
        page = await self._way.ask(lambda: self._table.read(position, limit))
        if page.following != position:
            return page
        await asyncio.sleep(wait_s)
        return await self._way.ask(lambda: self._table.read(position, limit))

    async def rows(self, shard_id: str, begin: bytes, end: bytes, *, limit: int) -> RowPage:
        return await self._way.ask(lambda: self._table.page(shard_id, begin, end, limit))

    async def report_positions(self, consumer: str, positions: Sequence[str]) -> None:
        pass


class VirtualLeases:
    """The consumer's rows from one process."""

    def __init__(self, leases: MemoryLeases, way: Way) -> None:
        self.consumer = leases.consumer
        self._leases = leases
        self._way = way

    async def open(self, table: str) -> None:
        pass

    async def read(self, table: str) -> dict[str, ReaderLease]:
        return await self.all()

    async def all(self) -> dict[str, ReaderLease]:
        return await self._way.ask(lambda: at_once(self._leases.all()))

    async def create(self, lease: ReaderLease) -> ReaderLease:
        return await self._way.ask(lambda: at_once(self._leases.create(lease)))

    async def change(self, old: ReaderLease, new: ReaderLease) -> ReaderLease:
        return await self._way.ask(lambda: at_once(self._leases.change(old, new)))

    async def remove(self, lease: ReaderLease) -> None:
        await self._way.ask(lambda: at_once(self._leases.remove(lease)))


def at_once(work: Coroutine[Any, Any, Answer]) -> Answer:
    """Return what a coroutine gives that waits for nothing."""
    try:
        work.send(None)
    except StopIteration as done:
        answer: Answer = done.value
        return answer
    raise AssertionError("it waits")


class Reader:
    """One process that reads and writes to the target."""

    def __init__(self, name: str, world: World) -> None:
        self._leaving = world.leaving
        self.process = Process()
        self._way = Way(world.chance, lambda: world.weather)
        self._target = world.target
        self.worker = ChangeWorker(
            VirtualSource(world.table, self._way),
            VirtualLeases(world.leases, self._way),
            self._handle,
            begin=world.begin,
            settings=SETTINGS,
            clock=asyncio.get_running_loop().time,
        )
        self.worker.id = name
        self.task = world.tasks.create_task(self.worker.run(), context=self.process.context)

    async def _handle(self, batch: Batch) -> None:
        """Write to the target, with retries. Give up now and then, as parking may."""
        leaving = self._leaving
        if leaving is not None and len(batch) > 1 and leaving.random() < 0.1:
            finished = leaving.randrange(1, len(batch))
            await self._tell(_first_of(batch, finished))
            raise Unfinished(finished)
        await self._tell(batch)
        if self._way.chance.random() < 0.03:
            raise self._way.chance.choice([Unavailable, Unfinished])

    async def _tell(self, batch: Batch) -> None:
        while True:
            try:
                await self._way.ask(lambda: self._target.apply(batch))
            except StoreError:
                await asyncio.sleep(0.3)
            else:
                break


def _first_of(batch: Batch, count: int) -> Batch:
    """Return a batch of the first changes, which covers only what they do."""
    covers = batch.covers and (batch.covers[0], batch.changes[count].key_bytes)
    return replace(batch, changes=batch.changes[:count], covers=covers)


class World:
    """One run of ``seed``: actions until everything is delivered.

    With ``leaves_inside`` readers also leave in the middle of a batch, drawn from a
    separate generator. Without it the named seeds run as before.
    """

    def __init__(self, seed: int, *, leaves_inside: bool = False) -> None:
        self.chance = random.Random(seed)
        self.leaving = random.Random(f"leaving {seed}") if leaves_inside else None
        self.begin: Begin = self.chance.choice(("oldest", "rows"))
        self.weather = Weather.draw(self.chance)
        self.table = Table()
        self.target = Target(in_order=self.begin == "oldest")
        self.leases = MemoryLeases("readers")
        self.tasks = asyncio.TaskGroup()
        self.readers: list[Reader] = []
        self._gone: list[Reader] = []
        """Stopped, or killed."""
        self._started = 0

    async def run(self, actions: int) -> None:
        """Run the world. Raises AssertionError if something was lost or delivered out of order."""
        try:
            async with self.tasks:
                try:
                    await self._live(actions)
                    await self._settle()
                finally:
                    self._end()
        except BaseExceptionGroup as group:
            raise first_failure(group) from group

    async def _live(self, actions: int) -> None:
        for _ in range(actions):
            self.chance.choice(self._actions())()
            await asyncio.sleep(self.chance.choice((0.0, 0.05, 0.3, 1.0, 3.0)))
            assert not self.target.failure, self.target.failure

    async def _settle(self) -> None:
        """All that was paused goes on, the weather is fine: everything must arrive."""
        self.weather = Weather(0.0, 0.0, 0.0)
        for reader in self.readers:
            reader.process.thaw()
        self.start()
        wanted = {key: number for key, (number, _) in self.table.rows.items()}
        for _ in range(CATCH_UP_S):
            await asyncio.sleep(1)
            assert not self.target.failure, self.target.failure
            if self.target.rows() == wanted:
                break
        assert self.target.rows() == wanted
        for reader in self.readers:
            reader.worker.stop()
        _, left = await asyncio.wait([r.task for r in self.readers], timeout=STOP_S)
        assert not left, "a reader does not stop"

    def _end(self) -> None:
        """End every task, of the killed too: none may be left to the garbage collector."""
        for reader in [*self.readers, *self._gone]:
            reader.task.cancel()
            reader.process.thaw()

    def _actions(self) -> list[Callable[[], None]]:
        few = [self._split, self._merge, self._stop, self._kill, self._change_weather]
        return [self._write] * 4 + few + [self.start, self._pause] * 2

    def _write(self) -> None:
        for _ in range(self.chance.randint(1, 30)):
            self.table.write(self.chance.choice(KEYS), delete=self.chance.random() < 0.3)

    def _split(self) -> None:
        self.table.split(self.chance.choice(self.table.living()), self.chance.choice(KEYS))

    def _merge(self) -> None:
        living = self.table.living()
        if len(living) > 1:
            left = self.chance.randrange(len(living) - 1)
            self.table.merge(living[left], living[left + 1])

    def start(self) -> None:
        """Start one more reader, unless there are enough."""
        if len(self.readers) < READERS_MAX:
            self._started += 1
            self.readers.append(Reader(f"r{self._started}", self))

    def _stop(self) -> None:
        if running := [r for r in self.readers if not r.process.frozen]:
            reader = self.chance.choice(running)
            reader.worker.stop()
            self.readers.remove(reader)
            self._gone.append(reader)

    def _kill(self) -> None:
        if self.readers:
            reader = self.readers.pop(self.chance.randrange(len(self.readers)))
            reader.process.freeze()
            self._gone.append(reader)

    def _pause(self) -> None:
        """Stop a reader for about as long as its leases last."""
        if self.readers:
            reader = self.chance.choice(self.readers)
            reader.process.freeze()
            loop, paused_s = asyncio.get_running_loop(), self.chance.uniform(3.0, 7.0)
            loop.call_later(paused_s, self._go_on, reader, context=OUTSIDE)

    def _go_on(self, reader: Reader) -> None:
        if reader in self.readers:
            reader.process.thaw()

    def _change_weather(self) -> None:
        self.weather = Weather.draw(self.chance)
