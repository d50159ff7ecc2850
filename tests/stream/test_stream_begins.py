"""A stream shows what was written since it was enabled, in shards that have not heard of it too."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import pytest

from rowtide.core.authentication import Identity
from rowtide.core.catalog import TABLE, Document, table_content, table_id
from rowtide.core.errors import Unavailable
from rowtide.core.limits import Limits
from rowtide.core.schema import ShardRange, StreamSettings, Table
from rowtide.core.shard_state import options_body
from rowtide.core.wire import ots_pb2 as pb
from rowtide.stream.catalog.owner import CatalogOwner
from rowtide.stream.operations.directory import Directory
from rowtide.stream.operations.stream import StreamOperations
from rowtide.stream.shards.owner import ShardOwner
from rowtide.stream.slots.slot import Slot
from tests.contract.memory_log import MemoryLog
from tests.core.shard_model import NOW_US, table
from tests.stream.test_owned_transactions import Owned, running

ANN = Identity("key-of-ann", "i", b"")
STREAM = StreamSettings("t_1", NOW_US, 24)
WITH_STREAM = replace(table(), stream=STREAM, shards=(ShardRange("s1", 0),))


@dataclass(slots=True)
class OpenSlot:
    """A slot of one shard, open or ended."""

    shard: ShardOwner
    foreign: bool = False

    def followed(self, _shard_id: str) -> ShardOwner:
        return self.shard


@dataclass(slots=True)
class Reader:
    """A reader of the stream that the catalog knows since a row was written."""

    owned: Owned
    catalog: CatalogOwner
    operations: StreamOperations

    async def know(self, now: Table) -> None:
        """Let the catalog have the table so."""
        document = Document(TABLE, table_id(now), table_content(now))
        await self.catalog.change(lambda _catalog, _stamp: [document])

    def shards(self) -> list[str]:
        """Return the shards that a reader is told of."""
        asked = pb.DescribeStreamRequest(stream_id="t_1").SerializeToString()
        told = pb.DescribeStreamResponse.FromString(self.operations.describe_stream(ANN, asked))
        return [shard.shard_id for shard in told.shards]

    async def read(self) -> tuple[int, str]:
        """Return how many records there are from the oldest one on, and the next position."""
        asked = pb.GetShardIteratorRequest(stream_id="t_1", shard_id="s1")
        told = await self.operations.get_shard_iterator(ANN, asked.SerializeToString())
        at = pb.GetShardIteratorResponse.FromString(told).shard_iterator
        body = pb.GetStreamRecordRequest(shard_iterator=at).SerializeToString()
        answer = pb.GetStreamRecordResponse.FromString(
            await self.operations.get_stream_record(ANN, body)
        )
        return len(answer.stream_records), answer.next_shard_iterator


@asynccontextmanager
async def enabled(path: Path) -> AsyncIterator[Reader]:
    async with running(path) as owned:
        assert await owned.write("P a=1") == "ok"
        log = MemoryLog()
        known = CatalogOwner(log, log.twin(), owner=b"ownerid1", clock_us=lambda: 1)
        await known.open(1)
        slots = cast(dict[int, Slot], {0: OpenSlot(owned.owner)})
        directory = Directory(known.catalog, slots, Limits(), lambda: NOW_US)
        reader = Reader(owned, known, StreamOperations(directory))
        await reader.know(WITH_STREAM)
        yield reader


async def test_an_open_shard_is_read_once_its_log_has_the_stream(tmp_path: Path) -> None:
    async with enabled(tmp_path) as reader:
        with pytest.raises(Unavailable):
            await reader.read()
        await reader.owned.owner.submit_hidden(options_body(WITH_STREAM))
        assert (await reader.read())[0] == 0
        assert await reader.owned.write("P b=1") == "ok"
        assert (await reader.read())[0] == 1


async def test_a_shard_that_ended_before_its_log_had_the_stream_has_nothing(tmp_path: Path) -> None:
    async with enabled(tmp_path) as reader:
        await reader.owned.owner.seal("{}")
        assert await reader.read() == (0, "")


async def test_a_shard_whose_clock_is_behind_the_catalogs_is_listed_when_it_has_ended(
    tmp_path: Path,
) -> None:
    ahead = replace(STREAM, enabled_at_us=NOW_US + 10_000_000)
    now = replace(WITH_STREAM, stream=ahead)
    async with enabled(tmp_path) as reader:
        await reader.know(now)
        await reader.owned.owner.submit_hidden(options_body(now))
        assert await reader.owned.write("P b=1") == "ok"
        seal = await reader.owned.owner.seal("{}")
        parent = ShardRange("s1", 0, sealed_us=seal.stamp, sealed_at=seal.offset)
        child = ShardRange("s2", 0, parents=("s1",), floor_us=seal.stamp)
        await reader.know(replace(now, shards=(child,), ended=(parent,)))
        assert reader.shards() == ["s1", "s2"]
        assert (await reader.read())[0] == 1
