"""Rows in a DuckDB database in memory, and the answer of a panel's text over them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

import duckdb

from rowtide.core.values.variant import Scalar
from rowtide.dashboards.fold.results import quantile_approximately
from rowtide.dashboards.fold.states import SketchState
from rowtide.dashboards.sql.duckdb_text import MEAN, SKETCHED, SUM
from rowtide.dashboards.values.kinds import COLUMN_TYPES, SqlType, Value, convert_by_type

__all__ = ["DuckRows", "NoDuckAnswer", "open_database"]

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - DuckDB's TIMESTAMP has no zone.
_US = timedelta(microseconds=1)
_SCALE = 2**1074
"""Every finite double is an integer divided by this."""

INSERT_ROWS = 1000
_CHANGES = "rowtide_changes"


def open_database() -> duckdb.DuckDBPyConnection:
    """Return an empty database in memory in which an integer divided by zero is NULL.

    From version 2 on DuckDB rejects this division unless a setting is off. Earlier versions do not
    know the setting.
    """
    database = duckdb.connect(":memory:", config={"threads": 1})
    with suppress(duckdb.CatalogException):
        database.execute("SET error_on_division_by_zero = false")
    return database


class NoDuckAnswer(Exception):
    """DuckDB rejects the query, for example because a number does not fit its type."""

    def __init__(self, reason: str, *, is_out_of_range: bool) -> None:
        super().__init__(reason)
        self.is_out_of_range = is_out_of_range


class DuckRows:
    """One table with declared columns. ``changes('TABLE')`` is a macro for it if ``of_changes``."""

    def __init__(self, table: str, types: Mapping[str, str], *, of_changes: bool = False) -> None:
        self._types = types
        self._converts = {name: convert_by_type(word) for name, word in types.items()}
        self._table = _CHANGES if of_changes else table
        self._database = open_database()
        columns = ", ".join(f"{_quote(n)} {COLUMN_TYPES[w].value}" for n, w in types.items())
        self._database.execute(f"CREATE TABLE {_quote(self._table)} ({columns})")
        if of_changes:
            macro = f"CREATE MACRO changes(name) AS TABLE SELECT * FROM {_CHANGES}"
            self._database.execute(macro)
        for name, function, arguments in (
            (SUM, _exact_sum, ["DOUBLE[]"]),
            (MEAN, _exact_mean, ["DOUBLE[]"]),
            (SKETCHED, _sketch_value, ["DOUBLE[]", "DOUBLE"]),
        ):
            self._database.create_function(name, function, arguments, "DOUBLE")

    def insert(self, rows: Iterable[Mapping[str, Scalar]]) -> None:
        """Add rows. A value of another type than its column's becomes NULL."""
        names = ", ".join(map(_quote, self._types))
        marks = f"({', '.join('?' for _ in self._types)})"
        waiting: list[object] = []
        count = 0
        for row in rows:
            waiting += [self._convert(name, row.get(name)) for name in self._types]
            count += 1
            if count == INSERT_ROWS:
                self._insert(names, marks, count, waiting)
                waiting, count = [], 0
        if count:
            self._insert(names, marks, count, waiting)

    def _insert(self, names: str, marks: str, count: int, values: list[object]) -> None:
        table, all_marks = _quote(self._table), ", ".join([marks] * count)
        self._database.execute(f"INSERT INTO {table} ({names}) VALUES {all_marks}", values)

    def query(self, text: str) -> list[tuple[Value, ...]]:
        """Return the answer. Raises ``NoDuckAnswer``."""
        try:
            rows = self._database.execute(text).fetchall()
        except duckdb.OutOfRangeException as error:
            raise NoDuckAnswer(str(error), is_out_of_range=True) from error
        except duckdb.Error as error:
            raise NoDuckAnswer(str(error), is_out_of_range=False) from error
        return [tuple(_plain(value) for value in row) for row in rows]

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    def _convert(self, name: str, value: Scalar | None) -> object:
        if value is None:
            return None
        try:
            found = self._converts[name](value)
        except ValueError:
            return None
        if COLUMN_TYPES[self._types[name]] is SqlType.TIMESTAMP and isinstance(found, int):
            return _EPOCH + found * _US
        return found


def _plain(value: Any) -> Value:
    """Return a value of DuckDB as a panel has it."""
    if isinstance(value, datetime):
        return (value - _EPOCH) // _US
    found: Value = value
    return found


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _exact_sum(values: Sequence[float]) -> float | None:
    if not values:
        return None
    if not all(map(math.isfinite, values)):
        return sum(value for value in values if not math.isfinite(value))
    try:
        return math.fsum(values)
    except OverflowError:  # On the way, or in the end.
        return _quotient(values, 1)


def _exact_mean(values: Sequence[float]) -> float | None:
    if not values:
        return None
    if all(map(math.isfinite, values)):
        return _quotient(values, len(values))
    return sum(value for value in values if not math.isfinite(value))


def _quotient(values: Sequence[float], divisor: int) -> float:
    """Return the exact sum of finite doubles, divided and rounded once."""
    total = 0
    for value in values:
        numerator, denominator = value.as_integer_ratio()
        total += numerator * (_SCALE // denominator)
    try:
        return total / (_SCALE * divisor)
    except OverflowError:
        return math.inf if total > 0 else -math.inf


def _sketch_value(values: Sequence[float], quantile: float) -> float | None:
    state = SketchState()
    for value in values:
        state.add(value, 1)
    found = quantile_approximately(quantile)(state)
    return None if found is None else float(found)
