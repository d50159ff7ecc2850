"""The event before rows in the binlog that describes their table.

    table id 6 | flags 2 | length 1, database, 0 | length 1, table, 0 | columns n | types n |
    their metadata | which are nullable | optional metadata, as type 1, length, value

The optional metadata (``binlog_row_metadata=FULL``) have names, signs, charsets, and the
members of enums and sets in the column's own charset. Numbers are those of MySQL's
``Table_map_event``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from rowtide.connectors.sources.mysql.packets import length_at

__all__ = ["BinlogColumn", "TableMap", "parse_table_map", "table_name"]

TINY, SHORT, LONG, FLOAT, DOUBLE = 1, 2, 3, 4, 5
TIMESTAMP, LONGLONG, INT24, DATE, TIME, DATETIME, YEAR, NEWDATE = 7, 8, 9, 10, 11, 12, 13, 14
VARCHAR, BIT, TIMESTAMP2, DATETIME2, TIME2 = 15, 16, 17, 18, 19
BLOB_COMPRESSED, VARCHAR_COMPRESSED = 140, 141
VECTOR, JSON = 242, 245
NEWDECIMAL, ENUM, SET, BLOB, VAR_STRING, STRING, GEOMETRY = 246, 247, 248, 252, 253, 254, 255

_ONE_BYTE = {
    FLOAT,
    DOUBLE,
    BLOB,
    GEOMETRY,
    TIMESTAMP2,
    DATETIME2,
    TIME2,
    BLOB_COMPRESSED,
    VECTOR,
    JSON,
}
_TWO_BYTES = {VARCHAR, BIT, NEWDECIMAL, STRING, VAR_STRING, VARCHAR_COMPRESSED}
_NUMBERS = {TINY, SHORT, INT24, LONG, LONGLONG, NEWDECIMAL, FLOAT, DOUBLE, YEAR}
_CHARACTERS = {STRING, VAR_STRING, VARCHAR, BLOB, VECTOR, BLOB_COMPRESSED, VARCHAR_COMPRESSED}
_LISTS = {ENUM, SET}

_SIGNS, _CHARSET, _CHARSETS, _NAMES, _SETS, _ENUMS = 1, 2, 3, 4, 5, 6
_LIST_CHARSET, _LIST_CHARSETS = 10, 11


@dataclass(slots=True)
class BinlogColumn:
    """A column. ``size`` is from its type's metadata: a length, the bytes of one, digits
    ...

    ``collation`` is the server's number. ``members`` are those of an enum or set, in its
    charset.
    """

    type: int
    size: int = 0
    digits: int = 0
    name: str = ""
    unsigned: bool = False
    collation: int = 0
    members: list[bytes] = field(default_factory=list)


@dataclass(slots=True)
class TableMap:
    """The table of the rows that follow. If the binlog has no names, columns have none."""

    database: str
    table: str
    columns: list[BinlogColumn]


def table_name(body: bytes) -> tuple[str, str]:
    """Return database and table of an event's body."""
    length = body[8]
    end = 9 + length
    return body[9:end].decode(), body[end + 2 : end + 2 + body[end + 1]].decode()


def parse_table_map(body: bytes, *, geometries_too: bool = False) -> TableMap:
    """Return the content of an event's body without its checksum.

    ``geometries_too``: geometries have charsets too.
    """
    characters = _CHARACTERS | {GEOMETRY} if geometries_too else _CHARACTERS
    database, table = table_name(body)
    at = 8 + 1 + body[8] + 1
    at += 1 + body[at] + 1
    count, at = length_at(body, at)
    columns = [BinlogColumn(kind) for kind in body[at : at + count]]
    length, at = length_at(body, at + count)
    _read_sizes(columns, body[at : at + length])
    at += length + (count + 7) // 8
    while at < len(body):
        length, begin = length_at(body, at + 1)
        at, kind = begin + length, body[at]
        _describe(columns, kind, body[begin:at], characters)
    return TableMap(database, table, columns)


def _read_sizes(columns: list[BinlogColumn], sizes: bytes) -> None:
    at = 0
    for column in columns:
        if column.type in _ONE_BYTE:
            column.size = sizes[at]
            at += 1
        elif column.type in _TWO_BYTES:
            first, second = sizes[at], sizes[at + 1]
            at += 2
            if column.type in (VARCHAR, VARCHAR_COMPRESSED):
                column.size = first | second << 8
            elif column.type == NEWDECIMAL:
                column.size, column.digits = first, second
            elif column.type == BIT:
                column.size = second * 8 + first
            elif first in (ENUM, SET):
                column.type, column.size = first, second
            else:
                # A length above 255 has its upper two bits, inverted, in the type.
                column.type, column.size = STRING, ((first << 4 & 0x300) ^ 0x300) + second


def _describe(columns: list[BinlogColumn], kind: int, value: bytes, characters: set[int]) -> None:
    if kind == _SIGNS:
        numbers = [column for column in columns if column.type in _NUMBERS]
        for index, column in enumerate(numbers):
            column.unsigned = bool(value[index // 8] & 0x80 >> index % 8)
    elif kind in (_CHARSET, _LIST_CHARSET):
        numbers_of = list(_numbers(value))
        described = _of(columns, characters if kind == _CHARSET else _LISTS)
        for column in described:
            column.collation = numbers_of[0]
        for index, collation in zip(numbers_of[1::2], numbers_of[2::2], strict=True):
            described[index].collation = collation
    elif kind in (_CHARSETS, _LIST_CHARSETS):
        described = _of(columns, characters if kind == _CHARSETS else _LISTS)
        for column, collation in zip(described, _numbers(value), strict=True):
            column.collation = collation
    elif kind == _NAMES:
        for column, name in zip(columns, _strings(value), strict=True):
            column.name = name.decode()
    elif kind in (_SETS, _ENUMS):
        _read_members(_of(columns, {SET if kind == _SETS else ENUM}), value)


def _of(columns: list[BinlogColumn], types: set[int]) -> list[BinlogColumn]:
    return [column for column in columns if column.type in types]


def _numbers(value: bytes) -> Iterator[int]:
    at = 0
    while at < len(value):
        number, at = length_at(value, at)
        yield number


def _strings(value: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(value):
        length, begin = length_at(value, at)
        at = begin + length
        yield value[begin:at]


def _read_members(columns: list[BinlogColumn], value: bytes) -> None:
    at = 0
    for column in columns:
        count, at = length_at(value, at)
        for _ in range(count):
            length, begin = length_at(value, at)
            at = begin + length
            column.members.append(value[begin:at])
