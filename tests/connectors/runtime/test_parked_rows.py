"""Parked rows that are dealt with: crashes between, other processes meanwhile, sinks of changes."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import pytest

from rowtide.client.changes.api import ApiSource, CurrentRow
from rowtide.client.changes.shard_follower import Unfinished
from rowtide.client.changes.source import SourceShard
from rowtide.client.changes.worker import Batch
from rowtide.client.endpoint import Endpoint
from rowtide.connectors.rows import Refused, SinkBatch, TableShape
from rowtide.connectors.runtime import parking
from rowtide.connectors.runtime.kept_rows import Columns, KeptKey
from rowtide.connectors.runtime.parking import RETRY, SKIP, ParkedRows
from rowtide.connectors.runtime.pipeline import Pipeline, Target
from rowtide.connectors.runtime.progress import Progress
from rowtide.connectors.runtime.transforms import Transforms
from rowtide.core.records.change import PUT_ROW, Change, ChangeParts, ChangeTable
from rowtide.core.values import variant
from rowtide.core.values.cell import PUT, Cell
from rowtide.core.values.errors import Unavailable
from rowtide.core.values.variant import Scalar

SHARD = "s1"
TABLE = ChangeTable("t", (b"id",))


@dataclass(slots=True)
class World:
    """The table of parked rows, a table of one row, and the rows that the sink got of it."""

    kept: dict[KeptKey, Columns] = field(default_factory=dict)
    now: int = 0
    """The row's value, and its stamp."""
    behind: list[int] = field(default_factory=list)
    """What the shard answers before, while it has not applied all that its log holds."""
    key_names: tuple[bytes, ...] = (b"id",)
    applied: list[int] = field(default_factory=list)
    refuses: set[int] = field(default_factory=set)
    away: bool = False
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    go: asyncio.Event = field(default_factory=asyncio.Event)

    def process(self, *, every_change: bool = False) -> Process:
        return Process(self, every_change=every_change)


class Process:
    """One process that runs the connector."""

    def __init__(self, world: World, *, every_change: bool) -> None:
        self.world = world
        self.stopping = asyncio.Event()
        self.parked = ParkedRows(cast(Endpoint, None), "c")
        sink = _Sink(world, every_change=every_change)
        target = Target(sink, Transforms(), None, self.parked, 10)
        self.pipeline = Pipeline(cast(ApiSource, _Table(world)), target, Progress(), self.stopping)

    async def put(self, value: int, *, first: bool = False) -> None:
        """Be given a change that sets the row to a value; the same batch comes until it is done."""
        self.world.now = max(self.world.now, value)
        cells = [Cell(b"v", PUT, variant.encode(value), 1, 0)]
        parts = ChangeParts([variant.encode("a")], cells, None)
        batch = Batch("t", SHARD, [Change.of(PUT_ROW, TABLE, SHARD, value, parts)], first=first)
        while True:
            try:
                return await self.pipeline.handle(batch)
            except Unavailable:
                pass

    async def want(self, what: str) -> None:
        """Ask for the first entry to be tried or skipped."""
        await self.parked.want((await self.parked.all())[0], what)

    async def look(self) -> bool:
        """Carry out the requests. True if some must wait."""
        return await self.pipeline.retry_or_skip(lambda: [SHARD])


class _Table:
    def __init__(self, world: World) -> None:
        self._world = world

    async def current(self, keys: Iterable[bytes]) -> dict[bytes, CurrentRow]:
        value = self._world.behind.pop(0) if self._world.behind else self._world.now
        cells = [Cell(b"v", PUT, variant.encode(value), 1, 0)]
        return {key: CurrentRow(cells, value) for key in keys}

    async def shards(self) -> list[SourceShard]:
        return [SourceShard(SHARD, (), b"", b"")]

    async def table_name(self) -> str:
        return "t"

    async def stream(self) -> object:
        return type("Stream", (), {"table": ChangeTable("t", self._world.key_names)})


class _Sink:
    def __init__(self, world: World, *, every_change: bool) -> None:
        self._world = world
        self.every_change = every_change

    async def open(self, table: TableShape) -> None:
        pass

    async def apply(self, batch: SinkBatch) -> Sequence[Refused]:
        world = self._world
        if world.away:
            world.asked.set()
            await world.go.wait()
            raise Unavailable("away")
        refused = []
        for row in batch:
            if row.stamp in world.refuses:
                refused.append(Refused(row, "no"))
            else:
                world.applied.append(row.stamp)
                world.asked.set()
                await world.go.wait()
        return refused

    async def close(self) -> None:
        pass


class _Kept:
    """``KeptRows`` in memory."""

    rows: dict[KeptKey, Columns]

    def __init__(self, *_: object) -> None:
        pass

    async def get(self, key: KeptKey) -> Columns | None:
        return self.rows.get(key)

    async def scan(self, *first: Scalar) -> list[tuple[KeptKey, Columns]]:
        return sorted((key, dict(columns)) for key, columns in self.rows.items())

    async def put(self, key: KeptKey, columns: Columns, *, new: bool = False) -> bool:
        if new and key in self.rows:
            return False
        self.rows[key] = dict(columns)
        return True

    async def update(self, key: KeptKey, columns: Columns) -> bool:
        if key not in self.rows:
            return False
        self.rows[key] |= columns
        return True

    async def delete(self, key: KeptKey, *, only_if: Mapping[str, Scalar] | None = None) -> bool:
        if only_if is not None and not only_if.items() <= self.rows.get(key, {}).items():
            return False
        self.rows.pop(key, None)
        return True


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(parking, "KeptRows", _Kept)
    found = World()
    found.go.set()
    monkeypatch.setattr(_Kept, "rows", found.kept, raising=False)
    return found


def list_parked_stamps(world: World) -> Collection[int]:
    """Return the stamps that are parked."""
    return [cast(int, key[2]) for key in world.kept]


async def test_what_came_after_a_skipped_row_is_told_though_the_process_ends_meanwhile(
    world: World,
) -> None:
    """Once the entry was removed first, with its count of later changes. These were never
    applied.
    """
    world.refuses = {1}
    process = world.process()
    await process.put(1)
    await process.put(2)
    await process.want(SKIP)
    world.away = True
    process.stopping.set()
    with pytest.raises(Unfinished):
        await process.look()
    world.away = False
    await world.process().look()
    assert (world.applied, list_parked_stamps(world)) == ([2], [])


async def test_what_came_after_a_skipped_row_is_parked_if_it_is_refused_too(world: World) -> None:
    world.refuses = {1, 2}
    process = world.process()
    await process.put(1)
    await process.put(2)
    await process.want(SKIP)
    await process.look()
    assert list_parked_stamps(world) == [2]
    await process.want(SKIP)
    await process.look()
    assert (world.applied, list_parked_stamps(world)) == ([], [])


async def test_a_change_that_another_process_puts_behind_a_row_under_way_is_told(
    world: World,
) -> None:
    """The shard moved while the row was tried: the entry went, and the change behind it too."""
    world.refuses = {1}
    before, after = world.process(), world.process()
    await before.put(1)
    await before.want(RETRY)
    world.refuses.clear()
    world.go.clear()
    world.asked.clear()
    async with asyncio.TaskGroup() as tasks:
        trying = tasks.create_task(before.look())
        await world.asked.wait()
        await after.put(2, first=True)
        world.go.set()
    assert trying.result(), "it is to be looked at again"
    await after.look()
    assert (world.applied[-1], list_parked_stamps(world)) == (2, [])


async def test_a_key_that_another_process_has_let_go_of_waits_no_more(world: World) -> None:
    """It was taken for parked as long as the process had the shard: its changes were dropped."""
    world.refuses = {1}
    before, after = world.process(), world.process()
    await before.put(1)
    await after.parked.load()
    await before.want(RETRY)
    world.refuses.clear()
    await before.look()
    await after.put(2)
    assert (world.applied, list_parked_stamps(world)) == ([1, 2], [])


async def test_changes_of_every_kind_wait_no_more_either(world: World) -> None:
    world.refuses = {1}
    before, after = world.process(every_change=True), world.process(every_change=True)
    await before.put(1)
    await after.parked.load()
    await before.want(RETRY)
    world.refuses.clear()
    await before.look()
    await after.put(2)
    assert (world.applied, list_parked_stamps(world)) == ([1, 2], [])


async def test_changes_that_wait_go_on_after_a_process_that_ends_between_two(world: World) -> None:
    """Once no request was stored for the remaining changes, so they waited for ever."""
    world.refuses = {1}
    process = world.process(every_change=True)
    for value in (1, 2, 3):
        await process.put(value)
    await process.want(SKIP)
    world.go.clear()
    world.asked.clear()
    async with asyncio.TaskGroup() as tasks:
        looking = tasks.create_task(process.look())
        await world.asked.wait()
        looking.cancel()
    world.go.set()
    await world.process(every_change=True).look()
    assert (world.applied[-2:], list_parked_stamps(world)) == ([2, 3], [])


async def test_a_process_that_parks_a_row_late_takes_back_nothing(world: World) -> None:
    """Once it wrote the entry again, and a skip dropped the changes behind it."""
    world.refuses = {1}
    late, other = world.process(), world.process()
    await late.parked.load()
    await other.put(1)
    await other.put(2)
    await other.want(SKIP)
    [row] = [entry.row for entry in await other.parked.all()]
    assert row is not None
    await late.parked.park([Refused(row, "no")], SHARD, most=9)
    await world.process().look()
    assert (world.applied, list_parked_stamps(world)) == ([2], [])


@pytest.mark.parametrize("behind", [0, 1])
async def test_a_row_is_tried_with_all_that_another_process_has_put_behind_it(
    world: World, behind: int
) -> None:
    """Out of Kafka a change comes before its shard has applied it: the next process knows it."""
    world.refuses = {1}
    process = world.process()
    await process.put(1)
    await process.put(2)
    await process.want(RETRY)
    world.refuses.clear()
    world.behind = [behind]
    await world.process().look()
    assert (world.applied, list_parked_stamps(world)) == ([2], [])


async def test_a_parked_row_of_a_table_that_has_another_key_now_can_be_skipped(
    world: World,
) -> None:
    """Once it ended the connector at each attempt."""
    world.refuses = {1}
    process = world.process()
    await process.put(1)
    await process.put(2)
    world.key_names = (b"id", b"part")
    await process.want(RETRY)
    await process.look()
    [entry] = await process.parked.all()
    assert (entry.wanted, entry.reason) == ("", "The table has a key of 2 columns now.")
    for _ in range(2):
        await process.want(SKIP)
        await process.look()
    assert (world.applied, list_parked_stamps(world)) == ([], [])
