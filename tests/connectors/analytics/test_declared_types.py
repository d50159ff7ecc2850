"""Attributes in types that the settings declare: as readers see them, and as ``verify`` does."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder

from rowtide.connectors.fields import Fields, SettingsRefused
from rowtide.connectors.registry import ConnectorContext, make_sink
from rowtide.connectors.rows import SinkBatch
from rowtide.connectors.verify.comparison import row_bytes
from rowtide.core.values.variant import Scalar
from tests.connectors.analytics.facts import KEYS, SHAPE, STAMP_FIRST, State, batch_of, row_of
from tests.connectors.analytics.targets import AnySink

Columns = Mapping[str, Scalar]

DECLARED = {
    "amount": "DECIMAL(10,2)",
    "huge": "DECIMAL(38,10)",
    "born": "DATE",
    "at": "TIMESTAMP",
}
OF_A_DAY = {"noon": "TIME"}
FIT: list[Columns] = [
    {"amount": "1.5", "huge": "-" + "9" * 28 + ".5", "born": "2024-02-29", "other": "1.234"},
    {"amount": 7, "at": "2024-02-29 23:59:59.123456", "noon": "23:59:59.123456"},
    {"amount": 0.1, "at": "2026-02-03 02:05:06+01", "huge": "0.0000000001", "other": 1},
    {"born": "0001-01-01", "at": "0001-01-01T00:00:00Z", "noon": "00:00:00"},
    {"born": "9999-12-31", "at": "9999-12-31 23:59:59.999999", "amount": "-0.00"},
]
UNFIT: list[Columns] = [
    {"amount": "1.234"},
    {"amount": "100000000"},
    {"amount": True},
    {"born": "0000-00-00", "amount": "1.50"},
    {"at": "infinity"},
    {"huge": "0.00000000001"},
]


def settings(kind: str, folder: Path, columns: Mapping[str, str]) -> dict[str, object]:
    place = {"delta": "place", "parquet": "folder"}[kind]
    pace = {"delta": "commit_every_ms", "parquet": "file_every_ms"}[kind]
    return {"kind": kind, place: str(folder / "orders"), pace: 0, "columns": dict(columns)}


def types_of(kind: str) -> dict[str, str]:
    return DECLARED | (OF_A_DAY if kind == "parquet" else {})


def make_declared_sink(
    kind: str, folder: Path, columns: Mapping[str, str] | None = None
) -> AnySink:
    declared = types_of(kind) if columns is None else columns
    fields = Fields(settings(kind, folder, declared), "connectors.x.sink")
    sink = make_sink(fields, ConnectorContext("x", str(folder)))
    fields.refuse_unknown()
    return sink  # type: ignore[return-value]


def read_living_rows(kind: str, folder: Path) -> Any:
    """Return the living rows as any other reader of the format has them, in keys' order."""
    place = str(folder / "orders")
    if kind == "delta":
        found = DeltaTable(place).to_pyarrow_dataset().to_table()
    else:
        files = sorted(Path(place).glob("date=*/*.parquet"))
        every = [pq.read_table(file, partitioning=None) for file in files]
        found = pa.concat_tables(every, promote_options="default")
    living = pc.invert(found["_rowtide_deleted"])
    return found.filter(living).sort_by("_rowtide_key")


async def unequal(sink: AnySink, rows: Mapping[int, Columns]) -> set[int]:
    """Return the rows, by number of their key, that ``verify`` would not call equal."""
    held = {row.key_bytes: row.columns for row in await sink.read_rows(b"", b"", limit=99)}
    keys = {number: row_of(State(KEYS[number], 1, {})).key_bytes for number in rows}
    return {
        number
        for number, columns in rows.items()
        if keys[number] not in held
        or row_bytes(sink.convert_columns(columns)) != row_bytes(held[keys[number]])
    }


def batch(rows: Mapping[int, Columns], at: int = 0) -> SinkBatch:
    return batch_of(*(State(KEYS[number], STAMP_FIRST + at, c) for number, c in rows.items()))


ARROW = {
    "amount": pa.decimal128(10, 2),
    "huge": pa.decimal128(38, 10),
    "born": pa.date32(),
    "noon": pa.time64("us"),
    "at": pa.timestamp("us", "UTC"),
    "other": pa.string(),
}


@pytest.mark.parametrize("kind", ["parquet", "delta"])
async def test_declared_attributes_have_their_types_and_every_value(
    kind: str, tmp_path: Path
) -> None:
    rows = dict(enumerate(FIT))
    for _ in range(2):  # The second time the columns are there.
        sink = make_declared_sink(kind, tmp_path)
        await sink.open(SHAPE)
        assert await sink.apply(batch(rows)) == []
        assert await unequal(sink, rows) == set()
        changed = {**FIT[0], "amount": "1.51"}
        assert await unequal(sink, {**rows, 0: changed}) == {0}
        await sink.close()
    found = read_living_rows(kind, tmp_path)
    types = {name: ARROW[name] for name in (*types_of(kind), "other")}
    assert {name: found.schema.field(name).type for name in types} == types
    assert found["amount"].to_pylist()[:3] == [Decimal("1.50"), Decimal("7.00"), Decimal("0.10")]
    assert found["huge"].to_pylist()[0] == Decimal("-" + "9" * 28 + ".5")
    assert found["born"].to_pylist()[3:] == [date(1, 1, 1), date(9999, 12, 31)]
    assert found["at"].to_pylist()[1:4] == [
        datetime(2024, 2, 29, 23, 59, 59, 123456, UTC),
        datetime(2026, 2, 3, 1, 5, 6, tzinfo=UTC),
        datetime(1, 1, 1, tzinfo=UTC),
    ]
    if kind == "parquet":
        assert found["noon"].to_pylist()[1] == time(23, 59, 59, 123456)


@pytest.mark.parametrize("kind", ["parquet", "delta"])
async def test_a_row_that_does_not_fit_is_refused_and_others_are_not(
    kind: str, tmp_path: Path
) -> None:
    sink = make_declared_sink(kind, tmp_path)
    await sink.open(SHAPE)
    for at, columns in enumerate(UNFIT):
        rows: dict[int, Columns] = {0: FIT[0], 1: columns, 2: FIT[2]}
        delivered = batch(rows, at)
        (refused,) = await sink.apply(delivered)
        assert refused.row is delivered.rows[1]
        assert "does not fit" in refused.reason
        assert repr(next(iter(columns))) in refused.reason
        assert await unequal(sink, rows) == {1}
    # A later state of the same row is taken.
    assert await sink.apply(batch({1: {"amount": "1.23"}}, 99)) == []
    assert await unequal(sink, {1: {"amount": "1.23"}}) == set()
    await sink.close()


@pytest.mark.parametrize("kind", ["parquet", "delta"])
async def test_a_type_that_is_declared_later_stands_beside_what_was_there(
    kind: str, tmp_path: Path
) -> None:
    older: dict[int, Columns] = {0: {"amount": "1.5", "born": "never"}, 1: {"amount": 7}}
    newer: dict[int, Columns] = {2: {"amount": "2.5"}, 3: {"amount": 3}}
    sink = make_declared_sink(kind, tmp_path, {})
    await sink.open(SHAPE)
    assert await sink.apply(batch(older)) == []
    await sink.close()
    for precision in (10, 12):
        types = {"amount": f"DECIMAL({precision},2)", "born": "DATE"}
        sink = make_declared_sink(kind, tmp_path, types)
        await sink.open(SHAPE)
        assert await sink.apply(batch(newer, precision)) == []
        assert await unequal(sink, older | newer) == set()
        await sink.close()
    found = read_living_rows(kind, tmp_path)
    assert found.schema.field("amount").type == pa.string()
    assert found.schema.field("amount__decimal_10_2").type == pa.decimal128(10, 2)
    assert found.schema.field("amount__decimal_12_2").type == pa.decimal128(12, 2)


async def test_rows_that_come_again_as_of_their_stamps_have_the_types_of_now(
    tmp_path: Path,
) -> None:
    rows: dict[int, Columns] = {0: {"amount": "1.5"}, 1: {"amount": 7}, 2: {"amount": "x"}}
    for types in ({}, {"amount": "DECIMAL(10,2)"}):
        sink = make_declared_sink("delta", tmp_path, types)
        await sink.open(SHAPE)
        refused = await sink.apply(batch(rows))
        assert [refusal.row.key for refusal in refused] == [KEYS[2]] * len(types)
        assert await unequal(sink, rows) == set()
        await sink.close()
    found = read_living_rows("delta", tmp_path)
    assert found["amount__decimal_10_2"].to_pylist() == [Decimal("1.50"), Decimal("7.00"), None]
    assert found["amount"].to_pylist() == [None, None, "x"]
    assert found["amount__integer"].to_pylist() == [None, None, None]


@pytest.mark.parametrize("kind", ["parquet", "delta"])
async def test_a_key_column_has_no_type_of_its_own(kind: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsRefused, match="`columns` has Number, of the key of Orders"):
        await make_declared_sink(kind, tmp_path, {"Number": "DECIMAL(10,2)"}).open(SHAPE)


@pytest.mark.parametrize(
    ("kind", "text"), [("parquet", "DATETIME64(3)"), ("delta", "TIME"), ("delta", "DATE32")]
)
def test_a_type_that_the_format_lacks_is_refused(kind: str, text: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsRefused, match=r"columns\.v must be one of DECIMAL\(10,2\), DATE"):
        make_declared_sink(kind, tmp_path, {"v": text})


async def test_the_query_beside_parquet_files_gives_the_declared_types(tmp_path: Path) -> None:
    sink = make_declared_sink("parquet", tmp_path)
    await sink.open(SHAPE)
    await sink.apply(batch(dict(enumerate(FIT))))
    await sink.close()
    newest = (tmp_path / "orders" / "newest.sql").read_text().rstrip().rstrip(";")
    with duckdb.connect() as connection:
        found = connection.sql(f"FROM ({newest})")
        types = dict(zip(found.columns, map(str, found.types), strict=True))
        total = connection.execute(f"SELECT sum(amount) FROM ({newest})").fetchone()
    assert [types[name] for name in ("amount", "born", "noon", "at")] == [
        "DECIMAL(10,2)",
        "DATE",
        "TIME",
        "TIMESTAMP WITH TIME ZONE",
    ]
    assert total == (Decimal("8.60"),)


async def test_a_delta_table_of_declared_types_is_compacted_and_snapshots_end_rows(
    tmp_path: Path,
) -> None:
    fields = settings("delta", tmp_path, DECLARED) | {"compact_every": 2}
    sink: AnySink = make_sink(  # type: ignore[assignment]
        Fields(fields, "sink"), ConnectorContext("x", str(tmp_path))
    )
    await sink.open(SHAPE)
    for at, columns in enumerate(FIT):
        assert (
            await sink.apply(batch({at: {n: v for n, v in columns.items() if n != "noon"}})) == []
        )
    page = batch({0: {"amount": "9.99"}}, 5)
    page.covers, page.stamp = (b"", b""), STAMP_FIRST + 5
    assert await sink.apply(page) == []
    assert [row.columns for row in await sink.read_rows(b"", b"", limit=9)] == [{"amount": "9.99"}]
    await sink.close()
    engine = QueryBuilder().register("orders", DeltaTable(tmp_path / "orders"))
    query = "SELECT sum(amount) AS total FROM orders WHERE NOT _rowtide_deleted"
    assert pa.table(engine.execute(query))["total"].to_pylist() == [Decimal("9.99")]
