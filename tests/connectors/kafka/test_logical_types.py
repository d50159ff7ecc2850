"""Attributes in logical types that the settings declare: as readers see them, and ``verify``."""

from __future__ import annotations

import io
import json
from base64 import b64encode
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import avro.schema
import fastavro
import pytest

from rowtide.connectors.declared_types import LogicalType, plain_value
from rowtide.connectors.fields import SettingsRefused
from rowtide.connectors.rows import SinkBatch, SinkRow
from rowtide.connectors.sinks.kafka.logical_schemas import (
    avro_branch,
    avro_kind,
    connect_payload,
    connect_schema,
    connect_value,
)
from rowtide.connectors.sinks.kafka.sink import KafkaSink
from rowtide.connectors.verify.comparison import row_bytes
from rowtide.core.records.change import ROW
from rowtide.core.values.schema import INTEGER, KeyColumn
from rowtide.core.values.variant import Scalar
from tests.connectors.kafka.registry import Registry, registry
from tests.connectors.kafka.sinks import kafka_sink, open_sink, records
from tests.connectors.row_histories import delete, put, shape

Columns = Mapping[str, Scalar]

TABLE = shape(KeyColumn("id", INTEGER))
STAMP = 1_700_000_000_000_000
FORMS = ("json-schemas", "avro")
DECLARED = {
    "amount": "DECIMAL(10,2)",
    "huge": "decimal(38,10)",
    "day": "DATE",
    "at": "TIMESTAMP",
    "t": "TIME",
}
FIT: list[Columns] = [
    {"amount": "1.5", "huge": "-" + "9" * 28 + ".5", "day": "2024-02-29", "other": "1.234"},
    {"amount": 7, "at": "2024-02-29 23:59:59.123456", "t": "23:59:59.123456"},
    {"amount": 0.1, "at": "2026-02-03 02:05:06+01", "huge": "0.0000000001", "other": 1},
    {"day": "0001-01-01", "at": "0001-01-01T00:00:00Z", "t": "00:00:00"},
    {"day": "9999-12-31", "at": "9999-12-31 23:59:59.999999", "amount": "-0.00"},
    {"other": b"\xff"},
]
UNFIT: list[Columns] = [
    {"amount": "1.234"},
    {"amount": "100000000"},
    {"amount": True},
    {"amount": b"\x01"},
    {"day": "0000-00-00", "amount": "1.50"},
    {"at": "infinity"},
    {"at": 1},
    {"t": "24:00:00"},
    {"huge": "0.00000000001"},
]


class Place:
    """A topic, and the registry of one in Avro."""

    def __init__(self, broker: str, topic: str, form: str, schemas: Registry) -> None:
        self.form = form
        self._broker, self._topic, self._schemas = broker, topic, schemas

    @asynccontextmanager
    async def open_sink(
        self, columns: Mapping[str, str], **more: object
    ) -> AsyncIterator[KafkaSink]:
        where = {"registry": {"url": self._schemas.url}} if self.form == "avro" else {}
        settings = {"format": self.form, "columns": dict(columns), **where, **more}
        async with open_sink(self._broker, self._topic, TABLE, **settings) as sink:
            yield sink

    async def envelopes(self) -> list[Any]:
        """Return the topic's values without tombstones, as a reader of the form has them."""
        entries = [entry.value for _, entry in await records(self._broker, self._topic)]
        values = [value for value in entries if value is not None]
        if self.form != "avro":
            return [json.loads(value)["payload"] for value in values]
        return [
            fastavro.schemaless_reader(
                io.BytesIO(value[5:]),
                fastavro.parse_schema(
                    json.loads(self._schemas.schemas[int.from_bytes(value[1:5]) - 1])
                ),
                None,
            )
            for value in values
        ]

    async def fields(self) -> dict[str, Any]:
        """Return the row's fields by name, as the last message's schema has them."""
        if self.form == "avro":
            row = json.loads(self._schemas.schemas[-1])["fields"][0]["type"][1]
            return {field["name"]: field["type"] for field in row["fields"]}
        [*_, (_, last)] = await records(self._broker, self._topic)
        after = json.loads(last.value)["schema"]["fields"][1]
        return {field["field"]: field for field in after["fields"]}


@pytest.fixture(params=FORMS)
async def place(request: pytest.FixtureRequest, broker: str, topic: str) -> AsyncIterator[Place]:
    async with registry() as schemas:
        yield Place(broker, topic, request.param, schemas)


def batch(*rows: SinkRow) -> SinkBatch:
    return SinkBatch("things", "shard-1", rows)


def number_rows(rows: Sequence[Columns], first: int = 1) -> list[SinkRow]:
    """Return a row of each, with a key and a sequence of its own."""
    return [
        put(STAMP + at, [at], columns, sequence=at) for at, columns in enumerate(rows, start=first)
    ]


async def unequal(sink: KafkaSink, rows: Sequence[SinkRow]) -> list[int]:
    """Return the keys of rows that ``verify`` would not call equal."""
    held = {row.key_bytes: row.columns for row in await sink.read_rows(b"", b"", limit=99)}
    return [
        int(str(row.key[0][1]))
        for row in rows
        if row.columns is not None
        and (
            row.key_bytes not in held
            or row_bytes(sink.convert_columns(row.columns)) != row_bytes(held[row.key_bytes])
        )
    ]


SEEN: dict[str, list[dict[str, object]]] = {
    "json-schemas": [
        {"amount": b64encode(b"\x00\x96").decode(), "day": 19782},
        {"amount": b64encode(b"\x02\xbc").decode(), "at": 1709251199123456, "t": 86399123456},
        {"amount": b64encode(b"\x0a").decode(), "at": 1770080706000000},
        {"day": -719162, "at": -62135596800000000, "t": 0},
        {"day": 2932896, "at": 253402300799999999, "amount": b64encode(b"\x00").decode()},
    ],
    "avro": [
        {"amount": Decimal("1.50"), "day": date(2024, 2, 29)},
        {"amount": Decimal("7.00"), "t": time(23, 59, 59, 123456)},
        {"amount": Decimal("0.10"), "at": datetime(2026, 2, 3, 1, 5, 6, tzinfo=UTC)},
        {"day": date(1, 1, 1), "at": datetime(1, 1, 1, tzinfo=UTC), "t": time()},
        {"day": date(9999, 12, 31), "amount": Decimal("0.00")},
    ],
}


@pytest.mark.kafka
async def test_values_have_their_types_and_verify_finds_them_equal(place: Place) -> None:
    rows = number_rows(FIT)
    async with place.open_sink(DECLARED) as sink:
        assert await sink.apply(batch(*rows)) == []
        assert await unequal(sink, rows) == []
        # A text of the same value is equal, another is not.
        [first] = number_rows([{**FIT[0], "amount": "1.500"}])
        [other] = number_rows([{**FIT[0], "amount": "1.51"}])
        assert await unequal(sink, [first]) == []
        assert await unequal(sink, [other]) == [1]
    async with place.open_sink(DECLARED) as sink:
        assert await unequal(sink, rows) == []
    values = [envelope["after"] for envelope in await place.envelopes()]
    for wanted, after in zip(SEEN[place.form], values, strict=False):
        assert {name: after[name] for name in wanted} == wanted
    assert values[5]["amount"] is None


@pytest.mark.kafka
async def test_schemas_name_the_types(place: Place) -> None:
    async with place.open_sink(DECLARED) as sink:
        await sink.apply(batch(*number_rows([{}])))
    fields = await place.fields()
    for name, declared in {
        "amount": LogicalType("decimal", 10, 2),
        "huge": LogicalType("decimal", 38, 10),
        "day": LogicalType("date"),
        "t": LogicalType("time"),
        "at": LogicalType("timestamp"),
    }.items():
        if place.form == "avro":
            assert fields[name] == ["null", avro_branch(declared)]
        else:
            assert fields[name] == {"field": name, "optional": True} | connect_schema(declared)


@pytest.mark.kafka
async def test_rows_that_do_not_fit_are_refused_with_what_is_behind_them(place: Place) -> None:
    fit = number_rows(FIT, first=20)
    unfit = number_rows(UNFIT)
    behind = put(STAMP + 30, [1], {"amount": "2"}, sequence=30)
    whole = batch(*unfit, *fit, behind)
    async with place.open_sink(DECLARED) as sink:
        for _ in range(2):  # The same batch again refuses the same.
            refused = await sink.apply(whole)
            assert [refusal.row for refusal in refused] == [*unfit, behind]
            assert "`columns` gives 'amount' a type that '1.234' does not fit" in refused[0].reason
            assert refused[-1].reason.startswith("behind a refused row of its key")
        assert await unequal(sink, [*fit, *unfit]) == [*range(1, len(UNFIT) + 1)]
    assert len(await place.envelopes()) == len(fit)
    fields = await place.fields()
    amount = fields["amount"]
    assert (amount if place.form == "avro" else [amount["type"]])[-1] != "string"


@pytest.mark.kafka
async def test_a_refused_row_is_the_first_of_its_key_whatever_it_is_refused_for(
    place: Place,
) -> None:
    large = put(STAMP + 1, [1], {"text": "x" * (17 << 20)}, sequence=1)
    unfit = put(STAMP + 2, [1], {"amount": "no"}, sequence=2)
    async with place.open_sink(DECLARED) as sink:
        for _ in range(2):
            refused = await sink.apply(batch(large, unfit))
            assert [refusal.row for refusal in refused] == [large, unfit]


@pytest.mark.kafka
async def test_what_does_not_fit_is_null_before_an_update_that_does(place: Place) -> None:
    was: Columns = {"amount": "1.234", "day": "2024-02-29", "at": 5}
    update = put(STAMP + 1, [1], {"amount": "1.23"}, before=was, sequence=1)
    gone = delete(STAMP + 2, [1], sequence=2)
    gone.before = was
    async with place.open_sink(DECLARED) as sink:
        assert await sink.apply(batch(update)) == []
        assert await unequal(sink, [update]) == []
        assert await sink.apply(batch(gone)) == []
    day = date(2024, 2, 29) if place.form == "avro" else 19782
    before = {"id": 1, "amount": None, "huge": None, "day": day, "at": None, "t": None}
    changes = [(envelope["op"], envelope["before"]) for envelope in await place.envelopes()]
    assert changes == [("u", before), ("d", before)]


@pytest.mark.kafka
async def test_a_type_may_be_declared_later_and_taken_away(place: Place) -> None:
    rows = number_rows([{"amount": "1.5"}, {"amount": "1.50"}, {"amount": "1.51"}])
    async with place.open_sink({}) as sink:
        assert await sink.apply(batch(rows[0])) == []
    async with place.open_sink({"amount": "DECIMAL(10,2)"}) as sink:
        assert await sink.apply(batch(rows[1])) == []
        assert await unequal(sink, rows[:2]) == []
    fields = await place.fields()
    decimal = LogicalType("decimal", 10, 2)
    if place.form == "avro":
        assert fields["amount"] == ["null", "string", avro_branch(decimal)]
    else:
        assert fields["amount"]["type"] == "bytes"
    async with place.open_sink({}) as sink:
        assert await sink.apply(batch(rows[2])) == []
        assert await unequal(sink, rows) == []
        other = put(STAMP + 9, [9], {"amount": b"\x01"}, sequence=9)
        refused = [refusal.reason for refusal in await sink.apply(batch(other))]
        late = put(STAMP + 10, [9], {"amount": "2"}, before={"amount": b"\x01"}, sequence=10)
        if place.form == "avro":
            assert refused == [
                "The Avro field of 'amount' can't take a value of the type binary: "
                "its union has string, decimal_10_2."
            ]
        else:
            assert refused == []
        late.sequence = -1  # As a parked row comes again.
        assert await sink.apply(batch(late)) == []
        assert await unequal(sink, [late]) == []
    envelopes = await place.envelopes()
    assert [envelope["after"]["amount"] for envelope in envelopes[:3:2]] == ["1.5", "1.51"]


CLASHES: list[tuple[Scalar, dict[str, str], dict[str, str], str]] = [
    (b"\x01", {}, {"v": "DECIMAL(10,2)"}, "has the type binary"),
    (1, {}, {"v": "TIMESTAMP"}, "has the type integer"),
    (1, {}, {"v": "TIME"}, "has the type integer"),
    ("1", {"v": "DECIMAL(10,2)"}, {"v": "DECIMAL(12,2)"}, "has the type decimal_10_2"),
    ("01:02:03", {"v": "TIME"}, {"v": "TIMESTAMP"}, "has the type time"),
    ("1", {"v": "DECIMAL(10,2)"}, {"v": "binary"}, "has the type decimal_10_2"),
    ("01:02:03", {"v": "TIME"}, {"v": "integer"}, "has the type time"),
    (1, {"w": "integer"}, {"v": "DECIMAL(10,2)"}, ""),
    (1, {}, {"v": "DECIMAL(10,2)"}, ""),
    ("2024-02-29", {"v": "DATE"}, {"v": "TIMESTAMP"}, ""),
    (1, {}, {"v": "DATE"}, ""),
]


@pytest.mark.kafka
@pytest.mark.parametrize(("value", "earlier", "later", "refused"), CLASHES)
async def test_types_that_one_union_cannot_have_are_refused_when_the_sink_opens(
    place: Place, value: Scalar, earlier: dict[str, str], later: dict[str, str], refused: str
) -> None:
    async with place.open_sink(earlier) as sink:
        assert await sink.apply(batch(*number_rows([{"v": value}]))) == []
    if refused and place.form == "avro":
        with pytest.raises(SettingsRefused, match=refused):
            async with place.open_sink(later):
                pass
        return
    async with place.open_sink(later) as sink:
        row = put(STAMP + 2, [2], {}, sequence=2)
        assert await sink.apply(batch(row)) == []
        assert await unequal(sink, [row]) == []


@pytest.mark.kafka
async def test_a_page_of_a_snapshot_refuses_rows_too(place: Place) -> None:
    first, second = number_rows([{"amount": "1"}, {"amount": "x"}])
    for row in (first, second):
        row.kind, row.sequence = ROW, -1
    page = SinkBatch("things", "shard-1", [first, second], (b"", b""), STAMP)
    async with place.open_sink(DECLARED) as sink:
        for _ in range(2):
            assert [refusal.row for refusal in await sink.apply(page)] == [second]
        assert len(await sink.read_rows(b"", b"", limit=9)) == 1


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"columns": {"a": "DECIMAL(10,2)"}}, "the format json lacks"),
        ({"columns": {"a": "DATE"}}, "the format json lacks"),
        ({"format": "json-schemas", "columns": {"a": "DECIMAL"}}, "must be one of"),
        ({"format": "json-schemas", "columns": {"a": "DECIMAL(39,2)"}}, "must be one of"),
        ({"format": "json-schemas", "columns": {"a": "TIMESTAMP(3)"}}, "must be one of"),
        ({"format": "json-schemas", "columns": {"a": "money"}}, "must be one of"),
        ({"format": "json-schemas", "columns": {"a": 1}}, "must be a text"),
    ],
)
def test_settings_that_mean_nothing_are_refused(settings: dict[str, object], reason: str) -> None:
    with pytest.raises(SettingsRefused, match=reason):
        kafka_sink("127.0.0.1:1", "t", **settings)


@pytest.mark.kafka
async def test_a_key_column_has_no_logical_type(place: Place) -> None:
    with pytest.raises(SettingsRefused, match="of the key of things"):
        async with place.open_sink({"id": "DECIMAL(10,2)"}):
            pass


@pytest.mark.parametrize(
    ("unscaled", "encoded"),
    [
        *((0, b"\x00"), (1, b"\x01"), (127, b"\x7f"), (128, b"\x00\x80"), (255, b"\x00\xff")),
        *((-1, b"\xff"), (-128, b"\x80"), (-129, b"\xff\x7f"), (-256, b"\xff\x00")),
        (10**38 - 1, (10**38 - 1).to_bytes(16, signed=True)),
    ],
)
def test_a_decimal_is_encoded_as_javas_biginteger(unscaled: int, encoded: bytes) -> None:
    declared = LogicalType("decimal", 38, 2)
    value = declared.convert(f"{unscaled}e-2")
    assert connect_payload(value) == b64encode(encoded).decode()
    read = connect_value(connect_schema(declared), connect_payload(value))
    assert read == plain_value(value)


@pytest.mark.parametrize("word", ["date", "time", "timestamp", "decimal"])
def test_types_are_read_back_from_schemas_that_avros_own_package_takes(word: str) -> None:
    scale = 6 if word in ("time", "timestamp") else 3 if word == "decimal" else 0
    declared = LogicalType(word, 9 if word == "decimal" else 0, scale)
    branch = avro_branch(declared)
    assert avro_kind(branch) == declared.kind
    schema = avro.schema.parse(json.dumps(branch))
    assert type(schema).__name__ in {
        *("BytesDecimalSchema", "DateSchema", "TimeMicrosSchema", "TimestampMicrosSchema"),
    }
