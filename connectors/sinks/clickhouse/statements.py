"""The SQL of the ClickHouse sink, valid in every version since 18.16. Pure text.

Bytes are written as ``unhex('...')``, and names consist of letters, digits and
underscores. So nothing depends on how a version escapes quoted text.

There are no transactions, so two processes may meet a new attribute at the same time.
Therefore the columns of NAME__rows are named by attribute and kind alone (``NAMING``).
NAME__columns stores what each holds, the same from any process. People use the view.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from urllib.parse import quote

from rowtide.connectors.declared_types import LogicalType, type_of_kind
from rowtide.connectors.floors import Floor
from rowtide.connectors.rows import TableShape
from rowtide.connectors.sinks.clickhouse.stored_types import server_type
from rowtide.connectors.sinks.columnar.layout import Kind, Layout, TargetColumn, first_come
from rowtide.connectors.sinks.columnar.presentation import EXACT_MAX, Shown
from rowtide.core.values import key as key_order
from rowtide.core.values import schema, variant
from rowtide.core.values.errors import Rejected

__all__ = [
    "DELETED",
    "KEY",
    "NAMING",
    "STAMP",
    "add_column",
    "column_type",
    "columns",
    "covers",
    "create",
    "end_rows",
    "key_notes",
    "key_type",
    "knows_type",
    "large",
    "notes",
    "quote_name",
    "rows",
    "select_notes",
    "select_rows",
    "view",
]

KEY, STAMP, DELETED = "_rowtide_key", "_rowtide_stamp", "_rowtide_deleted"

_TYPES: Mapping[Kind, str] = {
    "integer": "Nullable(Int64)",
    "double": "Nullable(Float64)",
    "boolean": "Nullable(UInt8)",
    "text": "Nullable(String)",
    "binary": "Nullable(String)",
}
_KEY_KINDS = {schema.INTEGER: "integer", schema.STRING: "text", schema.BINARY: "binary"}
# A column's file has the column's name. Bytes other than letters and digits are %XX.
_FILE_NAME_MAX = 160


def quote_name(name: str) -> str:
    """Return a name as an identifier."""
    return f"`{name}`"


def fit(name: str) -> str:
    """Return a name without characters to escape. A point would begin a nested structure."""
    return re.sub(r"\W", "_", name)


def NAMING(name: str, kind: str) -> Iterator[str]:
    """Yield the one possible name of a column. Names differ by attribute and kind."""
    plain = fit(name)
    if plain != name or len(quote(plain)) > _FILE_NAME_MAX:
        while len(quote(plain)) > _FILE_NAME_MAX:
            plain = plain[:-1]
        plain = f"{plain}_{hashlib.blake2s(name.encode(), digest_size=8).hexdigest()}"
    yield f"{plain}__{kind}"


def labels(layout: Layout, table: TableShape, attributes: Iterable[Shown]) -> list[str]:
    """Return the column names of the view: keys, then attributes, each name once.

    No name is that of a column behind the view: in ClickHouse a query's own names hide
    those of the table, also in its conditions.
    """
    taken = {KEY, STAMP, DELETED, *layout.keys, *(column.place for column in layout)}
    found: list[str] = []
    for name in [*(column.name for column in table.key), *(shown.name for shown in attributes)]:
        naming = first_come(fit)(name, "other")
        found.append(next(label for label in naming if label not in taken))
        taken.add(found[-1])
    return found


def rows(view: str) -> str:
    """Return the table with the rows behind a view."""
    return quote_name(f"{view}__rows")


def covers(view: str) -> str:
    """Return the table with the floors behind a view."""
    return quote_name(f"{view}__covers")


def key_type(kind: int) -> str:
    """Return the type of a key column."""
    return "Int64" if kind == schema.INTEGER else "String"


def notes(view: str) -> str:
    """Return the table that stores what each column behind a view holds."""
    return quote_name(f"{view}__columns")


def key_notes(layout: Layout, table: TableShape) -> list[tuple[str, str, str]]:
    """Return the notes of each key column: column, kind, name."""
    return [
        (place, f"key {_KEY_KINDS[column.type]}", column.name)
        for place, column in zip(layout.keys, table.key, strict=True)
    ]


def create(view: str, layout: Layout, table: TableShape, *, settings: str) -> list[str]:
    """Return statements that create the tables of a view if they are missing."""
    keys = ", ".join(
        f"{quote_name(place)} {key_type(column.type)}"
        for place, column in zip(layout.keys, table.key, strict=True)
    )
    order = ", ".join(map(quote_name, layout.keys))
    return [
        f"CREATE TABLE IF NOT EXISTS {rows(view)}"
        f" ({KEY} String, {STAMP} UInt64, {DELETED} UInt8, {keys})"
        f" ENGINE = ReplacingMergeTree({STAMP}) ORDER BY ({order}){settings}",
        f"CREATE TABLE IF NOT EXISTS {covers(view)} (begin String, until String, stamp UInt64)"
        f" ENGINE = MergeTree ORDER BY stamp{settings}",
        f"CREATE TABLE IF NOT EXISTS {notes(view)} (place String, kind String, name String)"
        f" ENGINE = ReplacingMergeTree ORDER BY (place, kind, name){settings}",
    ]


def columns(view: str) -> str:
    """Return the query for the existing columns, in order."""
    return (
        "SELECT name FROM system.columns"
        f" WHERE database = currentDatabase() AND table = '{view}__rows'"
    )


def select_notes(view: str) -> str:
    """Return the query for what columns hold."""
    return f"SELECT DISTINCT place, kind, name FROM {notes(view)} ORDER BY place, kind, name"


def column_type(kind: Kind) -> str:
    """Return the type of an attribute's column."""
    declared = type_of_kind(kind)
    return _TYPES[kind] if declared is None else f"Nullable({server_type(declared)})"


def knows_type(declared: LogicalType) -> str:
    """Return a query that fails on a server that lacks a type."""
    return f"SELECT toTypeName(CAST(NULL AS {column_type(declared.kind)}))"


def add_column(view: str, column: TargetColumn) -> str:
    """Return the statement that adds a column of an attribute."""
    return (
        f"ALTER TABLE {rows(view)} ADD COLUMN {quote_name(column.place)} {column_type(column.kind)}"
    )


def end_rows(view: str, layout: Layout, table: TableShape, floor: Floor) -> str:
    """Return the statement that marks the living rows below a floor as deleted."""
    keys = ", ".join([KEY, *map(quote_name, layout.keys)])
    within = _within(layout, table, floor.begin, floor.end)
    return (
        f"INSERT INTO {rows(view)} ({keys}, {STAMP}, {DELETED})"
        f" SELECT {keys}, toUInt64({floor.stamp}), toUInt8(1) FROM {rows(view)} FINAL"
        f" WHERE {within} AND {STAMP} < {floor.stamp} AND {DELETED} = 0"
    )


def select_rows(
    view: str, layout: Layout, table: TableShape, begin: bytes, end: bytes, *, limit: int
) -> str:
    """Return the query for living rows in key order."""
    wanted = ", ".join([KEY, STAMP, *(quote_name(column.place) for column in layout)])
    return (
        f"SELECT {wanted} FROM {rows(view)} FINAL WHERE {_within(layout, table, begin, end)}"
        f" AND {DELETED} = 0 ORDER BY {KEY} LIMIT {limit}"
    )


def large(view: str, column: TargetColumn) -> str:
    """Return a query that counts 1 if some integer has no exact double."""
    place = quote_name(column.place)
    return (
        f"SELECT count() AS found FROM (SELECT 1 FROM {rows(view)}"
        f" WHERE {place} > {EXACT_MAX} OR {place} < -{EXACT_MAX} LIMIT 1)"
    )


def view(name: str, of: str, layout: Layout, table: TableShape, attributes: Sequence[Shown]) -> str:
    """Return the statement that creates the view ``name`` of the living rows of ``of``."""
    values = [*map(quote_name, layout.keys), *map(_select_attribute, attributes)]
    seen_as = map(quote_name, labels(layout, table, attributes))
    wanted = ", ".join(f"{value} AS {label}" for value, label in zip(values, seen_as, strict=True))
    return (
        f"CREATE VIEW {quote_name(name)} AS SELECT {wanted}"
        f" FROM {rows(of)} FINAL WHERE {DELETED} = 0"
    )


def _within(layout: Layout, table: TableShape, begin: bytes, end: bytes) -> str:
    """Return the condition for a range of keys, also in terms of the table's sort order."""
    first, kind = quote_name(layout.keys[0]), table.key[0].type
    parts = [f"{KEY} >= {_bytes(begin)}"]
    parts += [f"{first} >= {bound}" for bound in _first_column(begin, kind)]
    if end:
        parts.append(f"{KEY} < {_bytes(end)}")
        parts += [f"{first} <= {bound}" for bound in _first_column(end, kind)]
    return " AND ".join(parts)


def _first_column(bound: bytes, kind: int) -> Sequence[str]:
    """Return the first column of an encoded key as a literal if it has the column's type."""
    try:
        value = variant.decode(key_order.decode(bound)[0])
    except (ValueError, IndexError, Rejected):
        return []  # A border between shards need not be a key.
    if isinstance(value, int):
        return [f"toInt64('{value}')"] if kind == schema.INTEGER else []
    assert isinstance(value, str | bytes), "a key's column"
    return [_bytes(value.encode() if isinstance(value, str) else value)]


def _bytes(value: bytes) -> str:
    return f"unhex('{value.hex()}')"


def _select_attribute(attribute: Shown) -> str:
    if attribute.form == "plain":
        return _of(attribute.columns[0])
    cast = _as_double if attribute.form == "double" else _as_text
    return f"coalesce({', '.join(map(cast, attribute.columns))})"


def _as_double(column: TargetColumn) -> str:
    return f"toFloat64({_of(column)})"


def _as_text(column: TargetColumn) -> str:
    value = _of(column)
    if column.kind == "binary":
        return f"concat('\\\\x', lower(hex({value})))"
    if column.kind == "boolean":
        return f"if(isNull({value}), NULL, if(assumeNotNull({value}) = 1, 'true', 'false'))"
    return f"toString({value})"


def _of(column: TargetColumn) -> str:
    return quote_name(column.place)
