"""A stream shows the writes since it was enabled, in shards that do not know of it yet, too."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import pytest

from rowtide.core.cluster.catalog import TABLE, Document, table_content, table_id
from rowtide.core.protocol.authentication import Identity
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.shard.reshape import Sealed
from rowtide.core.shard.shard_state import options_body
from rowtide.core.values.errors import LogTrimmed, Unavailable
from rowtide.core.values.limits import Limits
from rowtide.core.values.schema import ShardRange, StreamSettings, Table
from rowtide.stream.api.directory import Directory
from rowtide.stream.api.stream import StreamOperations
from rowtide.stream.cluster.catalog_owner import CatalogOwner
from rowtide.stream.shard.owner import ShardOwner
from rowtide.stream.slot.slot import Slot
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
    is_foreign: bool = False

    def find_followable(self, _shard_id: str) -> ShardOwner:
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
        """Return the shards that a reader gets."""
        asked = pb.DescribeStreamRequest(stream_id="t_1").SerializeToString()
        response = pb.DescribeStreamResponse.FromString(self.operations.describe_stream(ANN, asked))
        return [shard.shard_id for shard in response.shards]

    async def oldest(self) -> str:
        """Return the position of the oldest record."""
        asked = pb.GetShardIteratorRequest(stream_id="t_1", shard_id="s1")
        answer = await self.operations.get_shard_iterator(ANN, asked.SerializeToString())
        return pb.GetShardIteratorResponse.FromString(answer).shard_iterator

    async def read(self, at: str = "", *, wait_ms: int = 0) -> tuple[int, str]:
        """Return how many records there are from a position on, and the next position."""
        at = at or await self.oldest()
        asked = pb.GetStreamRecordRequest(shard_iterator=at, wait_ms=wait_ms, want_places=True)
        body = asked.SerializeToString()
        answer = pb.GetStreamRecordResponse.FromString(
            await self.operations.get_stream_record(ANN, body)
        )
        return len(answer.stream_records), answer.next_shard_iterator


def split_at(seal: Sealed, now: Table) -> Table:
    """Return the table with the shard's child in its place."""
    parent = ShardRange("s1", 0, sealed_us=seal.stamp, sealed_at=seal.offset)
    child = ShardRange("s2", 0, parents=("s1",), floor_us=seal.stamp)
    return replace(now, shards=(child,), ended=(parent,))


@asynccontextmanager
async def open_reader(path: Path) -> AsyncIterator[Reader]:
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
    async with open_reader(tmp_path) as reader:
        with pytest.raises(Unavailable):
            await reader.read()
        await reader.owned.owner.submit_hidden(options_body(WITH_STREAM))
        assert (await reader.read())[0] == 0
        assert await reader.owned.write("P b=1") == "ok"
        assert (await reader.read())[0] == 1


async def test_a_shard_that_ended_before_its_log_had_the_stream_has_nothing(tmp_path: Path) -> None:
    async with open_reader(tmp_path) as reader:
        seal = await reader.owned.owner.seal("{}")
        await reader.know(split_at(seal, WITH_STREAM))
        assert await reader.read() == (0, "")


async def test_a_shard_whose_clock_is_behind_the_catalogs_is_listed_when_it_has_ended(
    tmp_path: Path,
) -> None:
    ahead = replace(STREAM, enabled_at_us=NOW_US + 10_000_000)
    now = replace(WITH_STREAM, stream=ahead)
    async with open_reader(tmp_path) as reader:
        await reader.know(now)
        await reader.owned.owner.submit_hidden(options_body(now))
        assert await reader.owned.write("P b=1") == "ok"
        seal = await reader.owned.owner.seal("{}")
        await reader.know(split_at(seal, now))
        assert reader.shards() == ["s1", "s2"]
        assert (await reader.read())[0] == 1


async def test_the_end_of_a_shard_is_told_once_its_children_are_listed(tmp_path: Path) -> None:
    """Between the seal and the catalog there is nothing new, and the position stays."""
    async with open_reader(tmp_path) as reader:
        await reader.owned.owner.submit_hidden(options_body(WITH_STREAM))
        assert await reader.owned.write("P b=1") == "ok"
        seal = await reader.owned.owner.seal("{}")
        count, following = await reader.read()
        assert count == 1
        assert following
        assert reader.shards() == ["s1"]
        assert await reader.read(following) == (0, following)
        await reader.know(split_at(seal, WITH_STREAM))
        assert reader.shards() == ["s1", "s2"]
        assert await reader.read(following) == (0, "")


async def test_who_waits_at_a_seal_is_told_when_its_children_are_listed(tmp_path: Path) -> None:
    async with open_reader(tmp_path) as reader, asyncio.TaskGroup() as tasks:
        await reader.owned.owner.submit_hidden(options_body(WITH_STREAM))
        seal = await reader.owned.owner.seal("{}")
        _, following = await reader.read()
        waiting = tasks.create_task(reader.read(following, wait_ms=20_000))
        for _ in range(100):
            await asyncio.sleep(0)
        assert reader.owned.owner.readers.has_followers
        assert not waiting.done()
        await reader.know(split_at(seal, WITH_STREAM))
        reader.owned.owner.readers.wake()
        assert await waiting == (0, "")


async def test_the_shards_end_of_a_dropped_table_is_its_readers_end(tmp_path: Path) -> None:
    async with open_reader(tmp_path) as reader:
        await reader.owned.owner.submit_hidden(options_body(WITH_STREAM))
        following = await reader.oldest()
        await reader.catalog.change(lambda _c, _s: [Document(TABLE, table_id(WITH_STREAM), None)])
        await reader.owned.owner.seal("{}")
        with pytest.raises(LogTrimmed):
            await reader.read(following)
