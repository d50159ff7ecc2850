"""A topic in Avro: every value as it was, whatever types a column had before."""

from __future__ import annotations

import io
import json
import math

import fastavro
import pytest

from rowtide.connectors.fields import SettingsRefused
from rowtide.connectors.rows import SinkBatch, SinkRow
from rowtide.core.values.errors import Unavailable
from rowtide.core.values.schema import INTEGER, KeyColumn
from rowtide.core.values.variant import Scalar
from tests.connectors.kafka.registry import registry
from tests.connectors.kafka.sinks import kafka_sink, open_sink, records
from tests.connectors.row_histories import MIXED, delete, put, shape

TABLE = shape(KeyColumn("id", INTEGER))
STAMP = 1_700_000_000_000_000


def batch(*rows: SinkRow) -> SinkBatch:
    return SinkBatch("things", "shard-1", rows)


@pytest.mark.kafka
async def test_every_value_comes_back_and_columns_are_known_to_the_next_process(
    broker: str, topic: str
) -> None:
    values: list[Scalar] = [5, 0.5, 2**62, "ä", True, b"\xff", math.inf]
    async with registry() as schemas:
        settings = {"format": "avro", "registry": {"url": schemas.url}}
        for at, value in enumerate(values):
            async with open_sink(broker, topic, shape(*MIXED), **settings) as sink:
                row = put(
                    STAMP + at, [at, "k", b"\x00"], {"v": value, f"c {at}": at}, MIXED, sequence=at
                )
                assert await sink.apply(batch(row)) == []
                held = await sink.read_rows(b"", b"", limit=99)
                assert [row.columns["v"] for row in held] == values[: at + 1]
                assert [type(row.columns["v"]) for row in held] == [
                    type(value) for value in values[: at + 1]
                ]
        latest = json.loads(schemas.schemas[schemas.subjects[f"{topic}-value"][-1] - 1])
        assert len(schemas.subjects[f"{topic}-value"]) == len(values)
        assert len(schemas.subjects[f"{topic}-key"]) == 1
    fields = {field["name"]: field["type"] for field in latest["fields"][0]["type"][1]["fields"]}
    assert fields["v"] == ["null", "long", "double", "string", "boolean", "bytes"]
    assert fields["c_u00200"] == ["null", "long"]
    assert (fields["id"], fields["name"], fields["raw"]) == ("long", "string", "bytes")


@pytest.mark.kafka
async def test_records_are_in_confluents_wire_format_and_old_ones_are_read_by_new_schemas(
    broker: str, topic: str
) -> None:
    async with registry() as schemas:
        settings = {"format": "avro", "registry": {"url": schemas.url}, "columns": {"w": "double"}}
        async with open_sink(broker, topic, TABLE, prefix="p", instance="a-b", **settings) as sink:
            await sink.apply(batch(put(STAMP, [1], {"v": 1}, before={"v": 0}, sequence=1)))
            await sink.apply(batch(put(STAMP + 1, [1], {"v": "x", "new": 1}, sequence=2)))
            await sink.apply(batch(delete(STAMP + 2, [1], sequence=3)))
        found = [entry for _, entry in await records(broker, topic)]
        newest = fastavro.parse_schema(json.loads(schemas.schemas[-1]))
        envelopes = []
        for entry in found[:-1]:
            assert entry.value[0] == 0
            writer = json.loads(schemas.schemas[int.from_bytes(entry.value[1:5]) - 1])
            body = io.BytesIO(entry.value[5:])
            envelopes.append(
                fastavro.schemaless_reader(body, fastavro.parse_schema(writer), newest)
            )
    assert found[-1].value is None
    assert newest["name"] == "p.a_b.things.Envelope"
    assert [(envelope["op"], envelope["before"], envelope["after"]) for envelope in envelopes] == [
        (
            "u",
            {"id": 1, "v": 0, "w": None, "new": None},
            {"id": 1, "v": 1, "w": None, "new": None},
        ),
        ("c", None, {"id": 1, "v": "x", "w": None, "new": 1}),
        ("d", {"id": 1, "v": None, "w": None, "new": None}, None),
    ]
    assert envelopes[0]["source"]["stamp"] == STAMP


@pytest.mark.kafka
async def test_a_registry_that_is_away_is_waited_for(broker: str, topic: str) -> None:
    async with registry() as schemas:
        settings = {"format": "avro", "registry": {"url": schemas.url, "timeout_s": 20}}
        late = kafka_sink(broker, topic, **settings)
        await late.open(TABLE)
    try:
        with pytest.raises(Unavailable, match="schema registry"):
            await late.apply(batch(put(STAMP, [1], {}, sequence=1)))
    finally:
        await late.close()
    with pytest.raises(Unavailable, match="schema registry"):
        async with open_sink(broker, topic, TABLE, **settings):
            pass


@pytest.mark.parametrize(
    "settings",
    [
        {"format": "avro"},
        {"format": "json", "registry": {"url": "http://x"}},
        {"columns": {"a": "decimal"}},
        {"brokers": "nowhere"},
        {"security": {"protocol": "SASL_SSL"}},
        {"security": {"what": "ever"}},
    ],
)
def test_settings_that_mean_nothing_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(SettingsRefused):
        kafka_sink("127.0.0.1:1", "t", **settings)
