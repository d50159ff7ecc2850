"""Readers get what a record tells of the original columns: over the Stream API, and from Kafka.

``tests/core/test_originals.py`` compares the records themselves with a dictionary.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from rowtide.cli.client import ProtocolClient
from rowtide.client import AsyncClient, column
from rowtide.client.changes.api import ApiSource
from rowtide.client.changes.reader import read_changes
from rowtide.client.changes.source import ChangeSource
from rowtide.client.endpoint import Endpoint
from rowtide.client.wire_row import Delete, Put
from rowtide.connectors.runtime.kafka_source import KafkaSource
from rowtide.core.protocol import plainbuffer
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.records import record
from rowtide.core.records.change import Change
from rowtide.core.values import variant
from rowtide.core.values.variant import Scalar
from rowtide.deploy.up import Ready, Up
from rowtide.stream.log.kafka.cluster import KafkaCluster, KafkaConfig
from tests.api.calls import key
from tests.api.conftest import KEY, MakeTable
from tests.changes.conftest import MakeSource
from tests.workers.conftest import repeat

pytestmark = pytest.mark.system

KEPT = pb.StreamSpecification(enable_stream=True, expiration_time=24, columns_to_get=["n", "s"])
OLD_PREFIX = "oldrecords"
READ_S_MAX = 60.0
FETCH_BYTES = 1024 * 1024

Values = dict[str, Scalar] | None


class Telling(NamedTuple):
    """What a change says, and what it tells of the original columns."""

    kind: str
    columns: Values
    before: Values
    after: Values
    existed: bool | None


def tell(change: Change) -> Telling:
    assert change.original_columns == ["n", "s"]
    return Telling(change.kind, change.columns, change.before, change.after, change.existed)


def write(client: ProtocolClient, table: str) -> None:
    """Write the changes of ``WHOLE``."""
    row = key("a", 1)
    client.put_row(table, row, [Put("n", 1), Put("s", "x")])
    client.update_row(table, row, [Put("n", 2), Delete("s")])
    client.update_row(table, row, [Put("other", "y")])
    client.put_row(table, row, [Put("other", "z")])
    client.update_row(table, row, [Put("n", 3)])
    client.delete_row(table, row)
    client.delete_row(table, row)


WHOLE = [
    Telling("put", {"n": 1, "s": "x"}, {}, {"n": 1, "s": "x"}, False),
    Telling("update", {"n": 2}, {"n": 1, "s": "x"}, {"n": 2}, True),
    Telling("update", {"other": "y"}, {"n": 2}, {"n": 2}, True),
    Telling("put", {"other": "z"}, {"n": 2}, {}, True),
    Telling("update", {"n": 3}, {}, {"n": 3}, True),
    Telling("delete", {}, {"n": 3}, {}, True),
    Telling("delete", {}, {}, {}, False),
]
NARROWED = [
    WHOLE[0]._replace(columns={}),
    WHOLE[2],
    WHOLE[3],
    *WHOLE[5:],
]
"""With the column ``other`` only: updates that do not write it are left out."""
FILTERED = [WHOLE[1], WHOLE[4]]
"""Those that put more than 1 into ``n``."""


@pytest.fixture
async def table(admin: ProtocolClient, make_table: MakeTable) -> str:
    """A table that keeps two columns, with the changes of ``WHOLE``."""
    name = await asyncio.to_thread(partial(make_table, stream=KEPT))
    await asyncio.to_thread(write, admin, name)
    return name


async def read(source: ChangeSource, count: int) -> list[Change]:
    """Return the first changes."""
    found: list[Change] = []
    async with asyncio.timeout(READ_S_MAX), read_changes(source) as batches:
        async for batch in batches:
            found += batch
            if len(found) >= count:
                break
    return found


ABOVE_ONE = column("n") > 1


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({}, WHOLE),
        ({"columns": ["other"]}, NARROWED),
        ({"filter": ABOVE_ONE.encode()}, FILTERED),
        (
            {"filter": ABOVE_ONE.encode(), "columns": ["n"]},
            FILTERED,
        ),
    ],
    ids=["whole", "narrowed", "filtered", "both"],
)
async def test_each_change_tells_of_the_row_before_and_after_it(
    source: MakeSource, table: str, wanted: dict[str, object], expected: list[Telling]
) -> None:
    found = await read(source(table, **wanted), len(expected))
    assert [tell(change) for change in found] == expected


async def test_the_client_tells_the_same(server: Ready, table: str) -> None:
    async with AsyncClient(**server._asdict()) as client, asyncio.timeout(READ_S_MAX):
        found: list[Telling] = []
        async for change in client.changes(table):
            found.append(tell(change))
            if len(found) == len(WHOLE):
                break
        assert found == WHOLE
        async for change in client.changes(table, filter=ABOVE_ONE, columns=["other", "n"]):
            assert tell(change) == FILTERED[0]
            break


async def test_rows_of_a_snapshot_and_streams_without_columns_tell_nothing(
    admin: ProtocolClient, source: MakeSource, make_table: MakeTable, table: str
) -> None:
    await asyncio.to_thread(admin.put_row, table, key("b", 1), [Put("n", 1)])
    async with asyncio.timeout(READ_S_MAX), read_changes(source(table), begin="rows") as batches:
        [row] = await anext(aiter(batches))
    plain = pb.StreamSpecification(enable_stream=True, expiration_time=24)
    other = await asyncio.to_thread(partial(make_table, stream=plain))
    await asyncio.to_thread(admin.put_row, other, key("b", 1), [Put("n", 1)])
    for change in (row, *await read(source(other), 1)):
        assert change.columns == {"n": 1}
        assert (change.before, change.after, change.existed) == (None, None, None)
        assert change.original_columns is None


# A record of an earlier version of rowtide.


@pytest.fixture
async def old_cluster(broker: str) -> AsyncIterator[KafkaCluster]:
    """The logs of a server that is stopped and started again."""
    async with KafkaCluster(KafkaConfig(broker, topic_prefix=OLD_PREFIX)) as found:
        yield found


async def append_old_record(cluster: KafkaCluster, shard: str) -> None:
    """Append a put to a shard's log, as an earlier version of rowtide wrote it."""
    log = cluster.log(f"{OLD_PREFIX}.shard.{shard}")
    start, end = await log.bounds()
    last = (await log.read(start, bytes_max=FETCH_BYTES))[-1]
    assert last.offset == end - 1
    envelope, _ = record.decode_record(last.value)
    cells = [plainbuffer.put_cell(b"n", variant.encode(2), time.time_ns() // 1_000_000)]
    before = [plainbuffer.put_cell(b"n", variant.encode(1), 1)]
    body = record.PutBody([variant.encode("a"), variant.encode(1)], cells, before)
    stamp = max(envelope.stamp + 1, time.time_ns() // 1000)
    old = record.Envelope(end, envelope.claim, envelope.owner, stamp, record.SINGLE)
    value = record.encode_record(old, record.encode_body(body))
    assert value.startswith(b"\xc3\x01" + record.FINGERPRINT_V4), "the newest has these values"
    assert await log.append([(last.key, value)], deadline_s=READ_S_MAX) == end


async def test_a_record_of_an_earlier_version_tells_only_the_values_before(
    broker: str, old_cluster: KafkaCluster, tmp_path: Path
) -> None:
    options = ["--port", "0", "--kafka", broker, "--topic-prefix", OLD_PREFIX, "--slots", "1"]
    with (
        (tmp_path / "output").open("wb") as output,
        Up(tmp_path / "data", options=options, output=output) as up,
    ):
        ready = await asyncio.to_thread(up.start)
        with ProtocolClient(**ready._asdict()) as client:
            await asyncio.to_thread(partial(client.create_table, "t", KEY, stream=KEPT))
            await asyncio.to_thread(client.put_row, "t", key("a", 1), [Put("n", 1)])
        async with Endpoint(**ready._asdict()) as endpoint:
            [shard] = await ApiSource(endpoint, "t").shards()
        await asyncio.to_thread(up.stop)
        await append_old_record(old_cluster, shard.shard_id)
        ready = await asyncio.to_thread(up.start)
        with ProtocolClient(**ready._asdict()) as client:
            put = partial(client.put_row, "t", key("a", 1), [Put("n", 3)])
            await asyncio.to_thread(repeat, put)
        async with Endpoint(**ready._asdict()) as endpoint:
            api = ApiSource(endpoint, "t")
            make: list[Callable[[], ChangeSource]] = [
                lambda: api,
                lambda: KafkaSource(api, old_cluster),
                lambda: ApiSource(endpoint, "t", columns=["n"], filter=(column("n") > 0).encode()),
            ]
            for source in make:
                first, old, new = await read(source(), 3)
                assert (tell(first).after, tell(new).before) == ({"n": 1}, {"n": 2})
                assert (old.kind, old.columns, old.before) == ("put", {"n": 2}, {"n": 1})
                assert (old.after, old.existed, old.original_columns) == (None, None, None)
