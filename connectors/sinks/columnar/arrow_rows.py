"""Rows as Arrow tables and back, for DuckDB, Delta and Parquet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from rowtide.connectors.declared_types import plain_value, type_of_kind
from rowtide.connectors.rows import SinkRow, TableShape
from rowtide.connectors.sinks.columnar.layout import Cells, Kind, Layout
from rowtide.connectors.sinks.sink import HeldRow
from rowtide.core.values import schema

__all__ = ["DELETED", "KEY", "STAMP", "arrow_rows", "key_types", "read_arrow_rows", "type_of"]

KEY = "_rowtide_key"
STAMP = "_rowtide_stamp"
DELETED = "_rowtide_deleted"

_TYPES: Mapping[Kind, Any] = {
    "integer": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "text": pa.string(),
    "binary": pa.binary(),
}
_LOGICAL_TYPES: Mapping[str, Any] = {
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us", "UTC"),
}
_KEY_TYPES = {schema.INTEGER: pa.int64(), schema.STRING: pa.string(), schema.BINARY: pa.binary()}


def type_of(kind: Kind) -> Any:
    """Return the Arrow type of a kind of values."""
    declared = type_of_kind(kind)
    if declared is None:
        return _TYPES[kind]
    if declared.word == "decimal":
        return pa.decimal128(declared.precision, declared.scale)
    return _LOGICAL_TYPES[declared.word]


def key_types(table: TableShape) -> list[Any]:
    """Return the Arrow types of a table's key columns."""
    return [_KEY_TYPES[column.type] for column in table.key]


def arrow_rows(rows: Sequence[SinkRow], cells: Cells, layout: Layout, table: TableShape) -> Any:
    """Return rows as a table: our own columns, those of the key, and the attributes."""
    columns: dict[str, Any] = {
        KEY: pa.array([row.key_bytes for row in rows], pa.binary()),
        STAMP: pa.array([row.stamp for row in rows], pa.int64()),
        DELETED: pa.array([row.columns is None for row in rows], pa.bool_()),
    }
    for place, (name, kind) in enumerate(zip(layout.keys, key_types(table), strict=True)):
        columns[name] = pa.array([row.key[place][1] for row in rows], kind)
    for seen, values in cells.items():
        column = layout.find(seen)
        assert column is not None, "columns are made before they are written"
        columns[column.place] = pa.array(values, type_of(column.kind))
    return pa.table(columns)


def read_arrow_rows(found: Any, layout: Layout) -> list[HeldRow]:
    """Return the rows read from a target, in their order."""
    places = set(found.column_names)
    columns = [
        (column.name, found[column.place].to_pylist())
        for column in layout
        if column.place in places
    ]
    keys, stamps = found[KEY].to_pylist(), found[STAMP].to_pylist()
    return [
        HeldRow(
            key,
            stamps[place],
            {
                name: value
                for name, values in columns
                if (value := plain_value(values[place])) is not None
            },
        )
        for place, key in enumerate(keys)
    ]
