"""Tables of MySQL and MariaDB as a source needs them, and their values in rowtide.

    TINYINT .. BIGINT, YEAR     integer; BIGINT UNSIGNED above 2^63 - 1: its digits as a string
    DECIMAL                     string, with as many digits after the point as the column has
    FLOAT, DOUBLE               double; a FLOAT is exactly the value that the server stores
    BIT(1), BIT(n)              boolean; integer, as BIGINT UNSIGNED
    CHAR, VARCHAR, TEXT, JSON   string
    ENUM, SET                   string; a set's members in the column's order, with commas
    DATE, TIME, DATETIME        string as the server shows it, zero dates too
    TIMESTAMP                   the same, in UTC
    UUID, INET4, INET6          string
    BINARY, VARBINARY, BLOB     binary; BINARY(n) has n bytes
    VECTOR                      binary: its floats of 4 bytes
    GEOMETRY and its kinds      binary: WKB, without the SRID

NULL is no column. In a key, integers are INTEGER, binaries BINARY, and all else STRING.
This mapping holds for two forms of values: the texts of a query (``text_reader``) and the
bytes of the binlog (``rowtide.connectors.sources.mysql.row_image``). Tests compare both.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from rowtide.connectors.rows import TableShape
from rowtide.core.values.schema import BINARY, INTEGER, STRING, KeyColumn
from rowtide.core.values.variant import Scalar

__all__ = [
    "MySqlColumn",
    "MySqlTable",
    "above_64_bits",
    "cursor_literal",
    "fits_key",
    "key_part",
    "quote_name",
    "select_term",
    "text_reader",
]

INTEGERS = {"tinyint", "smallint", "mediumint", "int", "bigint", "year"}
BINARIES = {"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob", "vector"}
FLOATS = {"float", "double"}
GEOMETRIES = {
    *("geometry", "point", "linestring", "polygon", "multipoint", "multilinestring"),
    *("multipolygon", "geometrycollection", "geomcollection"),
}
TEXTS = {
    *("char", "varchar", "tinytext", "text", "mediumtext", "longtext", "json", "enum", "set"),
}
PLAIN = {"decimal", "date", "time", "datetime", "timestamp", "uuid", "inet4", "inet6"}
KNOWN = INTEGERS | BINARIES | FLOATS | GEOMETRIES | TEXTS | PLAIN | {"bit"}

_INTEGER_MAX = 2**63 - 1
_DIGITS = re.compile(r"[0-9]+\Z")
_DECIMAL = re.compile(r"-?[0-9]+(\.[0-9]+)?\Z")
_SRID_BYTES = 4


class MySqlColumn(NamedTuple):
    """A column by the server's schema. ``default`` is its text, None for NULL.

    ``computed``: its values are computed from other columns and stored.
    """

    name: str
    type: str
    declared: str
    nullable: bool
    default: str | None
    charset: str
    computed: bool = False

    @property
    def unsigned(self) -> bool:
        return "unsigned" in self.declared

    @property
    def identity(self) -> list[str]:
        """Name and type. While they stay the same, so do the values."""
        return [self.name, f"{self.declared} {self.charset}".strip()]


class MySqlTable(NamedTuple):
    """A followed table. ``key`` has its key columns in the order of their index.

    ``target`` is the name in rowtide, whose key has the same columns in ``target_key``'s
    order. ``transactional``: a rollback undoes its rows. ``rows_estimate`` is the
    server's own.
    """

    database: str
    name: str
    columns: tuple[MySqlColumn, ...]
    key: tuple[MySqlColumn, ...]
    key_index: str
    target: str
    target_key: tuple[MySqlColumn, ...]
    transactional: bool = True
    rows_estimate: int | None = None

    @property
    def full_name(self) -> str:
        return f"{self.database}.{self.name}"

    @property
    def key_names(self) -> Sequence[str]:
        """The columns of the key in rowtide's order."""
        return [column.name for column in self.target_key]

    @property
    def shape(self) -> TableShape:
        """The table as rowtide has it."""
        parts = [KeyColumn(column.name, _key_type(column)) for column in self.target_key]
        return TableShape(self.target, tuple(parts))


def _key_type(column: MySqlColumn) -> int:
    if column.type in INTEGERS or column.type == "bit":
        return INTEGER
    return BINARY if column.type in BINARIES else STRING


def key_part(column: MySqlColumn) -> Callable[[Scalar], Scalar] | None:
    """Return the conversion of a value for a key, None if there is none."""
    return int if column.type == "bit" else None


def above_64_bits(value: int) -> Scalar:
    """Return an unsigned integer, as its digits if it is too large for an INTEGER."""
    return value if value <= _INTEGER_MAX else str(value)


def select_term(column: MySqlColumn) -> str:
    """Return the SELECT term of a column, so that no digit is lost."""
    name = quote_name(column.name)
    # A FLOAT would be shown with six digits.
    return f"CAST({name} AS DOUBLE)" if column.type == "float" else name


def text_reader(column: MySqlColumn) -> Callable[[bytes], Scalar]:
    """Return the conversion of a value in a query's result to rowtide's."""
    kind = column.type
    if kind in INTEGERS:
        return _wide_integer if kind == "bigint" and column.unsigned else int
    if kind in FLOATS:
        return float
    if kind in BINARIES:
        return bytes
    if kind in GEOMETRIES:
        return lambda text: text[_SRID_BYTES:]
    if kind == "bit":
        return _flag if column.declared == "bit(1)" else _bits
    if kind == "decimal":
        return _decimal if "zerofill" in column.declared else _plain
    return _text


def _wide_integer(text: bytes) -> Scalar:
    return above_64_bits(int(text))


def _flag(text: bytes) -> Scalar:
    return text != b"\x00"


def _bits(text: bytes) -> Scalar:
    return above_64_bits(int.from_bytes(text, "big"))


def _plain(text: bytes) -> Scalar:
    return text.decode("ascii")


def _decimal(text: bytes) -> Scalar:
    whole, point, rest = text.decode("ascii").partition(".")
    return (whole.lstrip("0") or "0") + point + rest


def _text(text: bytes) -> Scalar:
    return text.decode("utf-8", "replace")


def quote_name(name: str) -> str:
    """Return a name quoted for a statement."""
    return "`" + name.replace("`", "``") + "`"


def cursor_literal(column: MySqlColumn, value: Scalar) -> str:
    """Return a key's value for a statement, comparable by the column's index.

    It has no quotes or escapes, because these depend on the session's sql_mode and
    charset.
    """
    kind = column.type
    if isinstance(value, bytes):
        return f"x'{value.hex()}'"
    if kind in INTEGERS or kind in ("bit", "decimal"):
        return str(int(value)) if isinstance(value, bool) else str(value)
    return f"_utf8mb4 x'{str(value).encode().hex()}'"


def fits_key(column: MySqlColumn, value: Scalar) -> bool:
    """True if a key value of rowtide can be a column's value in a statement.

    A client may have written rows to rowtide's table that the source can't have.
    """
    kind = column.type
    if kind in BINARIES:
        return isinstance(value, bytes)
    if kind in INTEGERS or kind == "bit":
        return isinstance(value, int) or (isinstance(value, str) and bool(_DIGITS.match(value)))
    if not isinstance(value, str):
        return False
    return kind != "decimal" or bool(_DECIMAL.match(value))


def unfit_key(columns: Sequence[MySqlColumn]) -> str:
    """Return why columns can't be a key, as a text for people; empty if they can.

    An ENUM is sorted by number but compared as a text. A FLOAT is not equal to what it
    shows.
    """
    unfit = [c for c in columns if c.type in FLOATS | GEOMETRIES | {"enum", "set", "vector"}]
    return ", ".join(f"{column.name} ({column.type})" for column in unfit)
