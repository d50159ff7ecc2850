"""A read that allows for staleness fails for no reason for which the same strong read would not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Self, cast

import pytest

from rowtide.core.cluster.catalog import TABLE, Document, table_content, table_id
from rowtide.core.values.errors import Elsewhere, Unavailable
from rowtide.core.values.limits import Limits
from rowtide.core.values.schema import LOCAL, Index, ShardRange
from rowtide.stream.api.directory import Directory
from rowtide.stream.cluster.catalog_owner import CatalogOwner
from rowtide.stream.measures.counts import Counts
from rowtide.stream.routing.bounded_reads import STALE_READS, BoundedReads, Copies
from rowtide.stream.slot.standby.standby import Standby
from tests.contract.memory_log import MemoryLog
from tests.core.shard_model import table
from tests.stream.test_routing import ANN
from tests.support.waiting import SOON_S


class LeaderlessLog(MemoryLog):
    """The catalog's log while its partition has no leader. ``asked`` is called for its end."""

    asked: Callable[[], Awaitable[None]]

    async def bounds(self) -> tuple[int, int]:
        await self.asked()
        return await super().bounds()


async def raise_unavailable() -> None:
    raise Unavailable("no leader")


async def silent() -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize("asked", [raise_unavailable, silent])
async def test_while_the_catalog_cannot_be_read_the_owner_is_asked(
    asked: Callable[[], Awaitable[None]],
) -> None:
    log = LeaderlessLog()
    log.asked = asked
    catalog = CatalogOwner(log, log, owner=b"ownerid1", clock_us=lambda: 1)
    counts = Counts()
    directory = Directory(catalog.catalog, {}, Limits(), lambda: 1)
    standbys = {1: cast(Standby, None)}
    reads = BoundedReads(directory, {}, standbys, catalog, counts)
    bounded = reads.handlers(dict.fromkeys(STALE_READS, lambda _identity, _body: b"strong"))
    async with asyncio.timeout(SOON_S):
        answer = bounded["GetRow"](ANN, b"", b"1000")
        assert not isinstance(answer, bytes)
        assert await answer == b"strong"
    assert counts.bounded_owner == 1


SHARD = ShardRange("s1", 1)
INDEX = Index("x", 9, LOCAL, ("pk", "v"), (), 1)
INDEXED = replace(table(), defined_columns=(("v", 1),), indexes=(INDEX,), shards=(SHARD,))


@dataclass(slots=True)
class Copied:
    """A copy of a slot whose view is as of ``fresh_s``, on a clock that is set."""

    now_s: float
    fresh_s: float

    def clock(self) -> float:
        return self.now_s

    def view(self, _shard_id: str, age_s_max: float) -> Self | None:
        return self if self.now_s - self.fresh_s <= age_s_max else None


async def make_indexed_reads(copy: Copied) -> BoundedReads:
    """Return what answers reads of a table with a local index, which a copy has."""
    log = MemoryLog()
    catalog = CatalogOwner(log, log.twin(), owner=b"ownerid1", clock_us=lambda: 1)
    await catalog.open(1)
    document = Document(TABLE, table_id(INDEXED), table_content(INDEXED))
    await catalog.change(lambda _catalog, _stamp: [document])
    directory = Directory(catalog.catalog, {}, Limits(), lambda: 1)
    standbys = {1: cast(Standby, copy)}
    return BoundedReads(directory, {}, standbys, catalog, Counts(), copy.clock)


def find_copy(copies: Copies, name: str) -> object:
    """Return who is read by a table or an index."""
    copies.check_index_read(copies.table("i", name))
    return copies.shard(SHARD)


async def test_a_copy_of_before_a_local_index_was_built_is_not_read_by_it() -> None:
    """All rows of the table are in the index by now, and few are in the copy's."""
    copy = Copied(now_s=100.0, fresh_s=95.0)
    reads = await make_indexed_reads(copy)
    assert find_copy(reads.copies(60.0), "t") is copy
    with pytest.raises(Elsewhere):
        find_copy(reads.copies(60.0), "x")
    copy.now_s = 110.0
    with pytest.raises(Elsewhere):
        find_copy(reads.copies(60.0), "x")
    copy.fresh_s = 101.0
    assert find_copy(reads.copies(60.0), "x") is copy


async def test_nor_by_a_request_that_has_read_the_table_in_it_before() -> None:
    """A batch may ask for rows of both, and what was young enough for the table's is kept."""
    copy = Copied(now_s=100.0, fresh_s=95.0)
    copies = (await make_indexed_reads(copy)).copies(60.0)
    assert find_copy(copies, "t") is copy
    with pytest.raises(Elsewhere):
        find_copy(copies, "x")
