"""Shards that were dropped before a consumer had read them are reported: no gap is silent."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from rowtide.client.changes.leases import START, MemoryLeases
from rowtide.client.changes.source import ChangePage, RowPage, SourceShard
from rowtide.client.changes.start import Begin, ShardPlace, rewind
from rowtide.client.changes.worker import Batch, ChangeWorker, FollowerSettings
from rowtide.core.values import key as key_order
from rowtide.core.values import variant
from rowtide.core.values.errors import LogTrimmed
from tests.changes.virtual_table import Table

SETTINGS = FollowerSettings(lease_s=0.5, checkpoint_s=0.0)
KEYS = [key_order.encode([variant.encode(name)]) for name in ("a", "m", "z")]


class Source:
    """A table's stream; ``gone`` are shards that are listed no more."""

    def __init__(self) -> None:
        self.table = Table()
        self.gone: set[str] = set()

    async def table_name(self) -> str:
        return "t"

    async def now_us(self) -> int:
        return self.table.stamp + 1

    async def shards(self) -> list[SourceShard]:
        return [s.shard for s in self.table.shards if s.shard.shard_id not in self.gone]

    async def position(self, shard_id: str, since_us: int | None) -> str:
        return self.table.position(shard_id, since_us)

    async def read(self, position: str, *, limit: int, wait_s: float) -> ChangePage:
        page = self.table.read(position, limit)
        if not page.changes:
            await asyncio.sleep(0.01)
        return page

    async def rows(self, shard_id: str, begin: bytes, end: bytes, *, limit: int) -> RowPage:
        return self.table.page(shard_id, begin, end, limit)

    async def report_positions(self, consumer: str, positions: Sequence[str]) -> None:
        pass


class Reader:
    """A consumer that reads a number of changes."""

    def __init__(self, source: Source, leases: MemoryLeases) -> None:
        self.stamps: list[int] = []
        self._enough = 0
        self._worker = ChangeWorker(source, leases, self._take, settings=SETTINGS)

    async def run(self, count: int) -> list[int]:
        self._enough = count
        await self._worker.run()
        return sorted(self.stamps)

    async def _take(self, batch: Batch) -> None:
        self.stamps += [change.stamp for change in batch]
        if len(self.stamps) >= self._enough:
            self._worker.stop()


def split_and_forgotten(source: Source) -> None:
    """Write three rows, split the shard, write three more; the parent goes."""
    for key in KEYS:
        source.table.write(key, delete=False)
    source.table.split(source.table.find_shard("s0"), KEYS[1])
    for key in KEYS:
        source.table.write(key, delete=False)
    source.gone.add("s0")


@pytest.mark.parametrize("begin", ["oldest", "latest", 1])
async def test_one_that_nobody_had_begun_to_read_is_missed(begin: Begin) -> None:
    """Where it began was decided, as by a rewind of what rests; its children were read instead."""
    source, leases = Source(), MemoryLeases("c")
    await rewind(source, leases, begin)
    split_and_forgotten(source)
    with pytest.raises(LogTrimmed):
        await Reader(source, leases).run(3)


async def test_with_the_rows_first_those_of_its_children_are_read() -> None:
    source, leases = Source(), MemoryLeases("c")
    await rewind(source, leases, "rows")
    split_and_forgotten(source)
    assert set(await Reader(source, leases).run(3)) >= {4, 5, 6}


@pytest.mark.parametrize("to", [None, ShardPlace("s1", 0)])
async def test_one_that_was_read_to_its_end_is_not_missed(to: ShardPlace | None) -> None:
    source, leases = Source(), MemoryLeases("c")
    await rewind(source, leases, "oldest")
    for key in KEYS:
        source.table.write(key, delete=False)
    await Reader(source, leases).run(3)
    source.table.split(source.table.find_shard("s0"), KEYS[1])
    row = (await leases.all())["s0"]
    await leases.change(row, row._replace(ended=True))
    for key in KEYS:
        source.table.write(key, delete=False)
    source.gone.add("s0")
    if to is not None:
        await rewind(source, leases, to)
    assert await Reader(source, leases).run(3) == [4, 5, 6]
    assert START in await leases.all()
