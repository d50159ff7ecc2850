"""A table's primary key in the target: its columns, a row's values, and ranges of keys.

``native``: the key's own columns are the PRIMARY KEY. Together they must fit into
InnoDB's 3072 bytes. Texts and bytes share what integers leave, and a row with a longer
key is refused. ``hashed``: the PRIMARY KEY is a column with the SHA-256 of the key, so
every key fits. Texts are compared by code points, with trailing blanks. That is the order
of rowtide's keys.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from rowtide.connectors.rows import SinkRow
from rowtide.connectors.sinks.mysql.values import key_literal
from rowtide.core.values import key as key_order
from rowtide.core.values import variant
from rowtide.core.values.schema import BINARY, INTEGER, STRING, KeyColumn

__all__ = ["HASH", "KEYS_AT_ONCE", "KeyLayout", "join_names", "quote_name"]

HASH = "_rowtide_key"
KEY_BYTES_MAX = 3072
"""Bytes of an InnoDB index, summed over the longest value of each column."""
CHARACTER_BYTES = 4
VALUE_BYTES_MAX = 1024
"""Bytes of one key column's value in rowtide."""
INTEGER_BYTES = 8
PREFIX = 255
KEYS_AT_ONCE = 500
"""Keys in one condition. MariaDB makes a join of a longer list."""


class KeyLayout:
    """How the target stores one table's keys."""

    def __init__(self, columns: Sequence[KeyColumn], *, hashed: bool, collation: str) -> None:
        self.columns = tuple(columns)
        self.hashed = hashed
        self.collation = collation
        self.names = tuple(column.name for column in columns)
        self.primary = (HASH,) if hashed else self.names
        wide = [column for column in columns if column.type != INTEGER]
        share = KEY_BYTES_MAX - INTEGER_BYTES * (len(columns) - len(wide))
        self._share = VALUE_BYTES_MAX if hashed else share // max(1, len(wide))

    def definitions(self) -> list[str]:
        """Return the columns for CREATE TABLE."""
        named = [f"{quote_name(HASH)} BINARY(32) NOT NULL"] if self.hashed else []
        return named + [f"{quote_name(c.name)} {self._type(c)} NOT NULL" for c in self.columns]

    def primary_definitions(self) -> list[str]:
        """Return the columns of the primary key only."""
        return self.definitions()[: len(self.primary)]

    def indexes(self) -> list[str]:
        """Return the keys for CREATE TABLE."""
        found = [f"PRIMARY KEY ({join_names(self.primary)})"]
        if self.hashed:
            first = self.columns[0]
            length = "" if first.type == INTEGER else f"({PREFIX})"
            found.append(f"KEY ({quote_name(first.name)}{length})")
        return found

    def too_long(self, row: SinkRow) -> str:
        """Return why a row's key does not fit, an empty text if it fits."""
        for column, (_, value) in zip(self.columns, row.key, strict=True):
            if isinstance(value, str | bytes) and len(value) > self._length(column):
                return (
                    f"the key column {column.name} has {len(value)} of at most "
                    f"{self._length(column)} characters; `primary_key: hashed` takes longer ones"
                )
        return ""

    def row_values(self, row: SinkRow) -> list[str]:
        """Return a row's values for ``definitions`` as SQL."""
        values = [key_literal(value) for _, value in row.key]
        return [self._hash(row.key_bytes), *values] if self.hashed else values

    def primary_values(self, row: SinkRow) -> list[str]:
        """Return a row's values of the primary key as SQL."""
        if self.hashed:
            return [self._hash(row.key_bytes)]
        return [key_literal(value) for _, value in row.key]

    def one_of(self, keys: Sequence[Sequence[str]], *, table: str = "") -> str:
        """Return the condition that a row has one of these keys (``primary_values``)."""
        at = f"{table}." if table else ""
        names = [at + quote_name(name) for name in self.primary]
        if len(names) == 1:
            return f"{names[0]} IN ({','.join(key[0] for key in keys)})"
        either = (
            "(" + " AND ".join(f"{n}={v}" for n, v in zip(names, key, strict=True)) + ")"
            for key in keys
        )
        return " OR ".join(either)

    def within(self, begin: bytes, end: bytes) -> str:
        """Return the condition that a key is in a range of encoded keys."""
        low = self._at_least(key_order.decode(begin), 0)
        high = self._below(key_order.decode(end), 0) if end else "TRUE"
        return f"({low}) AND ({high})"

    def order(self) -> str:
        """Return the ORDER BY list for key order."""
        if not self.hashed:
            return join_names(self.names)
        # Without an index the server pads values with zeros to sort them, and padded
        # values may be equal.
        return ",".join(f"{quote_name(name)},LENGTH({quote_name(name)})" for name in self.names)

    def _at_least(self, bound: Sequence[bytes], at: int) -> str:
        if at == len(bound):
            return "TRUE"  # Equal so far, and the key is longer.
        if at == len(self.columns):
            return "FALSE"  # The bound is longer, so the key is less.
        if bound[at] in (variant.V_INF_MIN, variant.V_INF_MAX):
            return "TRUE" if bound[at] == variant.V_INF_MIN else "FALSE"
        return self._compare(bound[at], at, ">", self._at_least(bound, at + 1))

    def _below(self, bound: Sequence[bytes], at: int) -> str:
        if at == len(bound):
            return "FALSE"
        if at == len(self.columns):
            return "TRUE"
        if bound[at] in (variant.V_INF_MIN, variant.V_INF_MAX):
            return "TRUE" if bound[at] == variant.V_INF_MAX else "FALSE"
        return self._compare(bound[at], at, "<", self._below(bound, at + 1))

    def _compare(self, bound: bytes, at: int, sign: str, behind: str) -> str:
        name, value = quote_name(self.names[at]), key_literal(variant.decode(bound))
        if behind in ("TRUE", "FALSE"):
            return f"{name} {sign}{'=' if behind == 'TRUE' else ''} {value}"
        # The first part is redundant, but the server needs it to use the index.
        return f"{name} {sign}= {value} AND ({name} {sign} {value} OR ({behind}))"

    def _hash(self, key: bytes) -> str:
        return f"x'{hashlib.sha256(key).hexdigest()}'"

    def _length(self, column: KeyColumn) -> int:
        """Return the length limit: characters of a text, bytes of a binary."""
        if column.type == STRING and not self.hashed:
            return min(VALUE_BYTES_MAX, self._share // CHARACTER_BYTES)
        return min(VALUE_BYTES_MAX, self._share)

    def _type(self, column: KeyColumn) -> str:
        if column.type == INTEGER:
            return "BIGINT"
        if column.type == BINARY:
            return f"VARBINARY({self._length(column)})"
        return f"VARCHAR({self._length(column)}) CHARACTER SET utf8mb4 COLLATE {self.collation}"


def quote_name(name: str) -> str:
    """Return a name quoted for SQL."""
    return "`" + name.replace("`", "``") + "`"


def join_names(names: Iterable[str]) -> str:
    """Return quoted names, separated by commas."""
    return ",".join(quote_name(name) for name in names)
