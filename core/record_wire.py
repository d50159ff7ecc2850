"""A log record's row as the stream shows it, without taking its cells apart.

A cell in the log and a cell on the wire hold the same name, value and checksum under other heads.
Going through ``Cell`` objects costs twice as much per record as writing the heads anew, and a
drained stream does nothing else: measured 26 us against 12 for a row of 12 cells.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from rowtide.core import plainbuffer, record
from rowtide.core.cell import Cell
from rowtide.core.plainbuffer import SequenceInfo
from rowtide.core.record_avro import (
    LONG_BRANCH,
    SHORT_LENGTHS,
    STRING_BRANCH,
    after_short_name,
    read_block,
    read_count,
    read_key,
    read_long,
    write_long,
)

__all__ = ["DELETE_ROW", "PUT_ROW", "UPDATE_ROW", "StreamRow", "stream_row"]

PUT_ROW, UPDATE_ROW, DELETE_ROW = 1, 2, 3
"""Numbers of the protocol's ActionType."""

_ACTIONS = {
    record.PUT_BODY: PUT_ROW,
    record.UPDATE_BODY: UPDATE_ROW,
    record.DELETE_BODY: DELETE_ROW,
}
_BYTE = [bytes((number,)) for number in range(256)]
_NAME_HEADS = [b"\x03\x04" + size.to_bytes(4, "little") for size in range(64)]
_STRING_HEADS = [
    b"\x05" + (size + 5).to_bytes(4, "little") + b"\x03" + size.to_bytes(4, "little")
    for size in range(64)
]
_INTEGER = struct.Struct("<BIBq")
_VERSION_TAIL = struct.Struct("<BqB")


class StreamRow(NamedTuple):
    """One stream record. ``before`` holds the original columns where the stream asks for them."""

    action: int
    stamp: int
    row: bytes
    before: bytes | None


def stream_row(value: bytes, offset: int, names: Sequence[bytes]) -> StreamRow | None:
    """Return the stream record in a log entry; None for a void or a hidden one.

    ``names`` are the key columns'. Raises ``record.CorruptRecord``.
    """
    try:
        envelope, at = record.read_envelope(value)
        action = _ACTIONS.get(value[at])
        if envelope.at != offset or action is None:
            return None
        key, at = read_key(value, at + 1)
        cells, checksums = b"", b""
        if action != DELETE_ROW:
            cells, checksums, at = _wire_cells(value, at)
        before = _wire_cells(value, at + 1)[:2] if value[at] else None
    except (ValueError, IndexError, KeyError, struct.error) as error:
        raise record.corrupt(value, error) from error
    piece, state = plainbuffer.key_piece(list(zip(names, key, strict=True)))
    extension = plainbuffer.extension(SequenceInfo(0, envelope.stamp, 0))
    origin = None if before is None else _row(piece, state, *before, extension)
    return StreamRow(
        action, envelope.stamp, _row(piece, state, cells, checksums, extension), origin
    )


def _row(key: bytes, state: int, cells: bytes, checksums: bytes, extension: bytes) -> bytes:
    crc = plainbuffer.row_checksum(state, checksums)
    tag = b"\x02" if cells else b""
    return b"".join((plainbuffer.HEADER, key, tag, cells, extension, b"\x09", _BYTE[crc]))


def _wire_cells(value: bytes, at: int) -> tuple[bytes, bytes, int]:
    """Return an array of cells as wire bytes, their checksums, and where the array ends."""
    parts: list[bytes] = []
    checksums = bytearray()
    count, at = read_count(value, at)
    while count:
        at = _wire_block(value, at, count, parts, checksums)
        count, at = read_count(value, at)
    return b"".join(parts), bytes(checksums), at


def _wire_block(value: bytes, at: int, count: int, parts: list[bytes], checksums: bytearray) -> int:
    """Append ``count`` cells; return where they end. Puts of the last version go the short way."""
    version = tail = b"\xff"
    version_size = 1
    for _ in range(count):
        size = SHORT_LENGTHS[value[at]]
        if 0 <= size < 64:
            name, op, branch, byte = after_short_name[size](value, at + 1)
            start = at + size + 4
            if op == 0 and branch == STRING_BRANCH and (length := SHORT_LENGTHS[byte]) >= 0:
                end = start + length
                head, data = _STRING_HEADS[length], value[start:end]
            elif op == 0 and branch == LONG_BRANCH:
                number, end = read_long(value, start - 1)
                head, data = b"", _INTEGER.pack(5, 9, 0, number)
            else:
                end = -1
            if end > 0 and value.startswith(version, end):
                end += version_size
                check = value[end]
                parts += (_NAME_HEADS[size], name, head, data, tail, _BYTE[check])
                checksums.append(check)
                at = end + 1
                continue
        cells: list[Cell] = []
        at = read_block(value, at, 1, cells)
        cell = cells[0]
        parts.append(plainbuffer.cell_piece(cell))
        checksums.append(cell.checksum)
        if cell.version_ms is not None:
            version = b"\x02" + write_long(cell.version_ms)
            version_size = len(version)
            tail = _VERSION_TAIL.pack(7, cell.version_ms, 10)
    return at
