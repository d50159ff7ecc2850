"""What DuckDB's operators do with values of one type. NULL never comes here.

Integers overflow as DuckDB's do, at 32, 64 or 128 bits. Doubles follow IEEE 754, but NaN equals
itself and is above every other double.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import cast

from rowtide.dashboards.values.kinds import SqlType, Value

__all__ = [
    "OutOfRange",
    "canonical",
    "check_integer",
    "comparison",
    "divide",
    "divide_whole",
    "like_pattern",
    "order_key",
    "remainder",
]

_LIMITS = {SqlType.INTEGER: 2**31, SqlType.BIGINT: 2**63, SqlType.HUGEINT: 2**127}


class OutOfRange(ArithmeticError):
    """A result that its type cannot have. DuckDB rejects the whole query then."""


def check_integer(value: int, kind: SqlType) -> int:
    """Return the value if its type can have it. Raises ``OutOfRange``."""
    limit = _LIMITS[kind]
    if not -limit <= value < limit:
        raise OutOfRange(f"{value} is out of range of {kind.value}")
    return value


def divide(left: float, right: float) -> float:
    """Return a quotient as IEEE 754 has it: of zero it is an infinity or NaN."""
    if right:
        return left / right
    if left != left or right != right or not left:
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1.0, right)


def divide_whole(left: int, right: int) -> int | None:
    """Return an integer quotient, rounded towards zero; NULL for a division by zero."""
    if not right:
        return None
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def remainder(left: int, right: int) -> int | None:
    """Return what an integer division leaves, with the sign of ``left``; NULL for zero."""
    if not right:
        return None
    left_over = abs(left) % abs(right)
    return -left_over if left < 0 else left_over


def canonical(value: Value) -> Value:
    """Return the one form of a value that is a key: one NaN, and no negative zero."""
    if isinstance(value, float):
        return math.nan if value != value else value + 0.0
    return value


def order_key(value: Value) -> tuple[bool, Value]:
    """Return a key that sorts values of one type: NaN is above all other doubles."""
    return value != value, value


def _equal_doubles(left: float, right: float) -> bool:
    return left == right or (left != left and right != right)


def _is_double_below(left: float, right: float) -> bool:
    return left < right or (right != right and left == left)


_Test = Callable[[Value, Value], bool]

_DOUBLES: dict[str, Callable[[float, float], bool]] = {
    "=": _equal_doubles,
    "<>": lambda left, right: not _equal_doubles(left, right),
    "<": _is_double_below,
    ">": lambda left, right: _is_double_below(right, left),
    "<=": lambda left, right: not _is_double_below(right, left),
    ">=": lambda left, right: not _is_double_below(left, right),
}
_OTHERS: dict[str, Callable[[int, int], bool]] = {
    "=": lambda left, right: left == right,
    "<>": lambda left, right: left != right,
    "<": lambda left, right: left < right,
    ">": lambda left, right: left > right,
    "<=": lambda left, right: left <= right,
    ">=": lambda left, right: left >= right,
}


def comparison(symbol: str, kind: SqlType) -> _Test:
    """Return the comparison of two values of a type. Texts compare by code points."""
    return cast(_Test, _DOUBLES[symbol] if kind is SqlType.DOUBLE else _OTHERS[symbol])


def like_pattern(pattern: str) -> re.Pattern[str]:
    """Return what LIKE means: % is any text and _ one character; nothing is escaped."""
    parts = [{"%": ".*", "_": "."}.get(c, re.escape(c)) for c in pattern]
    return re.compile("".join(parts), re.DOTALL)
