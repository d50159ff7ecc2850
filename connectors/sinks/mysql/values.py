"""Values of rowtide in columns of MySQL: which type a column needs, and how a value is written.

A column's type is the narrowest that holds every value it has had, exactly:

    BOOLEAN < BIGINT < DOUBLE < LONGTEXT < LONGBLOB

A boolean among integers is 0 or 1. A column of integers and doubles is a DOUBLE as long as every
integer is one exactly, else text: no DECIMAL holds 1e300. Among texts, numbers are their decimal
digits as the server itself writes them; among bytes, texts are their UTF-8. DOUBLE has no NaN and
no infinity: they are texts. Columns of any other type were made by somebody else and stay as they
are: values are given as they come, and the server takes or refuses them. Of a BIT column a text of
digits is a number, as a source gives one that is too great for an integer.
"""

from __future__ import annotations

import math
from enum import IntEnum

from pymysql.converters import escape_string

from rowtide.connectors.double_text import double_text
from rowtide.core.values.variant import Scalar

__all__ = [
    "EXACT",
    "SQL_TYPE",
    "Kind",
    "as_held",
    "exact_sql",
    "from_server",
    "key_literal",
    "kind_of",
    "literal",
    "needed",
]

EXACT = 1 << 53
"""Integers up to here are doubles exactly."""


class Kind(IntEnum):
    """A column's type, in the order in which they widen."""

    BOOLEAN = 0
    INTEGER = 1
    DOUBLE = 2
    TEXT = 3
    BLOB = 4
    FOREIGN = 5
    """Any other type; so are those below, which are written or read in a way of their own."""
    BIT = 6
    FLOAT = 7

    @property
    def foreign(self) -> bool:
        """Return True for a type that is never altered here."""
        return self >= Kind.FOREIGN


SQL_TYPE = {
    Kind.BOOLEAN: "TINYINT(1)",
    Kind.INTEGER: "BIGINT",
    Kind.DOUBLE: "DOUBLE",
    Kind.TEXT: "LONGTEXT",
    Kind.BLOB: "LONGBLOB",
}
_FOREIGN_KINDS = {"bit": Kind.BIT, "float": Kind.FLOAT}
_KIND_OF_TYPE: dict[type, Kind] = {
    bool: Kind.BOOLEAN,
    int: Kind.INTEGER,
    float: Kind.DOUBLE,
    str: Kind.TEXT,
    bytes: Kind.BLOB,
}


def kind_of(column_type: str) -> Kind:
    """Return the kind of a column by the server's words for its type."""
    for kind, words in SQL_TYPE.items():
        # MySQL tells a BIGINT without its width, MariaDB with it.
        if column_type.upper() in (words, f"{words}(20)"):
            return kind
    name = column_type.lower().partition("(")[0].partition(" ")[0]
    return _FOREIGN_KINDS.get(name, Kind.FOREIGN)


def needed(kind: Kind | None, value: Scalar) -> Kind:
    """Return the kind of column that holds a value, and all that one of ``kind`` (None: new) does.

    Not known here: whether integers that are there already are doubles exactly.
    """
    wanted = _KIND_OF_TYPE[type(value)]
    if isinstance(value, float) and not math.isfinite(value):
        wanted = Kind.TEXT
    if kind is None:
        return wanted
    if kind == Kind.DOUBLE and isinstance(value, int) and abs(value) > EXACT:
        return Kind.TEXT
    return max(kind, wanted)


def literal(value: Scalar | None, kind: Kind, *, width: int) -> str:
    """Return a value as SQL for a column of a kind that holds it."""
    if value is None:
        return "NULL"
    if isinstance(value, str):
        # In quotes the server takes the digits' own codes for the bits.
        digits = kind == Kind.BIT and value.isascii() and value.isdecimal()
        return value if digits else f"'{escape_string(value)}'"
    if isinstance(value, bytes):
        return f"x'{value.hex()}'"
    if kind in (Kind.TEXT, Kind.BLOB):
        return f"'{_text(value, width)}'"
    if isinstance(value, float):
        if not math.isfinite(value):
            return f"'{_text(value, width)}'"
        # With an exponent it is a double to the server, without one a decimal. MySQL would keep a
        # minus zero, MariaDB would not; adding zero makes it zero.
        shown = repr(value + 0.0)
        return shown if "e" in shown else f"{shown}e0"
    return str(int(value))


def key_literal(value: object) -> str:
    """Return a value as SQL for a key's column, which is of the value's own kind."""
    if isinstance(value, str):
        return f"'{escape_string(value)}'"
    if isinstance(value, bytes):
        return f"x'{value.hex()}'"
    assert isinstance(value, int), "a key's value"
    return str(value)


def exact_sql(column: str, kind: Kind) -> str:
    """Return a column, which is quoted, as SQL that gives its values exactly."""
    if kind == Kind.FLOAT:
        return f"{column} + 0e0"  # As it is, the server shows six digits.
    return f"{column} + 0" if kind == Kind.BIT else column


def as_held(value: Scalar, kind: Kind, *, width: int) -> Scalar:
    """Return what is read back of a value from a column of a kind that is not foreign.

    What a foreign one has of it the server tells.
    """
    if kind == Kind.INTEGER and isinstance(value, bool):
        return int(value)
    if kind == Kind.DOUBLE and isinstance(value, int | float):
        return value + 0.0  # See ``literal`` for a minus zero.
    if kind == Kind.TEXT and not isinstance(value, str | bytes):
        return _text(value, width)
    if kind == Kind.BLOB and not isinstance(value, bytes):
        return (value if isinstance(value, str) else _text(value, width)).encode()
    return value


def from_server(value: object, kind: Kind) -> Scalar:
    """Return a value as the client library reads it from a column of a kind.

    Values that differ stay so: what is no value of rowtide, as a great integer, becomes a text.
    """
    if kind == Kind.BOOLEAN:
        return bool(value)
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**63 else str(value)
    if isinstance(value, float | str | bytes):
        return value
    return str(value)


def _text(value: float, width: int) -> str:
    """Return a number's digits as the server writes them when it makes it a text."""
    if not isinstance(value, float):
        return str(int(value))
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return double_text(value + 0.0, width)  # Adding zero makes a minus zero zero.
