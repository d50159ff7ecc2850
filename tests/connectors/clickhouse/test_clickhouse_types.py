"""Attributes in ClickHouse's types: as people see them, and as ``verify`` does."""

from __future__ import annotations

import secrets
from collections.abc import Mapping

import pytest

from demo.servers.clickhouse import Clickhouse
from rowtide.connectors.declared_types import LogicalType, type_of_kind
from rowtide.connectors.fields import Fields, SettingsRefused
from rowtide.connectors.registry import ConnectorContext, make_sink
from rowtide.connectors.rows import SinkBatch
from rowtide.connectors.sinks.clickhouse.sink import ClickhouseSink
from rowtide.connectors.sinks.clickhouse.stored_types import decode_value, encode_values
from rowtide.connectors.sinks.columnar.layout import TargetColumn
from rowtide.connectors.verify.comparison import row_bytes
from rowtide.core.values.variant import Scalar
from tests.connectors.analytics.facts import KEYS, SHAPE, STAMP_FIRST, State, batch_of, row_of

Columns = Mapping[str, Scalar]

DECLARED = {
    "small": "Decimal(4, 2)",
    "amount": "Decimal(10,2)",
    "huge": "DECIMAL(38,10)",
    "born": "Date",
    "at": "DateTime",
}
FIT: list[Columns] = [
    {"small": "-99.99", "amount": "1.5", "huge": "-" + "9" * 28 + ".5", "other": "1.234"},
    {"small": 7, "at": "2024-02-29 23:59:59", "born": "1970-01-02"},
    {"amount": 0.1, "at": "2026-02-03 02:05:06+01", "huge": "0.0000000001", "other": 1},
    {"born": "2105-12-31", "at": "1970-01-02T00:00:00Z", "amount": "-99999999.99"},
]
UNFIT: list[Columns] = [
    {"amount": "1.234"},
    {"amount": "100000000"},
    {"small": "100"},
    {"born": "1969-12-31"},
    {"at": "2024-01-01 00:00:00.5"},
    {"huge": "never", "amount": "1.50"},
]


def make_declared_sink(
    url: str, view: str, columns: Mapping[str, str] = DECLARED
) -> ClickhouseSink:
    given = {"kind": "clickhouse", "url": url, "view": view, "columns": dict(columns)}
    fields = Fields(given, "connectors.x.sink")
    sink = make_sink(fields, ConnectorContext("x", "/nowhere"))
    fields.refuse_unknown()
    assert isinstance(sink, ClickhouseSink)
    return sink


def batch(rows: Mapping[int, Columns], at: int = 0) -> SinkBatch:
    return batch_of(*(State(KEYS[number], STAMP_FIRST + at, c) for number, c in rows.items()))


async def unequal(sink: ClickhouseSink, rows: Mapping[int, Columns]) -> set[int]:
    """Return the rows, by number of their key, that ``verify`` would not call equal."""
    held = {row.key_bytes: row.columns for row in await sink.read_rows(b"", b"", limit=99)}
    keys = {number: row_of(State(KEYS[number], 1, {})).key_bytes for number in rows}
    return {
        number
        for number, columns in rows.items()
        if keys[number] not in held
        or row_bytes(sink.convert_columns(columns)) != row_bytes(held[keys[number]])
    }


@pytest.fixture
def view() -> str:
    return f"t_{secrets.token_hex(4)}"


@pytest.mark.system
async def test_declared_attributes_have_their_types_and_every_value(
    clickhouse: Clickhouse, view: str
) -> None:
    rows = dict(enumerate(FIT))
    for _ in range(2):  # The second time the columns are there.
        sink = make_declared_sink(clickhouse.url, view)
        await sink.open(SHAPE)
        assert await sink.apply(batch(rows)) == []
        assert await unequal(sink, rows) == set()
        assert await unequal(sink, {**rows, 0: {**FIT[0], "amount": "1.51"}}) == {0}
        await sink.close()
    described = clickhouse.ask(f"DESCRIBE TABLE {view} FORMAT TabSeparatedRaw").splitlines()
    types = dict(line.split("\t")[:2] for line in described)
    assert {name: types[name] for name in DECLARED} == {
        "small": "Nullable(Decimal(4, 2))",
        "amount": "Nullable(Decimal(10, 2))",
        "huge": "Nullable(Decimal(38, 10))",
        "born": "Nullable(Date)",
        "at": "Nullable(DateTime('UTC'))",
    }
    shown = clickhouse.ask(
        f"SELECT small, amount, huge, born, at FROM {view} ORDER BY customer, Number"
    )
    nines = "-" + "9" * 28 + ".5000000000"
    assert [line.split("\t") for line in shown.splitlines()] == [
        ["-99.99", "1.50", nines, "\\N", "\\N"],
        ["7.00", "\\N", "\\N", "1970-01-02", "2024-02-29 23:59:59"],
        ["\\N", "0.10", "0.0000000001", "\\N", "2026-02-03 01:05:06"],
        ["\\N", "-99999999.99", "\\N", "2105-12-31", "1970-01-02 00:00:00"],
    ]
    assert clickhouse.ask(f"SELECT sum(amount) FROM {view}").strip() == "-99999998.39"


@pytest.mark.system
async def test_a_row_that_does_not_fit_is_refused_and_others_are_not(
    clickhouse: Clickhouse, view: str
) -> None:
    sink = make_declared_sink(clickhouse.url, view)
    await sink.open(SHAPE)
    for at, columns in enumerate(UNFIT):
        rows: dict[int, Columns] = {0: FIT[0], 1: columns, 2: FIT[2]}
        delivered = batch(rows, at)
        (refused,) = await sink.apply(delivered)
        assert refused.row is delivered.rows[1]
        assert f"gives {next(iter(columns))!r} a type that " in refused.reason
        assert await unequal(sink, rows) == {1}
    # A later state of the same row is taken.
    assert await sink.apply(batch({1: {"amount": "1.23"}}, 99)) == []
    assert await unequal(sink, {1: {"amount": "1.23"}}) == set()
    await sink.close()


@pytest.mark.system
async def test_a_type_that_is_declared_later_stands_beside_what_was_there(
    clickhouse: Clickhouse, view: str
) -> None:
    older: dict[int, Columns] = {0: {"amount": "1.5", "born": "never"}, 1: {"amount": 7}}
    newer: dict[int, Columns] = {2: {"amount": "2.5"}, 3: {"amount": 3}}
    sink = make_declared_sink(clickhouse.url, view, {})
    await sink.open(SHAPE)
    assert await sink.apply(batch(older)) == []
    await sink.close()
    for precision in (10, 20):
        sink = make_declared_sink(
            clickhouse.url, view, {"amount": f"Decimal({precision},2)", "born": "Date"}
        )
        await sink.open(SHAPE)
        assert await sink.apply(batch(newer, precision)) == []
        assert await unequal(sink, older | newer) == set()
        await sink.close()
    # No value is left out of the view: of an attribute of several kinds it shows texts.
    seen = clickhouse.ask(f"SELECT amount FROM {view}").split()
    assert {float(value) for value in seen} == {1.5, 7.0, 2.5, 3.0}
    # Once all rows are written again, the older columns may be dropped.
    sink = make_declared_sink(clickhouse.url, view, {"amount": "Decimal(20,2)", "born": "Date"})
    await sink.open(SHAPE)
    rewound = batch({0: {"amount": "1.5"}, 1: {"amount": 7}, 2: newer[2], 3: newer[3]}, 99)
    assert await sink.apply(rewound) == []
    await sink.close()
    for place in ("amount__text", "amount__integer", "amount__decimal_10_2"):
        clickhouse.ask(f"ALTER TABLE {view}__rows DROP COLUMN {place}")
    await sink.open(SHAPE)
    assert await unequal(sink, {0: {"amount": 1.5}, 1: {"amount": "7"}}) == set()
    await sink.close()
    assert clickhouse.ask(f"SELECT sum(amount) FROM {view}").strip() == "14.00"


@pytest.mark.system
async def test_a_type_that_the_server_lacks_is_refused_before_a_table_is_made(
    clickhouse: Clickhouse, view: str
) -> None:
    with pytest.raises(SettingsRefused, match="`columns` has Number, of the key of Orders"):
        await make_declared_sink(clickhouse.url, view, {"Number": "Decimal(10,2)"}).open(SHAPE)
    has_type = clickhouse.ask(
        "SELECT count() FROM system.data_type_families WHERE name = 'DateTime64'"
    )
    sink = make_declared_sink(clickhouse.url, view, {"at": "DateTime64(3)"})
    if has_type.strip() == "0":
        with pytest.raises(SettingsRefused, match=r"declares DateTime64\(3, 'UTC'\) for 'at', but"):
            await sink.open(SHAPE)
        assert view not in clickhouse.ask("SHOW TABLES")
    else:
        await sink.open(SHAPE)
    await sink.close()


@pytest.mark.parametrize(
    "text", ["TIMESTAMP", "Time", "Decimal(39,2)", "DateTime64", "DateTime64(9)"]
)
def test_what_is_no_type_of_the_sink_is_refused(text: str) -> None:
    with pytest.raises(SettingsRefused, match=r"columns\.v must be one of DECIMAL\(10,2\), DATE"):
        make_declared_sink("http://127.0.0.1:1", "t", {"v": text})


STORED = """
kind           value                         integer
decimal_4_2    -99.99                        -9999
decimal_38_0   99999999999999999999999999999999999999  99999999999999999999999999999999999999
decimal_38_38  0.00000000000000000000000000000000000001  1
date16         2105-12-31                    49672
date32         1900-01-01                    -25567
date32         2299-12-31                    120529
datetime32     2105-12-31T23:59:59           4291747199
datetime64_0   1900-01-01T00:00:00           -2208988800
datetime64_3   1969-12-31T23:59:59.999       -1
datetime64_6   2299-12-31T23:59:59.999999    10413791999999999
"""


@pytest.mark.parametrize("line", STORED.strip().splitlines()[1:])
def test_a_value_is_stored_as_an_integer_and_read_back(line: str) -> None:
    kind, value, integer = line.split()
    declared = type_of_kind(kind)
    assert isinstance(declared, LogicalType)
    converted = declared.convert(value)
    assert encode_values(("v", declared), [converted, None]) == [int(integer), None]
    held = decode_value(TargetColumn("v", kind, "v"), int(integer))
    assert isinstance(held, str)
    assert declared.convert(held) == converted
