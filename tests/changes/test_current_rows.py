"""What rows are now, as of a stamp: present, absent, changed, through splits; what is refused."""

from __future__ import annotations

import asyncio
import random

import pytest

from rowtide.cli.client import ProtocolClient
from rowtide.client.changes.api import ApiSource, CurrentRow
from rowtide.client.changes.current_rows import newest, rows_since
from rowtide.client.changes.reader import read_changes
from rowtide.client.endpoint import Endpoint
from rowtide.client.wire_row import Put
from rowtide.connectors.runtime.kafka_source import KafkaSource
from rowtide.core.protocol.operations import READ_ROWS
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.values import key as key_order
from rowtide.core.values import variant
from rowtide.core.values.errors import Rejected, Unavailable
from rowtide.stream.log.kafka.cluster import KafkaCluster
from tests.api.calls import key
from tests.changes.test_readers_together import World

pytestmark = pytest.mark.system


def encode_key(name: str, number: int = 1) -> bytes:
    return key_order.encode([variant.encode(name), variant.encode(number)])


async def test_rows_are_as_of_a_stamp_that_covers_what_was_read_before(
    admin: ProtocolClient, endpoint: Endpoint, table: str
) -> None:
    source = ApiSource(endpoint, table)
    admin.put_row(table, key("a", 1), [Put("n", 1)])
    admin.update_row(table, key("a", 1), [Put("m", 2)])
    admin.put_row(table, key("b", 1), [Put("n", 3)])
    admin.delete_row(table, key("b", 1))
    stamps: list[int] = []
    async with read_changes(source) as batches:
        async for batch in batches:
            stamps += [change.stamp for change in batch]
            if len(stamps) == 4:
                break
    found = await source.current([encode_key("b"), encode_key("a"), encode_key("absent")])
    assert {row.stamp >= stamps[-1] for row in found.values()} == {True}
    cells = found[encode_key("a")].cells
    assert cells is not None
    assert {c.name: variant.decode(c.variant) for c in cells} == {b"n": 1, b"m": 2}
    assert found[encode_key("b")].cells is None
    assert found[encode_key("absent")].cells is None


async def test_rows_are_as_of_what_was_read_out_of_the_log_before_it_was_applied(
    admin: ProtocolClient, endpoint: Endpoint, cluster: KafkaCluster, table: str
) -> None:
    api = ApiSource(endpoint, table)
    count = 200

    def write() -> None:
        for number in range(1, count + 1):
            admin.update_row(table, key("a", 1), [Put("n", number)])

    seen = 0
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        tasks.create_task(asyncio.to_thread(write))
        async with read_changes(KafkaSource(api, cluster)) as batches:
            async for batch in batches:
                last = batch.changes[-1]
                row = (await rows_since(api, {encode_key("a"): last.stamp}))[encode_key("a")]
                assert row.stamp >= last.stamp
                assert row.cells is not None
                then, now = last.columns["n"], newest(row.cells)["n"]
                assert isinstance(then, int)
                assert isinstance(now, int)
                assert now >= then
                seen += len(batch)
                if seen == count:
                    break


async def test_rows_of_several_shards_are_answered_while_these_split(
    admin: ProtocolClient, endpoint: Endpoint, table: str
) -> None:
    world = World(admin, table, random.Random(1))
    await world.write(60)
    source = ApiSource(endpoint, table)
    keys = [encode_key(name) for name in world.written]

    async def current() -> dict[bytes, CurrentRow]:
        async with asyncio.timeout(30):
            while True:
                try:
                    return await source.current(keys)
                except Unavailable:  # A shard is on its way.
                    await asyncio.sleep(0.02)

    before = await current()
    for _ in range(3):
        await world.split()
        now = await current()
        assert now.keys() == before.keys()
        assert all(now[k].cells == before[k].cells for k in keys)
        assert all(now[k].stamp >= before[k].stamp for k in keys)
        before = now


async def test_chosen_columns_are_read_alone(
    admin: ProtocolClient, endpoint: Endpoint, table: str
) -> None:
    admin.put_row(table, key("a", 1), [Put("n", 1), Put("m", 2)])
    admin.put_row(table, key("b", 1), [Put("m", 2)])
    found = await ApiSource(endpoint, table, columns=["n"]).current(
        [encode_key("a"), encode_key("b")]
    )
    names = {k: [cell.name for cell in row.cells or ()] for k, row in found.items()}
    assert names == {encode_key("a"): [b"n"], encode_key("b"): []}
    assert found[encode_key("b")].cells is not None


@pytest.mark.parametrize(
    "keys",
    [
        [],
        [b"\x09"],
        [b"\x04a\x00\x01"],
        [encode_key("b"), encode_key("a")],
        [encode_key("a"), encode_key("a")],
        [key_order.encode([variant.encode(1), variant.encode(1)])],
    ],
)
async def test_keys_that_are_none_of_the_table_or_do_not_rise_are_refused(
    endpoint: Endpoint, table: str, keys: list[bytes]
) -> None:
    request = pb.ReadRowsRequest(table_name=table, keys=keys)
    with pytest.raises(Rejected):
        await endpoint.call(READ_ROWS, request, pb.ReadRowsResponse)


async def test_a_table_that_is_not_there_is_said_so(endpoint: Endpoint) -> None:
    request = pb.ReadRowsRequest(table_name="absent", keys=[encode_key("a")])
    with pytest.raises(Rejected) as refused:
        await endpoint.call(READ_ROWS, request, pb.ReadRowsResponse)
    assert refused.value.code == "OTSObjectNotExist"
