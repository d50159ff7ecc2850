"""The types of values in a panel, named as DuckDB names them, and how two types meet.

Columns of rowtide have no types, so a dashboard declares them. A value of another type counts as
NULL, and the panel counts how many there are. TIMESTAMP is an integer here: microseconds since the
Unix epoch, without a zone.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from rowtide.core.values.variant import Scalar

__all__ = [
    "COLUMN_TYPES",
    "SqlType",
    "Value",
    "convert_by_type",
    "join_kinds",
]

Value = bool | int | float | str | None
"""A value of a panel. None is NULL."""


class SqlType(Enum):
    """A type of DuckDB. The values are DuckDB's names."""

    NULL = '"NULL"'
    BOOLEAN = "BOOLEAN"
    INTEGER = "INTEGER"
    BIGINT = "BIGINT"
    HUGEINT = "HUGEINT"
    DECIMAL = "DECIMAL"
    """Only a literal such as 1.5, which becomes a DOUBLE beside one."""
    DOUBLE = "DOUBLE"
    TEXT = "VARCHAR"
    TIMESTAMP = "TIMESTAMP"

    @property
    def is_integer(self) -> bool:
        """True for the three integers."""
        return self in _INTEGERS

    @property
    def is_number(self) -> bool:
        """True for integers and doubles."""
        return self in _INTEGERS or self is SqlType.DOUBLE


_INTEGERS = (SqlType.INTEGER, SqlType.BIGINT, SqlType.HUGEINT)

COLUMN_TYPES = {
    "boolean": SqlType.BOOLEAN,
    "bigint": SqlType.BIGINT,
    "double": SqlType.DOUBLE,
    "text": SqlType.TEXT,
    "timestamp_s": SqlType.TIMESTAMP,
    "timestamp_ms": SqlType.TIMESTAMP,
    "timestamp_us": SqlType.TIMESTAMP,
}
"""The words that declare a column's type. A timestamp is an INTEGER of this unit in the table."""

_UNITS_US = {"timestamp_s": 1_000_000, "timestamp_ms": 1000, "timestamp_us": 1}
# Years 1 to 9999: what JSON, Python and the browsers can show.
_FIRST_US, _LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999

_Convert = Callable[[Scalar], Value]


def join_kinds(left: SqlType, right: SqlType) -> SqlType | None:
    """Return the type in which values of both types are compared; None if there is none."""
    if left is right or right is SqlType.NULL:
        return left
    if left is SqlType.NULL:
        return right
    if left.is_integer and right.is_integer:
        return max(left, right, key=_INTEGERS.index)
    if {left, right} <= {SqlType.DECIMAL, SqlType.DOUBLE}:
        return SqlType.DOUBLE
    return SqlType.DOUBLE if left.is_number and right.is_number else None


def convert_by_type(word: str) -> _Convert:
    """Return the function that converts a stored value to a declared type.

    It raises ``ValueError`` for a value of another type, which then counts as NULL.
    """
    if word in _UNITS_US:
        unit_us = _UNITS_US[word]
        return lambda value: _timestamp(value, unit_us)
    return {"boolean": _boolean, "bigint": _bigint, "double": _double, "text": _text}[word]


def _boolean(value: Scalar) -> Value:
    if not isinstance(value, bool):
        raise ValueError
    return value


def _bigint(value: Scalar) -> Value:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError
    return value


def _double(value: Scalar) -> Value:
    # An INTEGER is no double: it may not fit, and then sums would not be those of the rows.
    if not isinstance(value, float):
        raise ValueError
    return value


def _text(value: Scalar) -> Value:
    if not isinstance(value, str):
        raise ValueError
    return value


def _timestamp(value: Scalar, unit_us: int) -> Value:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError
    if not _FIRST_US <= value * unit_us <= _LAST_US:
        raise ValueError
    return value * unit_us
