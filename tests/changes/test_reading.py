"""One reader gets a table's changes: what they say, from where on, and what of them is wanted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.admin import AIOKafkaAdminClient

from rowtide.cli.client import ProtocolClient
from rowtide.client.changes.api import ApiSource
from rowtide.client.changes.leases import Leases, MemoryLeases, ReaderLease, TableLeases
from rowtide.client.changes.reader import read_changes
from rowtide.client.changes.source import ChangeSource
from rowtide.client.changes.start import Begin
from rowtide.client.changes.worker import Batch, FollowerSettings
from rowtide.client.endpoint import Endpoint
from rowtide.client.wire_row import Delete, Put
from rowtide.connectors.runtime.kafka_source import KafkaSource
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.records.change import Change
from rowtide.core.values import variant
from rowtide.core.values.errors import Rejected
from rowtide.stream.log.kafka.cluster import KafkaCluster
from tests.api.calls import key
from tests.api.conftest import MakeTable
from tests.changes.conftest import PREFIX, MakeSource

pytestmark = pytest.mark.system


def describe_change(change: Change) -> str:
    text = f"{change.kind} {change.key[0][1]!s} {change.columns}"
    return text + "".join(f" -{name}" for name in change.removed)


async def first(
    source: ChangeSource,
    count: int,
    leases: Leases | None = None,
    *,
    begin: Begin = "oldest",
) -> list[str]:
    """Return the first changes as texts."""
    found: list[str] = []
    async with asyncio.timeout(30), read_changes(source, leases, begin=begin) as batches:
        async for batch in batches:
            found += [describe_change(change) for change in batch]
            if len(found) >= count:
                break
    return found


def write_some(admin: ProtocolClient, table: str) -> None:
    admin.put_row(table, key("a", 1), [Put("n", 1), Put("s", "x")])
    admin.update_row(table, key("a", 1), [Put("n", 2), Delete("s")])
    admin.put_row(table, key("b", 1), [Put("s", "y")])
    admin.delete_row(table, key("a", 1))


async def test_changes_come_in_order_and_say_what_was_done(
    admin: ProtocolClient, source: MakeSource, table: str
) -> None:
    await asyncio.to_thread(write_some, admin, table)
    assert await first(source(table), 4) == [
        "put a {'n': 1, 's': 'x'}",
        "update a {'n': 2} -s",
        "put b {'s': 'y'}",
        "delete a {}",
    ]


async def test_only_columns_that_are_wanted_leave_the_server(
    admin: ProtocolClient, source: MakeSource, table: str
) -> None:
    await asyncio.to_thread(write_some, admin, table)
    wanted = source(table, columns=["s"])
    assert await first(wanted, 4) == [
        "put a {'s': 'x'}",
        "update a {} -s",
        "put b {'s': 'y'}",
        "delete a {}",
    ]
    wanted = source(table, columns=["n"])
    assert await first(wanted, 4) == [
        "put a {'n': 1}",
        "update a {'n': 2}",
        "put b {}",
        "delete a {}",
    ]


async def test_a_snapshot_gives_the_rows_then_what_changes(
    admin: ProtocolClient, source: MakeSource, table: str
) -> None:
    await asyncio.to_thread(write_some, admin, table)
    wanted = source(table)
    found: list[str] = []
    async with asyncio.timeout(30), read_changes(wanted, begin="rows") as batches:
        async for batch in batches:
            found += [describe_change(change) for change in batch]
            if len(found) == 1:
                await asyncio.to_thread(admin.put_row, table, key("c", 1), [Put("n", 3)])
            if len(found) == 2:
                break
    assert found == ["row b {'s': 'y'}", "put c {'n': 3}"]


def above(column: str, number: int) -> bytes:
    """Return the filter of changes that say a column is above a number."""
    test = pb.SingleColumnValueFilter(
        comparator=pb.CT_GREATER_THAN,
        column_name=column,
        column_value=variant.encode(number),
        filter_if_missing=True,
        latest_version_only=True,
    )
    whole = pb.Filter(type=pb.FT_SINGLE_COLUMN_VALUE, filter=test.SerializeToString())
    return whole.SerializeToString()


async def test_only_changes_that_pass_the_filter_leave_the_server(
    admin: ProtocolClient, source: MakeSource, table: str
) -> None:
    await asyncio.to_thread(write_some, admin, table)
    wanted = source(table, filter=above("n", 1), columns=["s"])
    assert await first(wanted, 1) == ["update a {} -s"]
    keys = source(table, filter=above("PK2", 0))
    assert len(await first(keys, 4)) == 4


async def test_a_reader_that_left_goes_on_with_what_it_had_in_hand(
    admin: ProtocolClient, source: MakeSource, endpoint: Endpoint, table: str
) -> None:
    await asyncio.to_thread(write_some, admin, table)
    leases = TableLeases(endpoint, "leaver")
    one = FollowerSettings(batch_changes_max=1)
    found: list[list[str]] = []
    for _ in range(2):
        found.append([])
        wanted = source(table)
        async with asyncio.timeout(30), read_changes(wanted, leases, settings=one) as batches:
            async for batch in batches:
                found[-1] += [describe_change(change) for change in batch]
                if len(found[-1]) == 2:
                    break
    assert found == [
        ["put a {'n': 1, 's': 'x'}", "update a {'n': 2} -s"],
        ["update a {'n': 2} -s", "put b {'s': 'y'}"],
    ]


async def test_what_the_loop_raises_comes_out_as_it_is(
    admin: ProtocolClient, source: MakeSource, table: str
) -> None:
    await asyncio.to_thread(write_some, admin, table)

    async def fail() -> None:
        async with asyncio.timeout(30), read_changes(source(table)) as batches:
            async for _ in batches:
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()


async def test_a_stream_that_is_not_there_is_told(
    source: MakeSource, make_table: MakeTable
) -> None:
    without = await asyncio.to_thread(make_table)
    with pytest.raises(Rejected, match="has no stream"):
        await first(source(without), 1)


async def test_a_group_that_somebody_else_is_in_does_not_keep_a_reader_from_reading(
    admin: ProtocolClient, endpoint: Endpoint, cluster: KafkaCluster, broker: str, table: str
) -> None:
    await asyncio.to_thread(write_some, admin, table)
    source = KafkaSource(ApiSource(endpoint, table), cluster)
    settings = FollowerSettings(lease_s=1.0, checkpoint_s=0.0, batch_changes_max=1)
    leases = TableLeases(endpoint, "taken")
    topic = f"{PREFIX}.shard.{(await source.shards())[0].shard_id}"
    member = AIOKafkaConsumer(topic, bootstrap_servers=broker, group_id="taken")
    await member.start()
    found: list[str] = []
    try:
        async with asyncio.timeout(30), read_changes(source, leases, settings=settings) as batches:
            async for batch in batches:
                found += [describe_change(change) for change in batch]
                if len(found) == 4:
                    break
    finally:
        await member.stop()
    assert len(found) == 4


async def one_more(reading: AsyncIterator[Batch]) -> None:
    await anext(reading)


async def test_kafkas_own_tools_see_how_far_a_consumer_is(
    admin: ProtocolClient, endpoint: Endpoint, cluster: KafkaCluster, broker: str, table: str
) -> None:
    await asyncio.to_thread(write_some, admin, table)
    source = KafkaSource(ApiSource(endpoint, table), cluster)
    settings = FollowerSettings(lease_s=1.0, checkpoint_s=0.0)
    leases = TableLeases(endpoint, "watched")
    judge = AIOKafkaAdminClient(bootstrap_servers=broker)
    await judge.start()
    try:
        async with asyncio.timeout(30), read_changes(source, leases, settings=settings) as batches:
            reading = aiter(batches)
            [shard] = [shard.shard_id for shard in await source.shards()]
            _, end = await cluster.log(f"{PREFIX}.shard.{shard}").bounds()
            assert len(await anext(reading)) == 4
            async with asyncio.TaskGroup() as tasks:
                following = tasks.create_task(one_more(reading))  # The first batch is finished.
                offsets: dict[Any, Any] = {}
                while not offsets or max(at.offset for at in offsets.values()) < end:
                    offsets = await judge.list_consumer_group_offsets("watched")
                following.cancel()
    finally:
        await judge.close()
    assert [(place.topic, at.offset) for place, at in offsets.items()] == [
        (f"{PREFIX}.shard.{shard}", end)
    ]


class Telling(MemoryLeases):
    """Says when the consumer has begun."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = asyncio.Event()

    async def create(self, lease: ReaderLease) -> ReaderLease:
        made = await super().create(lease)
        self.begun.set()
        return made


async def test_a_reader_may_begin_at_a_time(
    admin: ProtocolClient, source: MakeSource, table: str
) -> None:
    await asyncio.to_thread(write_some, admin, table)
    stamps: list[int] = []
    async with asyncio.timeout(30), read_changes(source(table)) as batches:
        async for batch in batches:
            stamps += [change.stamp for change in batch]
            if len(stamps) == 4:
                break
    assert await first(source(table), 2, begin=stamps[2]) == ["put b {'s': 'y'}", "delete a {}"]


async def test_a_reader_may_begin_with_what_comes(
    admin: ProtocolClient, source: MakeSource, table: str
) -> None:
    await asyncio.to_thread(write_some, admin, table)
    leases = Telling()

    async def write_more() -> None:
        await leases.begun.wait()
        await asyncio.to_thread(admin.put_row, table, key("c", 1), [Put("n", 3)])

    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        tasks.create_task(write_more())
        assert await first(source(table), 1, leases, begin="latest") == ["put c {'n': 3}"]
