"""A source's rows as the bytes of requests that write them.

A row is a part of a BulkImport: kind, cells, position, time. Its cells are PlainBuffer, with the
checksums that the store keeps and answers with. This is written out by hand, because a source's
speed is that of its encoding; a test compares the bytes with those of the generated classes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from struct import Struct
from typing import NamedTuple

from rowtide.connectors.rows import SourceRow
from rowtide.core import plainbuffer, variant
from rowtide.core.crc8 import STEP, crc8
from rowtide.core.variant import Scalar
from rowtide.core.wire import ots_pb2 as pb

__all__ = ["Request", "encoded_row", "requests"]

ROWS_MAX = 500
BYTES_MAX = 1024 * 1024
"""Of rows in one request. The next one is encoded while the store works on it."""

_PUT, _UPDATE, _DELETE = (
    b"\x08" + bytes((kind,)) + b"\x12" for kind in (pb.PUT, pb.UPDATE, pb.DELETE)
)
_POSITION = b"\xca\x3e"  # Field 1001, bytes.
_TIME = b"\xd0\x3e"  # Field 1002, a number.
_SOURCE = b"\xca\x3e"  # Field 1001 of the request, a string.

_LENGTH = Struct("<I").pack
_TYPED_INTEGER = Struct("<IBq").pack
_TYPED_DOUBLE = Struct("<IBd").pack
_TYPED_LENGTH = Struct("<IBI").pack
_ENDS = tuple(b"\x0a" + bytes((checksum,)) for checksum in range(256))
_ROW_ENDS = tuple(b"\x09" + bytes((checksum,)) for checksum in range(256))


class Request(NamedTuple):
    """A request of one table, and its rows."""

    body: bytes
    rows: Sequence[SourceRow]


def requests(source: str, table: str, rows: Iterable[SourceRow]) -> Iterator[Request]:
    """Yield the requests that write a table's rows, each encoded only when it is asked for."""
    name = table.encode()
    head = b"\x0a" + _varint(len(name)) + name
    name = source.encode()
    tail = _SOURCE + _varint(len(name)) + name
    parts = [head]
    taken: list[SourceRow] = []
    size = 0
    for row in rows:
        encoded = encoded_row(row)
        if taken and (size + len(encoded) > BYTES_MAX or len(taken) == ROWS_MAX):
            yield Request(b"".join((*parts, tail)), taken)
            parts, taken, size = [head], [], 0
        parts += (b"\x12", _varint(len(encoded)), encoded)
        size += len(encoded)
        taken.append(row)
    if taken:
        yield Request(b"".join((*parts, tail)), taken)


def encoded_row(row: SourceRow) -> bytes:
    """Return a row as a part of a request. Raises ``Rejected`` for a value that has no place."""
    _, key, columns, whole, time_ms, position = row
    parts = [b"\x75\x00\x00\x00\x01"]
    checksums = bytearray()
    for name, part in key:
        _add(parts, checksums, _name(name), part)
    if columns is None:
        kind = _DELETE
        parts.append(b"\x08")
    else:
        kind = _PUT if whole else _UPDATE
        begin = len(parts)
        parts.append(b"\x02")
        for name, value in columns.items():
            if value is not None:
                _add(parts, checksums, _name(name), value)
            elif not whole:
                removed = _name(name)
                parts.append(removed.deleted)
                checksums.append(removed.deleted_checksum)
        if len(parts) == begin + 1:
            parts.pop()
    parts.append(_ROW_ENDS[STEP[crc8(checksums) ^ (columns is None)]])
    cells = b"".join(parts)
    return b"".join(
        (
            kind,
            _varint(len(cells)),
            cells,
            _POSITION,
            _varint(len(position)),
            position,
            _TIME,
            _varint(time_ms),
        )
    )


class _Name(NamedTuple):
    """A column's name: what stands before its value, its checksum, and a delete of the column."""

    head: bytes
    checksum: int
    deleted: bytes
    deleted_checksum: int


@lru_cache(4096)
def _name(name: str) -> _Name:
    encoded = name.encode()
    gone = plainbuffer.delete_cell(encoded, None)
    head = b"\x03\x04" + _LENGTH(len(encoded)) + encoded + b"\x05"
    return _Name(head, crc8(encoded), plainbuffer.cell_piece(gone), gone.checksum)


def _add(parts: list[bytes], checksums: bytearray, name: _Name, value: Scalar) -> None:
    """Add a cell. What is packed begins with the value's length, which is no part of its sum."""
    kind = type(value)
    if kind is str:
        text = value.encode()  # type: ignore[union-attr]
        packed = _TYPED_LENGTH(len(text) + 5, variant.STRING, len(text)) + text
    elif kind is int:
        packed = _TYPED_INTEGER(9, variant.INTEGER, value)
    elif kind is float:
        packed = _TYPED_DOUBLE(9, variant.DOUBLE, value)
    else:
        encoded = variant.encode(value)
        packed = _LENGTH(len(encoded)) + encoded
    checksum = crc8(packed[4:], name[1])
    checksums.append(checksum)
    parts += (name[0], packed, _ENDS[checksum])


def _varint(value: int) -> bytes:
    if value < 128:
        return _BYTES[value]
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


_BYTES = tuple(bytes((byte,)) for byte in range(128))
