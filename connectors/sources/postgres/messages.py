"""The messages of pgoutput, version 1 of its protocol. Integers are big-endian.

    B  LSN of the commit 8, time 8, transaction 4
    C  flags 1, LSN of the commit 8, LSN of its end 8, time 8
    R  table 4, schema 0, name 0, identity 1, columns 2, each: is key 1, name 0, type 4, modifier 4
    I  table 4, N, row     U  table 4, [K or O, row], N, row     D  table 4, K or O, row
    T  tables 4, options 1, tables 4 each

    row: columns 2, each: n (NULL), u (not sent: it is not in the row and did not change),
         t and its length 4 and text

K is the old key, sent if it changed. O is the whole old row, sent if the table's identity
is FULL. Other kinds (origins, types, logical messages) are not needed by a source.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

__all__ = [
    "BEGIN",
    "COMMIT",
    "DELETE",
    "INSERT",
    "RELATION",
    "TRUNCATE",
    "UNCHANGED",
    "UPDATE",
    "Begin",
    "Relation",
    "RelationColumn",
    "Row",
    "commit_end",
    "parse_begin",
    "parse_relation",
    "parse_row",
    "parse_truncate",
    "table_of",
]

BEGIN, COMMIT, RELATION = ord("B"), ord("C"), ord("R")
INSERT, UPDATE, DELETE, TRUNCATE = ord("I"), ord("U"), ord("D"), ord("T")

UNCHANGED = b"\x00unchanged"
"""In place of a value that was not sent. No text of the server has a zero byte."""

Row = list[bytes | None]

_BEGIN = Struct(">qqI")
_END = Struct(">q")
_INTEGER = Struct(">I")
_SHORT = Struct(">H")
_TYPE = Struct(">Ii")
_YEAR_2000_MS = 946_684_800_000
_BUILT_IN_END = 16384
_NULL, _NOT_SENT = ord("n"), ord("u")


class Begin(NamedTuple):
    """The begin of a transaction: LSN and time of its commit, and its number (32 bits)."""

    lsn: int
    time_ms: int
    xid: int


class RelationColumn(NamedTuple):
    """A column of the rows that follow."""

    name: str
    type_oid: int

    @property
    def is_built_in(self) -> bool:
        """True if the type is built in, so it is no domain."""
        return self.type_oid < _BUILT_IN_END


class Relation(NamedTuple):
    """A table as it is for the rows that follow."""

    oid: int
    schema: str
    name: str
    identity: str
    columns: Sequence[RelationColumn]


def parse_begin(message: bytes) -> Begin:
    """Return the content of a B."""
    lsn, time_us, xid = _BEGIN.unpack_from(message, 1)
    return Begin(lsn, time_us // 1000 + _YEAR_2000_MS, xid)


def commit_end(message: bytes) -> int:
    """Return where the commit of a C ends."""
    end: int = _END.unpack_from(message, 10)[0]
    return end


def table_of(message: bytes) -> int:
    """Return the table of an R, I, U or D."""
    oid: int = _INTEGER.unpack_from(message, 1)[0]
    return oid


def parse_truncate(message: bytes) -> list[int]:
    """Return the tables of a T."""
    count = _INTEGER.unpack_from(message, 1)[0]
    return [_INTEGER.unpack_from(message, 6 + 4 * number)[0] for number in range(count)]


def parse_relation(message: bytes) -> Relation:
    """Return the content of an R."""
    schema, at = _text(message, 5)
    name, at = _text(message, at)
    identity = chr(message[at])
    count = _SHORT.unpack_from(message, at + 1)[0]
    at += 3
    columns = []
    for _ in range(count):
        column, at = _text(message, at + 1)
        columns.append(RelationColumn(column, _TYPE.unpack_from(message, at)[0]))
        at += _TYPE.size
    return Relation(table_of(message), schema, name, identity, columns)


def parse_row(message: bytes, at: int) -> tuple[Row, int]:
    """Return a row and its end."""
    row: Row = []
    count = message[at] << 8 | message[at + 1]
    at += 2
    for _ in range(count):
        kind = message[at]
        at += 1
        if kind == _NULL:
            row.append(None)
        elif kind == _NOT_SENT:
            row.append(UNCHANGED)
        else:
            begin = at + 4
            at = begin + int.from_bytes(message[at:begin], "big")
            row.append(message[begin:at])
    return row, at


def _text(message: bytes, at: int) -> tuple[str, int]:
    end = message.index(0, at)
    return message[at:end].decode(), end + 1
