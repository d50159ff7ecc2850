"""The SQL of the DuckDB sink. Pure text. Names are quoted only here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rowtide.connectors.rows import TableShape
from rowtide.connectors.sinks.columnar.arrow_rows import DELETED, KEY, STAMP
from rowtide.connectors.sinks.columnar.layout import Kind, Layout, TargetColumn, first_come
from rowtide.connectors.sinks.columnar.presentation import Shown
from rowtide.core.values import schema

__all__ = [
    "COLUMNS",
    "NAMING",
    "add_column",
    "create",
    "end_rows",
    "living",
    "names",
    "quote_name",
    "select_rows",
    "upsert",
    "view",
]

COLUMNS = "_rowtide_columns"
"""The table of what each column holds, for every table in the file."""

_TYPES: Mapping[Kind, str] = {
    "integer": "BIGINT",
    "double": "DOUBLE",
    "boolean": "BOOLEAN",
    "text": "VARCHAR",
    "binary": "BLOB",
}
_KEY_TYPES = {schema.INTEGER: "BIGINT", schema.STRING: "VARCHAR", schema.BINARY: "BLOB"}


def quote_name(name: str) -> str:
    """Return a name as an identifier."""
    return '"' + name.replace('"', '""') + '"'


def names(table: str) -> tuple[str, str]:
    """Return the names of the tables with the rows, and with the floors, behind a view."""
    return f"{table}__rows", f"{table}__covers"


NAMING = first_come(lambda name: name.replace("\0", "_"))
"""Every other character is allowed between quotes."""


def create(view: str, layout: Layout, table: TableShape) -> list[str]:
    """Return statements that create the tables of a view if they are missing."""
    rows, covers = names(view)
    keys = "".join(
        f", {quote_name(place)} {_KEY_TYPES[column.type]} NOT NULL"
        for place, column in zip(layout.keys, table.key, strict=True)
    )
    return [
        f"CREATE TABLE IF NOT EXISTS {quote_name(rows)} ({KEY} BLOB PRIMARY KEY,"
        f" {STAMP} BIGINT NOT NULL, {DELETED} BOOLEAN NOT NULL{keys})",
        f"CREATE TABLE IF NOT EXISTS {quote_name(covers)}"
        " (begin BLOB NOT NULL, until BLOB NOT NULL, stamp BIGINT NOT NULL)",
        f"CREATE TABLE IF NOT EXISTS {COLUMNS}"
        " (rows_table VARCHAR, name VARCHAR, kind VARCHAR, place VARCHAR)",
    ]


def add_column(view: str, column: TargetColumn) -> str:
    """Return the statement that adds a column of an attribute."""
    table = quote_name(names(view)[0])
    return f"ALTER TABLE {table} ADD COLUMN {quote_name(column.place)} {_TYPES[column.kind]}"


def upsert(view: str, staged: str, places: Sequence[str], layout: Layout) -> str:
    """Return the statement that writes the staged rows, with columns ``places``, unless
    newer exist.

    A row is whole: an attribute that it lacks is NULL afterwards.
    """
    table = quote_name(names(view)[0])
    changing = [STAMP, DELETED, *(column.place for column in layout)]
    given = set(places)
    new = ", ".join(
        f"{quote_name(place)} = " + (f"excluded.{quote_name(place)}" if place in given else "NULL")
        for place in changing
    )
    columns = ", ".join(map(quote_name, places))
    return (
        f"INSERT INTO {table} ({columns}) SELECT {columns} FROM {staged}"
        f" ON CONFLICT ({KEY}) DO UPDATE SET {new} WHERE excluded.{STAMP} >= {table}.{STAMP}"
    )


def end_rows(view: str, layout: Layout, *, bounded: bool) -> str:
    """Return the statement that marks old rows as deleted: parameters stamp, stamp, begin, end."""
    nothing = "".join(f", {quote_name(column.place)} = NULL" for column in layout)
    until = f" AND {KEY} < ?" if bounded else ""
    return (
        f"UPDATE {quote_name(names(view)[0])} SET {STAMP} = ?, {DELETED} = true{nothing}"
        f" WHERE {STAMP} < ? AND {KEY} >= ?{until}"
    )


def select_rows(view: str, layout: Layout, *, bounded: bool) -> str:
    """Return the query for living rows in key order: parameters begin, and end if ``bounded``."""
    columns = ", ".join(quote_name(place) for place in (KEY, STAMP, *(c.place for c in layout)))
    until = f" AND {KEY} < ?" if bounded else ""
    return (
        f"SELECT {columns} FROM {quote_name(names(view)[0])}"
        f" WHERE NOT {DELETED} AND {KEY} >= ?{until} ORDER BY {KEY} LIMIT ?"
    )


def view(name: str, layout: Layout, attributes: Iterable[Shown], types: Mapping[str, str]) -> str:
    """Return the statement that creates the view of the living rows. ``types`` are by attribute."""
    shown = [_select_attribute(attribute, types.get(attribute.name)) for attribute in attributes]
    columns = [*map(quote_name, layout.keys), *shown]
    table = quote_name(names(name)[0])
    return (
        f"CREATE OR REPLACE VIEW {quote_name(name)} AS"
        f" SELECT {', '.join(columns)} FROM {table} WHERE NOT {DELETED}"
    )


def living(name: str, target: str) -> str:
    """Return the statement that copies the current view into a table of the same name."""
    return f"CREATE TABLE {target}.{quote_name(name)} AS SELECT * FROM {quote_name(name)}"


def _select_attribute(attribute: Shown, of_type: str | None) -> str:
    name = quote_name(attribute.columns[0].place)
    if attribute.form == "plain":
        return name if of_type is None else f"TRY_CAST({name} AS {of_type}) AS {name}"
    # A mixture is cast from its digits, which are exact. A double may be inexact.
    double = attribute.form == "double" and of_type is None
    values = ", ".join(map(_as_double if double else _as_text, attribute.columns))
    value = f"coalesce({values})"
    return f"{value if of_type is None else f'TRY_CAST({value} AS {of_type})'} AS {name}"


def _as_double(column: TargetColumn) -> str:
    return f"CAST({quote_name(column.place)} AS DOUBLE)"


def _as_text(column: TargetColumn) -> str:
    if column.kind == "binary":
        return f"'\\x' || lower(hex({quote_name(column.place)}))"
    return f"CAST({quote_name(column.place)} AS VARCHAR)"
