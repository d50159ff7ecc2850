"""PlainBuffer: the bytes of a row on the wire, and of a row's cells as they are stored.

    buffer = 75 00 00 00  row*
    row    = [01 cell*]  [02 cell*]  [08]  [0B len32 ext]  09 crc
    cell   = 03 [04 len32 name] [05 len32 variant] [06 op] [07 int64 version] 0A crc
    ext    = 0C len32 (0D uint32 epoch  0E int64 timestamp  0F uint32 row-index)

Integers are little-endian; docs/internals/formats/plainbuffer.md has every byte. A stored row has
its attributes in exactly this cell encoding, so an answer is made by joining slices.

``decode_row`` and ``decode_rows`` accept bytes from anyone. Their result was fully checked. Bad
bytes raise ``Rejected``, after work bounded by the buffer's length. ``parse_cells`` accepts only
bytes that this module wrote. This module does not know which names, values and versions a table
allows.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from rowtide.core import native
from rowtide.core.protocol.row_faults import (
    check_name,
    check_value,
    cut_off,
    fault,
    invalid_row,
    wrong_checksum,
)
from rowtide.core.protocol.row_form import FORMS, PackedCells, RowForm
from rowtide.core.values import errors, variant
from rowtide.core.values.cell import DELETE_ALL, DELETE_ONE, INCREMENT, PUT, Cell
from rowtide.core.values.crc8 import SHIFT8, STEP, crc8
from rowtide.core.values.growing_table import GrowingTable
from rowtide.core.values.variant import STRING

__all__ = [
    "HEADER",
    "KeyColumns",
    "RowChange",
    "SequenceInfo",
    "cell_piece",
    "cells_piece",
    "checksums",
    "decode_key_row",
    "decode_row",
    "decode_rows",
    "delete_cell",
    "encode_row",
    "extension",
    "first_key_value",
    "increment_cell",
    "key_piece",
    "parse_cells",
    "put_cell",
    "row_checksum",
    "stamp_cell",
    "stamp_cells",
    "version_tail",
]

HEADER = b"\x75\x00\x00\x00"

_KEY, _CELLS, _CELL, _NAME, _VALUE, _OP, _VERSION, _DELETED = range(1, 9)
_ROW_CHECKSUM, _CELL_CHECKSUM, _EXTENSION, _SEQUENCE, _EPOCH, _STAMP, _INDEX = range(9, 16)

_CELL_NAME = _CELL | _NAME << 8
"""The two tags that begin every cell, as one little-endian number."""

_CELL_HEAD = struct.Struct("<HI")  # Cell and name tags, length of the name.
_CELL_END = struct.Struct("<BBHI")  # Checksum tag and checksum; the next cell's head.
_TAG_LENGTH = struct.Struct("<BI")
_KEY_START = struct.Struct("<BHI")  # The key's tag; its first cell's head.
_KEY_NAME_AT = len(HEADER) + _KEY_START.size
_VERSION_TAIL = struct.Struct("<BqB")  # Version tag, version, checksum tag.
_INT64 = struct.Struct("<q")
_LENGTH = struct.Struct("<I")
_SEQUENCE_INFO = struct.Struct("<BIBIBqBI")

_EXTENSION_START = b"\x0b" + _LENGTH.pack(_SEQUENCE_INFO.size)

_Reader = Callable[[bytes, int], tuple[Any, ...]]

# A reader takes a text of its length and, in the same step, the next few bytes, which show what
# follows. Slicing and unpacking separately takes a sixth longer per cell.


def _after_name(length: int) -> _Reader:
    """Return a reader of: name, value tag, value size, type, a STRING's or BLOB's own length."""
    return struct.Struct(f"<{length}sBIBI").unpack_from


def _after_value(size: int) -> _Reader:
    """Return a reader of: value, checksum tag, checksum, the next cell's tags and name length."""
    return struct.Struct(f"<{size}sBBHI").unpack_from


def _after_kept_value(size: int) -> _Reader:
    """Return a reader of: value, version tag, version, checksum tag, checksum, the next head."""
    return struct.Struct(f"<{size}sBqBBHI").unpack_from


_READERS = 512
"""Lengths below this have an entry in the tables, once they were met."""
_AFTER_NAME = GrowingTable(_after_name)
_AFTER_VALUE = GrowingTable(_after_value)
_AFTER_KEPT_VALUE = GrowingTable(_after_kept_value)
_NAME_HEADS = GrowingTable(lambda length: _CELL_HEAD.pack(_CELL_NAME, length))
_VALUE_HEADS = GrowingTable(lambda size: _TAG_LENGTH.pack(_VALUE, size))
_BYTES = tuple(bytes((byte,)) for byte in range(256))

_PADDING = bytes(20)
"""Zeros after every buffer that is read, so that one ``unpack`` may span a cell's end and the
next cell's head. Zero is no tag: a read into the padding is rejected.
"""

_AROUND_CELLS = 3 + len(_PADDING)
"""Bytes of a padded row besides its cells: their tag, the row's checksum and its tag."""

_VALUES = frozenset(
    (variant.INTEGER, variant.DOUBLE, variant.BOOLEAN, variant.STRING, variant.BLOB)
)
_TEXTS = (variant.STRING, variant.BLOB)
_KEY_VALUES = _VALUES | {variant.INF_MIN, variant.INF_MAX, variant.AUTO_INCREMENT}

_FIXED_SIZES = tuple(9 if kind in (variant.INTEGER, variant.DOUBLE) else -1 for kind in range(256))
"""Size of a variant if nothing else must be checked; -1 means: call ``_check_value``."""

_new = tuple.__new__
KEY_COLUMNS_MAX = 32  # An index's key has eight at most.


class SequenceInfo(NamedTuple):
    """Position of a stream record in its shard; strictly increases. Time in microseconds."""

    epoch: int
    timestamp_us: int
    row_index: int


class KeyColumns(list[tuple[bytes, bytes]]):
    """A key as it was sent, with the result of ``key_piece`` for it. Never changed."""

    __slots__ = ("piece", "state")

    piece: bytes
    state: int


class RowChange(NamedTuple):
    """One row as sent: key columns as (name, variant), cells in the sender's order."""

    key: list[tuple[bytes, bytes]]
    cells: Sequence[Cell]
    deleted: bool
    sequence: SequenceInfo | None


def decode_row(buffer: bytes, *, cells_max: int = sys.maxsize) -> RowChange:
    """Return the row of ``buffer``, of at most ``cells_max`` cells. Zeros may follow (Node.js)."""
    padded = _pad_buffer(buffer)
    try:
        row, end = _read_row(padded, len(HEADER), cells_max)
    except (struct.error, IndexError) as error:
        raise cut_off(buffer) from error
    if end != len(buffer):
        _check_rest(buffer, end)
    return row


def decode_key_row(buffer: bytes, *, cells_max: int) -> RowChange:
    """Return what ``decode_row`` does; faster if the row is only a key."""
    found = native.kernels.key_row(buffer)
    if found is None:
        return decode_row(buffer, cells_max=cells_max)
    columns, piece, state = found
    key = KeyColumns(columns)
    key.piece, key.state = piece, state
    return _new(RowChange, (key, [], False, None))


def first_key_value(buffer: bytes) -> bytes | None:
    """Return the first key column's variant of a row, unchecked; None if it cannot be read.

    It is a cheap way to route a row. The receiver checks the row.
    """
    try:
        tag, tags, length = _KEY_START.unpack_from(buffer, len(HEADER))
        if tag != _KEY or tags != _CELL_NAME:
            return None
        _, tag, size, kind, inner = _name_reader(length)(buffer, _KEY_NAME_AT)
    except struct.error:
        return None
    at = _KEY_NAME_AT + length + _TAG_LENGTH.size
    value = buffer[at : at + size]
    if tag != _VALUE or len(value) != size:
        return None
    whole = inner == size - 5 if kind in _TEXTS else kind == variant.INTEGER and size == 9
    return value if whole else None


def decode_rows(buffer: bytes) -> list[RowChange]:
    """Return every row of ``buffer``; an empty buffer has no rows."""
    if not buffer:
        return []
    padded = _pad_buffer(buffer)
    rows: list[RowChange] = []
    end = len(HEADER)
    try:
        while padded[end]:
            row, end = _read_row(padded, end, sys.maxsize)
            rows.append(row)
    except (struct.error, IndexError) as error:
        raise cut_off(buffer) from error
    if end != len(buffer):
        _check_rest(buffer, end)
    return rows


def _pad_buffer(buffer: bytes) -> bytes:
    if buffer[:4] != HEADER:
        raise errors.invalid(f"Invalid row: it begins with '{buffer[:4].hex()}', not '75000000'.")
    return buffer + _PADDING


def _check_rest(buffer: bytes, end: int) -> None:
    if end > len(buffer):
        raise cut_off(buffer)
    if any(buffer[end:]):
        raise invalid_row(end, "bytes follow the end of the row")


def _read_row(padded: bytes, at: int, cells_max: int) -> tuple[RowChange, int]:
    """Return the row at ``at``, and its end."""
    key: list[tuple[bytes, bytes]] = []
    cells: Sequence[Cell] = []
    sequence = None
    state = 0
    if padded[at] == _KEY:
        key, at, state = _read_key(padded, at + 1)
    if padded[at] == _CELLS:
        place = FORMS.find(len(padded) - at)
        if (
            place is not None
            and (form := place.form) is not None
            and (packed := form.read(padded, at + 1)) is not None
        ):
            place.hits += 1
            cells, state = packed, crc8(packed.checksums, state)
            at += 1 + form.wire_bytes
        else:
            rest = len(padded) - at
            cells, at, state = _read_cells(padded, at + 1, state, cells_max)
            if place is None:
                place = FORMS.place(rest)
            place.left -= 1
            if place.left <= 0 and place.judge():
                place.learn(RowForm.of(cells, rest - _AROUND_CELLS))
    if deleted := padded[at] == _DELETED:
        at += 1
    if padded[at] == _EXTENSION:
        sequence, at = _read_extension(padded, at + 1)
    if padded[at] != _ROW_CHECKSUM:
        raise invalid_row(at, f"tag {padded[at]:02X} instead of the row's checksum")
    state = STEP[state ^ deleted]
    if padded[at + 1] != state:
        raise invalid_row(at, f"the row's checksum is {padded[at + 1]:02X}, not {state:02X}")
    return RowChange(key, cells, deleted, sequence), at + 2


def _read_key(padded: bytes, at: int) -> tuple[KeyColumns, int, int]:
    """Return the key's columns at ``at``, their end, and the row's checksum after them."""
    found = native.kernels.read_key_columns(padded, at, len(padded) - len(_PADDING))
    if found is not None:
        key = KeyColumns(found[0])
        _, key.piece, key.state, at = found
        return key, at, key.state
    key = KeyColumns()
    begin = at - 1
    state = 0
    tags, length = _CELL_HEAD.unpack_from(padded, at)
    while tags == _CELL_NAME:
        name, tag, size, kind, inner = _name_reader(length)(padded, at + 6)
        if tag != _VALUE:
            raise invalid_row(at, "a primary key column without a value")
        at += 11 + length
        value, tag, checksum, tags, length = _value_reader(size)(padded, at)
        if not name.isascii():
            check_name(name, at)
        if kind == STRING:
            if inner != size - 5 or not value.isascii():
                check_value(value, at, _KEY_VALUES)
        elif size != _FIXED_SIZES[kind]:
            check_value(value, at, _KEY_VALUES)
        at += size
        crc = crc8(value, crc8(name))
        if tag != _CELL_CHECKSUM:
            raise invalid_row(at, f"tag {tag:02X} instead of a primary key column's checksum")
        if checksum != crc:
            raise wrong_checksum(at, checksum, crc)
        state = STEP[state ^ crc]
        if len(key) == KEY_COLUMNS_MAX:
            raise invalid_row(at, f"more than {KEY_COLUMNS_MAX} primary key columns")
        key.append((name, value))
        at += 2
    key.piece, key.state = padded[begin:at], state
    return key, at, state


def _name_reader(length: int) -> _Reader:
    return _AFTER_NAME[length] if length < _READERS else _after_name(length)


def _value_reader(size: int) -> _Reader:
    return _AFTER_VALUE[size] if size < _READERS else _after_value(size)


def _read_cells(padded: bytes, at: int, state: int, most: int) -> tuple[list[Cell], int, int]:
    """Return the cells at ``at``, their end, and the row's checksum after them.

    A length beyond the buffer is harmless: its reader checks the remaining size.
    """
    end = len(padded) - len(_PADDING)
    found = native.kernels.read_cells(padded, at, end, state, most, Cell)
    if found is not None:
        return found
    cells: list[Cell] = []
    tags, length = _CELL_HEAD.unpack_from(padded, at)
    while tags == _CELL_NAME:
        # Inlined _name_reader and _value_reader: calls would cost a tenth of the loop.
        reader = _AFTER_NAME[length] if length < _READERS else _after_name(length)
        name, tag, size, kind, inner = reader(padded, at + 6)
        at += 6 + length
        if not name.isascii():
            check_name(name, at)
        crc = crc8(name)
        if tag == _VALUE:
            at += 5
            reader = _AFTER_VALUE[size] if size < _READERS else _after_value(size)
            value, tag, checksum, tags, length = reader(padded, at)
            if kind == STRING:
                if inner != size - 5 or not value.isascii():
                    check_value(value, at, _VALUES)
            elif size != _FIXED_SIZES[kind]:
                check_value(value, at, _VALUES)
            at += size
            crc = crc8(value, crc)
        else:
            value = b""
        op = PUT
        version = None
        if tag != _CELL_CHECKSUM or not value:
            op, version, crc, at = _read_change(padded, at, value, crc)
            tag, checksum, tags, length = _CELL_END.unpack_from(padded, at)
        if checksum != crc:
            raise wrong_checksum(at, checksum, crc)
        state = STEP[state ^ crc]
        if len(cells) == most:
            raise invalid_row(at, f"more than {most} attribute columns")
        cells.append(_new(Cell, (name, op, value, version, crc)))
        at += 2
    return cells, at, state


def _read_change(
    padded: bytes, at: int, value: bytes, crc: int
) -> tuple[int, int | None, int, int]:
    """Return op and version of the cell whose value ends at ``at``, its checksum, and their end."""
    op = PUT
    version = None
    if has_op := padded[at] == _OP:
        op = padded[at + 1]
        at += 2
    if padded[at] == _VERSION:
        version_bytes = padded[at + 1 : at + 9]
        version = int.from_bytes(version_bytes, "little", signed=True)
        crc = crc8(version_bytes, crc)
        at += 9
    if has_op:
        # The op comes before the version, but the checksum has it after.
        crc = STEP[crc ^ op]
    if padded[at] != _CELL_CHECKSUM:
        raise invalid_row(at, f"tag {padded[at]:02X} instead of a cell's checksum")
    wrong = fault(op, value, version, has_op=has_op)
    if wrong:
        raise invalid_row(at, wrong)
    return op, version, crc, at


def _read_extension(padded: bytes, at: int) -> tuple[SequenceInfo | None, int]:
    """Return the sequence information of the extension whose length is at ``at``, and its end."""
    sequence = None
    end = at + 4 + _LENGTH.unpack_from(padded, at)[0]
    if end > len(padded) - len(_PADDING):
        raise invalid_row(at, "an extension is longer than the buffer")
    at += 4
    while at < end:
        tag, size = _TAG_LENGTH.unpack_from(padded, at)
        if at + 5 + size > end:
            raise invalid_row(at, "a part of an extension is longer than the extension")
        if tag == _SEQUENCE:
            sequence = _read_sequence(padded, at)
        # Other parts are skipped for future versions: each has its own length.
        at += 5 + size
    return sequence, end


def _read_sequence(padded: bytes, at: int) -> SequenceInfo:
    _, size, tag_epoch, epoch, tag_stamp, stamp, tag_index, index = _SEQUENCE_INFO.unpack_from(
        padded, at
    )
    if (size, tag_epoch, tag_stamp, tag_index) != (19, _EPOCH, _STAMP, _INDEX):
        raise invalid_row(at, "sequence information of an unknown form")
    return SequenceInfo(epoch, stamp, index)


def put_cell(name: bytes, value: bytes, version_ms: int | None) -> Cell:
    """Return a put of ``value`` with its checksum."""
    crc = crc8(value, crc8(name))
    if version_ms is not None:
        crc = crc8(_INT64.pack(version_ms), crc)
    return _new(Cell, (name, PUT, value, version_ms, crc))


def delete_cell(name: bytes, version_ms: int | None) -> Cell:
    """Return a delete of one version, or of all if ``version_ms`` is None."""
    if version_ms is None:
        return Cell(name, DELETE_ALL, b"", None, STEP[crc8(name) ^ DELETE_ALL])
    crc = crc8(_INT64.pack(version_ms), crc8(name))
    return Cell(name, DELETE_ONE, b"", version_ms, STEP[crc ^ DELETE_ONE])


def increment_cell(name: bytes, by: bytes) -> Cell:
    """Return an increment by an INTEGER variant, as a client sends it."""
    return Cell(name, INCREMENT, by, None, STEP[crc8(by, crc8(name)) ^ INCREMENT])


def stamp_cell(cell: Cell, version_ms: int) -> Cell:
    """Return a put with a version instead of none, in time that does not depend on its size."""
    name, op, value, _, crc = cell
    return _new(Cell, (name, op, value, version_ms, SHIFT8[crc] ^ crc8(_INT64.pack(version_ms))))


def stamp_cells(cells: Iterable[Cell], version_ms: int) -> Sequence[Cell]:
    """Return the cells with one version for every put that has none; others stay as they are.

    Cells of one form are returned in the order of their names, others in the given order.
    """
    if type(cells) is PackedCells and cells.version_ms is None:
        return cells.stamp(version_ms)
    crc_version = crc8(_INT64.pack(version_ms))
    return [
        _new(Cell, (cell[0], PUT, cell[2], version_ms, SHIFT8[cell[4]] ^ crc_version))
        if cell[3] is None and cell[1] == PUT
        else cell
        for cell in cells
    ]


def cell_piece(cell: Cell) -> bytes:
    """Return a cell's bytes, from its tag to its checksum. For many cells, use ``cells_piece``."""
    name, op, value, version, crc = cell
    head = _CELL_HEAD.pack(_CELL_NAME, len(name)) + name
    if value:
        head += _TAG_LENGTH.pack(_VALUE, len(value)) + value
    if op != PUT:
        head += bytes((_OP, op))
    if version is not None:
        head += _VERSION_TAIL.pack(_VERSION, version, _CELL_CHECKSUM) + _BYTES[crc]
        return head
    return head + b"\x0a" + _BYTES[crc]


def version_tail(version_ms: int) -> bytes:
    """Return the bytes between a cell's value and its checksum."""
    return _VERSION_TAIL.pack(_VERSION, version_ms, _CELL_CHECKSUM)


def cells_piece(cells: Iterable[Cell]) -> bytes:
    """Return the bytes of cells, one after another."""
    if type(cells) is PackedCells and cells.version_ms is not None:
        tail = version_tail(cells.version_ms)
        return b"".join(cells.fill_template(cells.form.stored, cells.payloads, tail))
    piece = native.kernels.cells_piece(cells)
    if piece is not None:
        return piece
    parts: list[bytes] = []
    last_version = None
    tail = b""
    for cell in cells:
        name, op, value, version, crc = cell
        if op != PUT or version is None or len(name) >= _READERS or len(value) >= _READERS:
            parts.append(cell_piece(cell))
            continue
        if version != last_version:
            # Most cells of one row have the same version.
            last_version = version
            tail = version_tail(version)
        parts += (_NAME_HEADS[len(name)], name, _VALUE_HEADS[len(value)], value, tail, _BYTES[crc])
    return b"".join(parts)


def key_piece(key: Sequence[tuple[bytes, bytes]]) -> tuple[bytes, int]:
    """Return the key's bytes with their tag, and the row's checksum after them."""
    if type(key) is KeyColumns:
        return key.piece, key.state
    parts = [b"\x01"]
    checksums = bytearray()
    for name, value in key:
        crc = crc8(value, crc8(name))
        checksums.append(crc)
        parts += (
            _CELL_HEAD.pack(_CELL_NAME, len(name)),
            name,
            _TAG_LENGTH.pack(_VALUE, len(value)),
            value,
            bytes((_CELL_CHECKSUM, crc)),
        )
    return b"".join(parts), crc8(checksums)


def checksums(cells: Sequence[Cell]) -> bytes:
    """Return the cells' checksums, one byte each."""
    if type(cells) is PackedCells:
        return cells.checksums
    return bytes([cell[4] for cell in cells])


def row_checksum(state: int, checksums: bytes, *, deleted: bool = False) -> int:
    """Return the checksum of a row from its key's state and its cells' checksums in order."""
    return STEP[crc8(checksums, state) ^ deleted]


def encode_row(
    key: Sequence[tuple[bytes, bytes]],
    cells: Sequence[Cell],
    *,
    deleted: bool = False,
    sequence: SequenceInfo | None = None,
) -> bytes:
    """Return one row without the buffer's header; an empty part has no bytes."""
    piece, state = key_piece(key) if key else (b"", 0)
    parts = [piece]
    if cells:
        parts += (b"\x02", cells_piece(cells))
    if deleted:
        parts.append(b"\x08")
    if sequence is not None:
        parts.append(extension(sequence))
    checksum = row_checksum(state, checksums(cells), deleted=deleted)
    parts.append(bytes((_ROW_CHECKSUM, checksum)))
    return b"".join(parts)


def extension(sequence: SequenceInfo) -> bytes:
    """Return the part of a stream record with its position in its shard."""
    epoch, stamp, index = sequence
    return _EXTENSION_START + _SEQUENCE_INFO.pack(
        _SEQUENCE, 19, _EPOCH, epoch, _STAMP, stamp, _INDEX, index
    )


def parse_cells(piece: bytes) -> list[Cell]:
    """Return the cells of a piece that ``cells_piece`` made, without checks."""
    found = native.kernels.parse_cells(piece, Cell)
    if found is not None:
        return found
    padded = piece + _PADDING
    cells: list[Cell] = []
    at = 0
    tags, length = _CELL_HEAD.unpack_from(padded, 0)
    while tags:
        reader = _AFTER_NAME[length] if length < _READERS else _after_name(length)
        name, tag, size, _, _ = reader(padded, at + 6)
        at += 6 + length
        if tag == _VALUE:
            at += 5
            reader = _AFTER_KEPT_VALUE[size] if size < _READERS else _after_kept_value(size)
            value, tag, version, _, crc, tags, length = reader(padded, at)
            at += size
            if tag == _VERSION:
                cells.append(_new(Cell, (name, PUT, value, version, crc)))
                at += 11
                continue
        else:
            value = b""
        op, version, _, at = _read_change(padded, at, value, 0)
        _, crc, tags, length = _CELL_END.unpack_from(padded, at)
        cells.append(_new(Cell, (name, op, value, version, crc)))
        at += 2
    return cells
