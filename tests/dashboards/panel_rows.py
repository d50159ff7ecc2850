"""Rows of a panel's source for tests: random ones, and the same rows in DuckDB."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

import duckdb
from hypothesis import strategies as st

from rowtide.core.values.variant import Scalar
from rowtide.dashboards.proof.duck_rows import open_database
from rowtide.dashboards.sql.source_table import SourceTable
from rowtide.dashboards.values.kinds import COLUMN_TYPES, Value, convert_by_type

TYPES = {
    "word": "text",
    "small": "bigint",
    "large": "bigint",
    "ratio": "double",
    "wild": "double",
    "seen": "timestamp_us",
    "flag": "boolean",
}
TABLE = SourceTable("t", TYPES)
EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - DuckDB's TIMESTAMP has no zone.

_SOME_TIMES = [
    1_577_836_800_000_000 + minutes * 60_000_000 for minutes in (0, 7, 59, 60, 61, 300, 1441, 44640)
]
# Sums of these are exact in doubles, in any order, so DuckDB's sums are exact, too.
_RATIOS = st.integers(-4000, 4000).map(lambda n: n / 16)
_WILD = st.sampled_from([math.inf, -math.inf, math.nan, 0.0, -0.0, 1.5, -2.25, 8.0])

Row = dict[str, Scalar]


def column_values(name: str) -> st.SearchStrategy[Scalar]:
    """Return a strategy of a column's values; some have another type."""
    by_name: dict[str, st.SearchStrategy[Scalar]] = {
        "word": st.sampled_from(["", "a", "ab", "B", "\N{GREEK SMALL LETTER PI}", "z"]),
        "small": st.integers(-3, 4),
        "large": st.sampled_from([0, 1, 2**31, -(2**62), 2**63 - 1, -(2**63)]),
        "ratio": _RATIOS,
        "wild": _WILD,
        "seen": st.sampled_from([*_SOME_TIMES, -1, 2**62]),
        "flag": st.booleans(),
    }
    mistyped: list[Scalar] = ["7", 7, 7.5, b"7", True]
    return st.one_of(*[by_name[name]] * 6, st.sampled_from(mistyped))


ROWS: st.SearchStrategy[Row] = st.fixed_dictionaries(
    {}, optional={name: column_values(name) for name in TYPES}
)


class DuckRows:
    """A table in DuckDB that has the rows as they are now."""

    def __init__(self, types: Mapping[str, str] = TYPES) -> None:
        self._types = types
        self._database = open_database()
        columns = ", ".join(f'"{n}" {COLUMN_TYPES[w].value}' for n, w in types.items())
        self._database.execute(f"CREATE TABLE t ({columns})")

    def replace(self, rows: Iterable[Mapping[str, Scalar]]) -> None:
        """Let the table have exactly these rows."""
        self._database.execute("DELETE FROM t")
        found = [[self._convert(name, row.get(name)) for name in self._types] for row in rows]
        if found:
            marks = ", ".join("?" for _ in self._types)
            self._database.executemany(f"INSERT INTO t VALUES ({marks})", found)

    def query(self, text: str) -> list[tuple[Any, ...]] | None:
        """Return the answer; None if DuckDB says that a number is out of range."""
        try:
            rows = self._database.execute(text).fetchall()
        except duckdb.OutOfRangeException:
            return None
        return [tuple(_plain(value) for value in row) for row in rows]

    def types_of(self, text: str) -> list[str]:
        """Return the types of an answer's columns."""
        self._database.execute(text)
        return [str(column[1]) for column in self._database.description]

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    def _convert(self, name: str, value: Scalar | None) -> object:
        word = self._types[name]
        try:
            found: Value = None if value is None else convert_by_type(word)(value)
        except ValueError:
            return None
        if word.startswith("timestamp") and found is not None:
            return EPOCH + timedelta(microseconds=int(found))
        return found


def _plain(value: object) -> object:
    """Return a value of DuckDB as a panel has it."""
    if isinstance(value, datetime):
        return (value - EPOCH) // timedelta(microseconds=1)
    return value


def same_value(ours: object, other: object) -> bool:
    """True if two values are equal; NaN equals itself, and doubles may differ in the last bit.

    DuckDB divides sums of integers in 80 bits and rounds twice.
    """
    if isinstance(ours, float) and isinstance(other, float):
        if math.isnan(ours) or math.isnan(other):
            return math.isnan(ours) and math.isnan(other)
        return ours == other or abs(ours - other) <= math.ulp(max(abs(ours), abs(other)))
    return type(ours) is type(other) and ours == other


def same_rows(
    ours: Iterable[tuple[Value, ...]], others: Iterable[tuple[Any, ...]], *, ordered: bool
) -> bool:
    """True if two answers are equal, in any order unless ``ordered``."""
    mine, theirs = list(ours), list(others)
    if not ordered:
        mine, theirs = sorted(mine, key=_sort_key), sorted(theirs, key=_sort_key)
    return len(mine) == len(theirs) and all(
        len(a) == len(b) and all(map(same_value, a, b)) for a, b in zip(mine, theirs, strict=True)
    )


def _sort_key(row: tuple[Any, ...]) -> list[tuple[str, Any]]:
    # Doubles that may differ in the last bit must not change the order: nine digits are compared.
    return [
        (type(v).__name__, f"{v + 0.0:.9g}" if isinstance(v, float) else v if v is not None else 0)
        for v in row
    ]
