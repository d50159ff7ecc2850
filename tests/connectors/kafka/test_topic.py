"""What a topic has after rows were applied, read back from a real broker."""

from __future__ import annotations

import base64
import json
import math

import pytest

from rowtide.connectors.rows import SinkBatch, SinkRow
from rowtide.core.records.change import DELETE, PUT_ROW, ROW, UPDATE
from rowtide.core.values.schema import BINARY, INTEGER, STRING, KeyColumn
from rowtide.core.values.variant import Scalar
from rowtide.stream.log.kafka.cluster import KafkaCluster
from rowtide.stream.log.kafka.config import KafkaConfig
from tests.connectors.kafka.sinks import open_sink, read_records
from tests.connectors.row_histories import MIXED, delete, put, row_key, shape

pytestmark = pytest.mark.kafka

TABLE = shape(KeyColumn("id", INTEGER))
STAMP = 1_700_000_000_000_123


def batch(*rows: SinkRow, shard: str = "shard-1") -> SinkBatch:
    return SinkBatch("things", shard, rows)


async def test_a_put_an_update_a_snapshots_row_and_a_delete_are_c_u_r_and_d(
    broker: str, topic: str
) -> None:
    key, key_bytes = row_key(TABLE.key, [1])
    async with open_sink(broker, topic, TABLE, prefix="p", instance="shop") as sink:
        await sink.apply(batch(SinkRow(key, key_bytes, STAMP, {"a": 0}, ROW)))
        await sink.apply(
            batch(
                put(STAMP + 1, [1], {"a": 1, "b": "x"}, sequence=7),
                SinkRow(key, key_bytes, STAMP + 2, {"a": 2}, UPDATE, None, 8),
                put(STAMP + 3, [1], {"a": 3}, before={"a": 2}, sequence=9),
                SinkRow(key, key_bytes, STAMP + 4, None, DELETE, {"a": 3}, 10),
                delete(STAMP + 5, [2], sequence=11),
                SinkRow(key, key_bytes, STAMP + 6, {"a": 4}, PUT_ROW, {}, 12, True),
                SinkRow(key, key_bytes, STAMP + 7, {"a": 5}, UPDATE, {}, 13, False),
            )
        )
    found = await read_records(broker, topic)
    values = [record.value for record in found]
    told_values = [(v and (v["op"], v["before"], v["after"])) for v in values]
    assert told_values == [
        ("r", None, {"id": 1, "a": 0}),
        ("c", None, {"id": 1, "a": 1, "b": "x"}),
        ("u", None, {"id": 1, "a": 2}),
        ("u", {"id": 1, "a": 2}, {"id": 1, "a": 3}),
        ("d", {"id": 1, "a": 3}, None),
        None,
        ("d", {"id": 2}, None),
        None,
        ("u", {"id": 1}, {"id": 1, "a": 4}),
        ("c", None, {"id": 1, "a": 5}),
    ]
    assert found[0].key == {"id": 1}
    assert [r.headers["rowtide.stamp"] for r in found[-4:-2]] == [str(STAMP + 5).encode()] * 2
    assert values[0]["source"] | {"ts_ms": 0} == {
        "version": "1",
        "connector": "rowtide",
        "name": "p",
        "ts_ms": 0,
        "ts_us": STAMP,
        "snapshot": "true",
        "db": "shop",
        "table": "things",
        "shard": "shard-1",
        "sequence": None,
        "stamp": STAMP,
    }
    assert values[1]["source"]["sequence"] == '["7"]'
    assert values[1]["source"]["ts_ms"] == STAMP // 1000


async def test_the_topic_is_named_like_debeziums(broker: str, topic: str) -> None:
    prefix = topic
    async with open_sink(broker, "", TABLE, prefix=prefix, instance="shop") as sink:
        await sink.apply(batch(put(STAMP, [1], {})))
    [record] = await read_records(broker, f"{prefix}.shop.things")
    assert record.value["after"] == {"id": 1}


async def test_a_repeated_batch_and_a_paused_process_add_nothing(broker: str, topic: str) -> None:
    first = batch(put(STAMP, [1], {"a": 1}, sequence=1), put(STAMP + 1, [2], {}, sequence=2))
    second = batch(delete(STAMP + 2, [1], sequence=3))
    async with open_sink(broker, topic, TABLE) as paused, open_sink(broker, topic, TABLE) as other:
        await paused.apply(first)
        await other.apply(first)
        await other.apply(second)
        # The paused process was fenced; it takes the shard back, and sees what is there.
        with pytest.raises(Exception, match="shard-1"):
            await paused.apply(second)
        await paused.apply(first)
        await paused.apply(second)
        await paused.apply(batch(put(STAMP + 3, [1], {"a": 2}, sequence=4)))
    ops = [(r.key["id"], r.value and r.value["op"]) for r in await read_records(broker, topic)]
    assert ops == [(1, "c"), (2, "c"), (1, "d"), (1, None), (1, "c")]


async def test_a_page_of_a_snapshot_comes_once_and_a_newer_snapshot_again(
    broker: str, topic: str
) -> None:
    def page(stamp: int, begin: int, end: int | None) -> SinkBatch:
        key, key_bytes = row_key(TABLE.key, [begin])
        covers = (key_bytes, b"" if end is None else row_key(TABLE.key, [end])[1])
        row = SinkRow(key, key_bytes, stamp, {"a": begin}, ROW)
        return SinkBatch("things", "shard-1", [row], covers, stamp)

    pages = [page(STAMP, 1, 5), page(STAMP, 5, 9), page(STAMP + 1, 9, None)]
    async with open_sink(broker, topic, TABLE) as sink:
        for told_page in (*pages[:2], *pages, pages[0], page(STAMP + 2, 1, 5)):
            await sink.apply(told_page)
    assert [r.key["id"] for r in await read_records(broker, topic)] == [1, 5, 9, 1]


async def test_a_snapshot_ends_what_the_topic_has_from_before_and_the_table_has_not(
    broker: str, topic: str
) -> None:
    middle = row_key(TABLE.key, [5])[1]
    rows = [put(STAMP + at, [at], {}, sequence=at) for at in range(1, 9)]
    async with open_sink(broker, topic, TABLE) as sink:
        await sink.apply(batch(*rows, delete(STAMP + 9, [8], sequence=9)))
    key, key_bytes = row_key(TABLE.key, [2])
    row = SinkRow(key, key_bytes, STAMP + 20, {"a": 1}, ROW)
    pages = [
        SinkBatch("things", "shard-1", [row], (b"", middle), STAMP + 20),
        SinkBatch("things", "shard-1", [], (middle, b""), STAMP + 21),
    ]
    async with open_sink(broker, topic, TABLE) as sink:
        await sink.apply(batch(put(STAMP + 30, [6], {}, sequence=30)))
        for page in (*pages, *pages):
            await sink.apply(page)
        living = [(row.key_bytes, row.stamp) for row in await sink.read_rows(b"", b"", limit=99)]
    assert living == [(key_bytes, STAMP + 20), (row_key(TABLE.key, [6])[1], STAMP + 30)]
    ends = [
        r.key["id"] for r in await read_records(broker, topic) if r.value and r.value["op"] == "d"
    ]
    assert ends == [8, 1, 3, 4, 5, 7]


async def test_a_row_out_of_its_turn_is_always_new(broker: str, topic: str) -> None:
    async with open_sink(broker, topic, TABLE) as sink:
        await sink.apply(batch(put(STAMP + 9, [1], {}, sequence=9)))
        await sink.apply(batch(put(STAMP, [2], {}, sequence=-1)))
    assert [r.key["id"] for r in await read_records(broker, topic)] == [1, 2]


async def test_a_row_that_the_topic_does_not_take_is_refused_and_the_others_flow(
    broker: str, topic: str
) -> None:
    async with KafkaCluster(KafkaConfig(broker)) as cluster:
        limit = {"max.message.bytes": "20000"}
        await cluster.create_topic(topic, partitions=1, replicas=1, settings=limit)
    rows = [put(STAMP, [1], {"a": "x" * 30_000}, sequence=1), put(STAMP, [2], {}, sequence=2)]
    async with open_sink(broker, topic, TABLE) as sink:
        [refused] = await sink.apply(batch(*rows))
    assert refused.row is rows[0]
    assert "18976" in refused.reason
    assert [r.key["id"] for r in await read_records(broker, topic)] == [2]


async def test_what_is_refused_is_so_again_where_the_batch_comes_again(
    broker: str, topic: str
) -> None:
    """It was below the mark: with its parking cut short it was neither parked nor in the topic."""
    async with KafkaCluster(KafkaConfig(broker)) as cluster:
        limit = {"max.message.bytes": "20000"}
        await cluster.create_topic(topic, partitions=1, replicas=1, settings=limit)
    rows = [put(STAMP, [1], {"a": "x" * 30_000}, sequence=1), put(STAMP, [2], {}, sequence=2)]
    key, key_bytes = row_key(TABLE.key, [3])
    large = SinkRow(key, key_bytes, STAMP + 9, {"a": "x" * 30_000}, ROW)
    page = SinkBatch("things", "shard-1", [large], (b"", b""), STAMP + 9)
    async with open_sink(broker, topic, TABLE) as sink:
        for _ in range(2):
            assert [refused.row for refused in await sink.apply(batch(*rows))] == rows[:1]
            assert not await sink.apply(batch(put(STAMP, [4], {}, sequence=-1)))
    async with open_sink(broker, topic, TABLE) as sink:
        assert [refused.row for refused in await sink.apply(batch(*rows))] == rows[:1]
        # The caller has parked it before it gives another batch.
        await sink.apply(batch(put(STAMP, [5], {}, sequence=3)))
        assert not await sink.apply(batch(*rows))
        for _ in range(2):
            assert [refused.row for refused in await sink.apply(page)] == [large]
    assert [r.key["id"] for r in await read_records(broker, topic) if r.value] == [
        2,
        4,
        4,
        5,
        2,
        4,
        5,
    ]


async def test_what_comes_behind_a_refused_row_of_its_key_is_refused_too(
    broker: str, topic: str
) -> None:
    """Taken before, it was followed by the older one once that was tried again."""
    async with KafkaCluster(KafkaConfig(broker)) as cluster:
        limit = {"max.message.bytes": "20000"}
        await cluster.create_topic(topic, partitions=1, replicas=1, settings=limit)
    rows = [
        put(STAMP, [1], {"a": "x" * 30_000}, sequence=1),
        put(STAMP + 1, [2], {}, sequence=2),
        put(STAMP + 2, [1], {"a": "x"}, sequence=3),
    ]
    async with open_sink(broker, topic, TABLE) as sink:
        assert [refused.row for refused in await sink.apply(batch(*rows))] == [rows[0], rows[2]]
    assert [r.key["id"] for r in await read_records(broker, topic)] == [2]


async def test_keys_are_divided_and_a_keys_records_stand_in_one_partition(
    broker: str, topic: str
) -> None:
    rows = [put(STAMP + n, [n % 20], {"n": n}, sequence=n) for n in range(200)]
    async with open_sink(broker, topic, TABLE, partitions=3) as sink:
        await sink.apply(batch(*rows))
    found = await read_records(broker, topic, 3)
    places = {(record.partition, record.key["id"]) for record in found}
    assert len(places) == 20
    assert {partition for partition, _ in places} == {0, 1, 2}
    for number in range(20):
        counts = [r.value["after"]["n"] for r in found if r.key["id"] == number]
        assert counts == list(range(number, 200, 20))


async def test_a_compacted_topic_is_made_when_asked_for(broker: str, topic: str) -> None:
    async with open_sink(broker, topic, TABLE, compacted=True):
        pass
    async with KafkaCluster(KafkaConfig(broker)) as cluster:
        assert (await cluster.settings(topic))["cleanup.policy"] == "compact"
        assert (await cluster.settings(f"{topic}.rowtide-marks"))["cleanup.policy"] == "compact"


async def test_no_tombstones_where_they_are_not_wanted(broker: str, topic: str) -> None:
    async with open_sink(broker, topic, TABLE, tombstones=False) as sink:
        await sink.apply(batch(delete(STAMP, [1], sequence=1)))
    assert [r.value["op"] for r in await read_records(broker, topic)] == ["d"]


async def test_every_type_in_json(broker: str, topic: str) -> None:
    table = shape(*MIXED)
    values: dict[str, Scalar] = {
        "i": 2**63 - 1,
        "d": 0.1,
        "n": math.nan,
        "t": "ä😀\x00",
        "b": b"\x00\xff",
        "f": False,
    }
    async with open_sink(broker, topic, table) as sink:
        await sink.apply(batch(put(STAMP, [-1, "k\n", b"\xff"], values, MIXED)))
        [row] = await sink.read_rows(b"", b"", limit=10)
        assert row.columns == sink.convert_columns(values)
        assert row.key_bytes == row_key(MIXED, [-1, "k\n", b"\xff"])[1]
    [record] = await read_records(broker, topic)
    key = {"id": -1, "name": "k\n", "raw": base64.b64encode(b"\xff").decode()}
    assert record.key == key
    assert record.value["after"] == key | {
        **values,
        "n": "NaN",
        "b": base64.b64encode(b"\x00\xff").decode(),
    }


async def test_schemas_name_every_column_and_widen_on_a_clash(broker: str, topic: str) -> None:
    settings = {"format": "json-schemas", "columns": {"declared": "boolean"}}
    steps: list[tuple[Scalar, object]] = [
        (5, 5),
        (0.5, 0.5),
        (7, 7.0),
        (2**60, str(2**60)),
        ("x", "x"),
        (True, "true"),
        (b"\x00", "AA=="),
    ]
    async with open_sink(broker, topic, TABLE, **settings) as sink:
        for at, (value, _) in enumerate(steps[:4]):
            await sink.apply(batch(put(STAMP + at, [at], {"v": value}, sequence=at)))
    # What was learned outlives the process.
    async with open_sink(broker, topic, TABLE, **settings) as sink:
        for at, (value, _) in enumerate(steps):
            await sink.apply(batch(put(STAMP + at, [at], {"v": value}, sequence=at)))
        held = await sink.read_rows(b"", b"", limit=100)
        assert [row.columns for row in held] == [
            sink.convert_columns({"v": value}) for value, _ in steps
        ]
    found = await read_records(broker, topic)
    after = [record.value["payload"]["after"] for record in found]
    assert [(row["v"], row["declared"]) for row in after] == [(text, None) for _, text in steps]
    fields = found[-1].value["schema"]["fields"]
    assert [field["field"] for field in fields] == ["before", "after", "source", "op", "ts_ms"]
    types = {field["field"]: (field["type"], field["optional"]) for field in fields[1]["fields"]}
    assert types == {
        "id": ("int64", False),
        "declared": ("boolean", True),
        "v": ("string", True),
    }
    assert json.dumps(found[0].key["schema"]) == json.dumps(
        {
            "type": "struct",
            "name": "rowtide.things.Key",
            "optional": False,
            "fields": [{"field": "id", "type": "int64", "optional": False}],
        }
    )


async def test_keys_of_bytes_and_text_come_back_in_their_order(broker: str, topic: str) -> None:
    table = shape(KeyColumn("name", STRING), KeyColumn("raw", BINARY))
    keys = [("", b""), ("", b"\x00"), ("a", b""), ("a\x00", b""), ("b", b"\xff")]
    rows = [put(STAMP, key, {}, table.key) for key in reversed(keys)]
    async with open_sink(broker, topic, table) as sink:
        await sink.apply(batch(*rows))
        held = [row.key_bytes for row in await sink.read_rows(b"", b"", limit=10)]
        assert held == [row_key(table.key, key)[1] for key in keys]
        assert await sink.read_rows(held[1], held[3], limit=1) == [
            row for row in await sink.read_rows(b"", b"", limit=10) if row.key_bytes == held[1]
        ]
