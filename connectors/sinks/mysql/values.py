"""Values of rowtide in columns of MySQL: the type that a column needs, and values as SQL.

A column's type is the narrowest that holds every value it has had, exactly:

    BOOLEAN < BIGINT < DOUBLE < LONGTEXT < LONGBLOB

A boolean among integers is 0 or 1. A column of integers and doubles is a DOUBLE if every
integer is exact as a double, otherwise a text: no DECIMAL holds 1e300. Among texts, a
number is the digits that the server itself writes. Among bytes, a text is its UTF-8.
DOUBLE has no NaN and no infinity, so they are texts. A column of any other type was
created by a user and is not altered: the server accepts or refuses each value. For a BIT
column a text of digits is a number. A source gives an integer of more than 64 bits in
this form.
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
    "choose_kind",
    "exact_sql",
    "from_server",
    "key_literal",
    "kind_of",
    "literal",
]

EXACT = 1 << 53
"""Integers up to here are exact as doubles."""


class Kind(IntEnum):
    """A column's type, in order of width."""

    BOOLEAN = 0
    INTEGER = 1
    DOUBLE = 2
    TEXT = 3
    BLOB = 4
    FOREIGN = 5
    """Any other type. Those below are such types with a special way to write or read them."""
    BIT = 6
    FLOAT = 7

    @property
    def foreign(self) -> bool:
        """True for a type that is never altered here."""
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
    """Return the kind of a column by the server's name of its type."""
    for kind, words in SQL_TYPE.items():
        # MySQL reports a BIGINT without its width, MariaDB with it.
        if column_type.upper() in (words, f"{words}(20)"):
            return kind
    name = column_type.lower().partition("(")[0].partition(" ")[0]
    return _FOREIGN_KINDS.get(name, Kind.FOREIGN)


def choose_kind(kind: Kind | None, value: Scalar) -> Kind:
    """Return the kind of column for a value and for all values of ``kind`` (None: new).

    It is not known here whether existing integers are exact as doubles.
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
        # In quotes the server would take the digits' character codes as bits.
        digits = kind == Kind.BIT and value.isascii() and value.isdecimal()
        return value if digits else f"'{escape_string(value)}'"
    if isinstance(value, bytes):
        return f"x'{value.hex()}'"
    if kind in (Kind.TEXT, Kind.BLOB):
        return f"'{_text(value, width)}'"
    if isinstance(value, float):
        if not math.isfinite(value):
            return f"'{_text(value, width)}'"
        # With an exponent it is a double to the server, without one a decimal. MySQL
        # would keep a minus zero, MariaDB would not. Adding zero makes it zero.
        shown = repr(value + 0.0)
        return shown if "e" in shown else f"{shown}e0"
    return str(int(value))


def key_literal(value: object) -> str:
    """Return a value as SQL for a key column of the value's own kind."""
    if isinstance(value, str):
        return f"'{escape_string(value)}'"
    if isinstance(value, bytes):
        return f"x'{value.hex()}'"
    assert isinstance(value, int), "a key's value"
    return str(value)


def exact_sql(column: str, kind: Kind) -> str:
    """Return SQL that reads a quoted column exactly."""
    if kind == Kind.FLOAT:
        return f"{column} + 0e0"  # By default the server shows six digits.
    return f"{column} + 0" if kind == Kind.BIT else column


def as_held(value: Scalar, kind: Kind, *, width: int) -> Scalar:
    """Return a value as it is read back from a column of a kind that is not foreign.

    Only the server knows this for a foreign kind.
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
    """Return a value of rowtide for a value that the client library read.

    Different values stay different: what rowtide lacks, such as a large integer, becomes
    a text.
    """
    if kind == Kind.BOOLEAN:
        return bool(value)
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**63 else str(value)
    if isinstance(value, float | str | bytes):
        return value
    return str(value)


def _text(value: float, width: int) -> str:
    """Return a number's digits as the server writes them when it converts it to text."""
    if not isinstance(value, float):
        return str(int(value))
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return double_text(value + 0.0, width)  # Adding zero turns minus zero into zero.
