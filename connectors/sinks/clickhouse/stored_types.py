"""Values as the server's columns store them. Declared types are integers there.

Decimal(p, s)            the number without its point Date, Date32             days since
1970-01-01 DateTime, DateTime64(n)  seconds since 1970, or n digits of them; shown in UTC
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal

from rowtide.connectors.declared_types import (
    FRACTION_MAX,
    PRECISION_MAX,
    LogicalType,
    LogicalValue,
    plain_value,
    type_of_kind,
)
from rowtide.connectors.sinks.columnar.layout import Seen, TargetColumn, Value
from rowtide.core.values.variant import Scalar

__all__ = ["WORDS", "decode_value", "encode_values", "server_type", "width"]

WORDS: Mapping[str, str] = {
    "decimal": "decimal",
    "date": "date16",
    "date32": "date32",
    "datetime": "datetime32",
    "datetime64": "datetime64",
}
"""The server's type names in lower case, and ours."""

_NAMES = {"date16": "Date", "date32": "Date32", "datetime32": "DateTime('UTC')"}
_DAYS_BEFORE_1970 = date(1970, 1, 1).toordinal()
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_WIDE = Context(prec=PRECISION_MAX)
_DECIMAL = re.compile(r"Decimal\((\d+),")
_WIDTHS = (("Date32", 4), ("DateTime64", 8), ("DateTime", 4), ("Date", 2))


def server_type(declared: LogicalType) -> str:
    """Return the type's name as the server writes it."""
    if declared.word == "decimal":
        return f"Decimal({declared.precision}, {declared.scale})"
    if declared.word == "datetime64":
        return f"DateTime64({declared.scale}, 'UTC')"
    return _NAMES[declared.word]


def width(kind: str) -> tuple[int, bool] | None:
    """Return the size of a value in bytes and whether it is signed, by the server's type.

    Return None for types other than those above.
    """
    decimal = _DECIMAL.match(kind)
    if decimal is not None:
        precision = int(decimal[1])
        return (4 if precision <= 9 else 8 if precision <= 18 else 16), True
    for name, count in _WIDTHS:
        if kind == name or kind.startswith(f"{name}("):
            return count, name in ("Date32", "DateTime64")
    return None


def encode_values(seen: Seen, values: Sequence[Value]) -> list[Scalar | None]:
    """Return an attribute's values as they are written to the server."""
    declared = seen[1]
    return [
        _integer(declared, value)
        if isinstance(declared, LogicalType) and isinstance(value, LogicalValue)
        else plain_value(value)
        for value in values
    ]


def decode_value(column: TargetColumn, stored: Scalar | None) -> Scalar | None:
    """Return rowtide's value of a ``stored`` value."""
    if stored is None:
        return None
    if column.kind == "boolean":
        return bool(stored)
    declared = type_of_kind(column.kind)
    if declared is not None:
        assert isinstance(stored, int), "declared types are integers"
        return plain_value(_value(declared, stored))
    return stored.decode() if column.kind == "text" and isinstance(stored, bytes) else stored


def _integer(declared: LogicalType, value: LogicalValue) -> int:
    if isinstance(value, Decimal):
        return int(value.scaleb(declared.scale, context=_WIDE))
    if isinstance(value, datetime):
        return (value - _EPOCH) // _tick(declared)
    assert isinstance(value, date), "there is no type for a time of the day"
    return value.toordinal() - _DAYS_BEFORE_1970


def _value(declared: LogicalType, integer: int) -> LogicalValue:
    if declared.word == "decimal":
        return Decimal(integer).scaleb(-declared.scale, context=_WIDE)
    if declared.word in ("datetime32", "datetime64"):
        return _EPOCH + integer * _tick(declared)
    return date.fromordinal(integer + _DAYS_BEFORE_1970)


def _tick(declared: LogicalType) -> timedelta:
    """Return the smallest step of a type."""
    return timedelta(microseconds=10 ** (FRACTION_MAX - declared.scale))
