"""A piece of a row as it is stored, in RocksDB and in the changelog.

A narrow row is one chunk. A wide row is cut at cell borders into several chunks, ordered by column
and, within a column, newest version first. Their ranges cover the row without gaps. A chunk has the
commit stamp up to which it is complete. If two chunks cover a place, the one with the higher stamp
is valid there (``chunk_merge.py``).

Value: a header of 32 bytes (little-endian), the border at which the chunk ends, then the cells as
PlainBuffer bytes. In a row's first chunk they are a whole wire row (key, cells, checksum), so a
narrow row is read by slicing. ``docs/internals/formats/chunk.md`` has the bytes.

Key: ``r``, the table's id (4 bytes, big-endian), the encoded primary key, and for a later chunk its
first border. No encoded key is a prefix of another, so a row's chunks are together, in order,
before the next row's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from typing import NamedTuple

from rowtide.core import native
from rowtide.core.protocol import plainbuffer
from rowtide.core.protocol.row_form import PackedCells, RowForm
from rowtide.core.values.cell import Cell
from rowtide.core.values.crc8 import crc8
from rowtide.core.values.limits import INT64_MAX

__all__ = [
    "CHUNK_BYTES",
    "DELETED",
    "FLAGS_AT",
    "VARIANT_OVERHEAD",
    "Chunk",
    "Header",
    "border",
    "decode",
    "decode_border",
    "encode",
    "header",
    "key_state",
    "newest_version",
    "pack_header",
    "row_end",
    "row_key",
    "table_prefix",
]

CHUNK_BYTES = 32 * 1024
"""A row that is larger is cut into pieces. A single cell is never cut."""

FORMAT = 1
FLAGS_AT = 1
"""Where a chunk's flags are, as in ``Header``."""
DELETED = 1
"""Flag: the row was deleted at the stamp. Kept until the changelog's mark has passed it."""

_HEADER = Struct("<BBHHqqIIH")
HEADER_BYTES = _HEADER.size
_VERSION = Struct(">Q")
_TABLE_ID = Struct(">I")
VARIANT_OVERHEAD = {0: 1, 1: 1, 2: 1, 3: 5, 7: 5}
"""Bytes of a variant besides its value: its type and, for STRING and BLOB, its length."""


class Header(NamedTuple):
    """The fixed part of a chunk. ``version_min`` is INT64_MAX and ``versions_max`` 0 when empty.

    ``versions_max`` is the highest number of versions of a column here. With ``version_min`` it
    shows if every cell is visible, without decoding any. ``data_bytes`` is the size for capacity
    units: names and values of the cells, without the key. ``begin_bytes`` is the length of the
    border at the end of the chunk's own key; the rest of that key is the row's.
    """

    format: int
    flags: int
    end_bytes: int
    key_bytes: int
    stamp: int
    version_min: int
    versions_max: int
    data_bytes: int
    begin_bytes: int


@dataclass(slots=True)
class Chunk:
    """A decoded chunk. It covers the borders from ``begin`` up to, but not including, ``end``.

    ``begin`` is empty in a row's first chunk, ``end`` in the chunk that reaches the row's end.
    ``key_piece`` and ``key_state`` (the row checksum after the key's cells) are set only in a row's
    first chunk.
    """

    stamp: int
    cells: Sequence[Cell]
    end: bytes = b""
    deleted: bool = False
    key_piece: bytes = b""
    key_state: int = 0
    begin: bytes = b""


header = _HEADER.unpack_from
"""Unpack a chunk's header; use ``Header._make(header(value))`` if names help."""

pack_header = _HEADER.pack


def table_prefix(table_id: int) -> bytes:
    """Return the first five bytes of every chunk key of a table."""
    return b"r" + _TABLE_ID.pack(table_id)


def row_key(table_id: int, encoded_key: bytes) -> bytes:
    """Return the key of a row's first chunk."""
    return b"r" + _TABLE_ID.pack(table_id) + encoded_key


def row_end(first_key: bytes) -> bytes:
    """Return a key above every chunk of the row and below every other row's.

    A border starts with a name byte or the escape 00, both below FF. So no border begins with 0xFF.
    """
    return first_key + b"\xff"


def border(name: bytes, version_ms: int = INT64_MAX) -> bytes:
    """Return the border at a cell: column ascending, version descending."""
    return name.replace(b"\0", b"\0\xff") + b"\0\x01" + _VERSION.pack(INT64_MAX - version_ms)


def decode_border(edge: bytes) -> tuple[bytes, int]:
    """Return the (column name, version) of a border."""
    (inverted,) = _VERSION.unpack(edge[-8:])
    return edge[:-10].replace(b"\0\xff", b"\0"), INT64_MAX - inverted


def encode(chunk: Chunk) -> bytes:
    """Return the chunk's stored bytes. Cells must be in order: by name, newest version first."""
    cells = chunk.cells
    made = native.kernels.stored_chunk(
        cells,
        chunk.stamp,
        chunk.deleted,
        chunk.end,
        chunk.key_piece,
        chunk.key_state,
        len(chunk.begin),
    )
    if made is not None:
        return made
    version_min, versions_max, data_bytes = _measure(cells)
    head = pack_header(
        FORMAT,
        DELETED if chunk.deleted else 0,
        len(chunk.end),
        len(chunk.key_piece),
        chunk.stamp,
        version_min,
        versions_max,
        data_bytes,
        len(chunk.begin),
    )
    pieces = plainbuffer.cells_piece(cells)
    if not chunk.key_piece:
        return head + chunk.end + pieces
    checksum = plainbuffer.row_checksum(chunk.key_state, plainbuffer.checksums(cells))
    tag = b"\x02" if cells else b""
    return b"".join(
        (head, chunk.end, chunk.key_piece, tag, pieces, b"\x09", checksum.to_bytes(1, "little"))
    )


def decode(key: bytes, value: bytes) -> Chunk:
    """Return the chunk of stored bytes. They are our own, so they are not checked."""
    _, flags, end_bytes, key_bytes, stamp, _, _, _, begin_bytes = header(value)
    start = HEADER_BYTES + end_bytes
    key_piece = value[start : start + key_bytes]
    return Chunk(
        stamp=stamp,
        cells=cells_of(value),
        end=value[HEADER_BYTES:start],
        deleted=bool(flags & DELETED),
        key_piece=key_piece,
        key_state=key_state(key_piece),
        begin=key[len(key) - begin_bytes :],
    )


def key_state(key_piece: bytes) -> int:
    """Return the row checksum after the key's cells, from their own checksum bytes."""
    checksums = bytearray()
    at = 1
    while at < len(key_piece):
        at += 6 + int.from_bytes(key_piece[at + 2 : at + 6], "little")  # 03 04 len32 name
        at += 5 + int.from_bytes(key_piece[at + 1 : at + 5], "little")  # 05 len32 value
        checksums.append(key_piece[at + 1])  # 0A checksum
        at += 2
    return crc8(bytes(checksums))


def cells_of(value: bytes) -> list[Cell]:
    """Return a stored chunk's cells in order."""
    _, _, end_bytes, key_bytes, _, _, versions_max, _, _ = header(value)
    if not versions_max:
        return []
    start = HEADER_BYTES + end_bytes + key_bytes
    if key_bytes:
        return plainbuffer.parse_cells(value[start + 1 : -2])
    return plainbuffer.parse_cells(value[start:])


def newest_version(value: bytes, form: RowForm) -> int | None:
    """Return the newest version of a row in one chunk, or None if its cells have another form."""
    _, flags, end_bytes, key_bytes, _, _, _, _, _ = header(value)
    start = HEADER_BYTES + key_bytes + 1
    if flags or end_bytes or len(value) != start + form.stored_bytes + 2:
        return None
    return form.newest(value, start)


def _measure(cells: Sequence[Cell]) -> tuple[int, int, int]:
    """Return (lowest version, most versions of one column, bytes of names and values)."""
    if not cells:
        return INT64_MAX, 0, 0
    if type(cells) is PackedCells:
        return cells.version_ms or 0, 1, cells.form.data_bytes
    lowest = INT64_MAX
    most = run = total = 0
    last = None
    for name, _, value, version, _ in cells:
        run = run + 1 if name == last else 1
        last = name
        if run > most:
            most = run
        if version < lowest:  # type: ignore[operator]  # Stored cells always have a version.
            lowest = version  # type: ignore[assignment]
        total += len(name) + len(value) - VARIANT_OVERHEAD[value[0]]
    return lowest, most, total
