"""SimpleRowMatrix: rows of a range as one table of values, without names or versions per cell.

    matrix = head  name*  options  row*  01 crc
    head   = "SRM0"  int32 data  int32 options  int32 keys  int32 attributes
    name   = int16 length, UTF-8                    key columns first, then attributes
    options = 0A entire  03 int32 rows
    row    = 02 variant*                            one per name, NULL if a row lacks it

Integers are little-endian, offsets count from the first byte. A variant is as in ``variant.py``.
``docs/internals/formats/row_matrix.md`` has the bytes. This module does not know which rows and
columns a matrix has.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from rowtide.core.protocol.plainbuffer import RowChange
from rowtide.core.values import variant
from rowtide.core.values.crc8 import crc8

__all__ = ["NULL", "CorruptMatrix", "MatrixWriter", "RowMatrix", "decode", "fields_of"]

NULL = b"\x06"
"""The variant of a column that a row does not have."""

_MAGIC = b"SRM0"
_ENTIRE_KEY, _ROW_COUNT, _ROW, _CHECKSUM = 10, 3, 2, 1
_HEAD = struct.Struct("<4siiii")
_NAME = struct.Struct("<h")
_OPTIONS = struct.Struct("<BBBi")
_LENGTH = struct.Struct("<i")
_FOOTER_BYTES = 2
_SIZES = {variant.INTEGER: 9, variant.DOUBLE: 9, variant.BOOLEAN: 2, variant.NULL: 1}


class RowMatrix(NamedTuple):
    """A decoded matrix. ``entire_key`` is True if it has every key column."""

    key_names: tuple[bytes, ...]
    names: tuple[bytes, ...]
    entire_key: bool
    rows: list[list[bytes]]


class CorruptMatrix(ValueError):
    """Bytes that are not a matrix."""


class MatrixWriter:
    """Builds one matrix, row by row. ``size`` is its size if it ended now."""

    def __init__(
        self, key_names: Sequence[bytes], names: Sequence[bytes], *, entire_key: bool
    ) -> None:
        self._counts = (len(key_names), len(names))
        self._entire_key = entire_key
        columns = (*key_names, *names)
        self._names = b"".join(_NAME.pack(len(name)) + name for name in columns)
        self._rows: list[bytes] = []
        self.size = _HEAD.size + len(self._names) + _OPTIONS.size + _FOOTER_BYTES

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, row: bytes) -> None:
        """Add a row that ``row_bytes`` made."""
        self._rows.append(row)
        self.size += len(row)

    @staticmethod
    def row_bytes(fields: Sequence[bytes]) -> bytes:
        """Return a row of one variant per column, key columns first."""
        return b"".join((b"\x02", *fields))

    def finish(self) -> bytes:
        """Return the matrix."""
        options_at = _HEAD.size + len(self._names)
        data_at = options_at + _OPTIONS.size
        body = b"".join(
            (
                _HEAD.pack(_MAGIC, data_at, options_at, *self._counts),
                self._names,
                _OPTIONS.pack(_ENTIRE_KEY, self._entire_key, _ROW_COUNT, len(self._rows)),
                *self._rows,
                bytes((_CHECKSUM,)),
            )
        )
        return body + bytes((crc8(body),))


def fields_of(row: RowChange, key_names: Sequence[bytes], names: Sequence[bytes]) -> list[bytes]:
    """Return a row's variants for a matrix's columns: of each column the newest version.

    Cells are in stored order, a column's newest version first.
    """
    key = dict(row.key)
    values: dict[bytes, bytes] = {}
    for cell in row.cells:
        values.setdefault(cell.name, cell.variant)
    return [key[name] for name in key_names] + [values.get(name, NULL) for name in names]


def decode(matrix: bytes) -> RowMatrix:
    """Return the content of a matrix. Raises ``CorruptMatrix``."""
    if len(matrix) < _HEAD.size + _FOOTER_BYTES or matrix[:4] != _MAGIC:
        raise CorruptMatrix(f"{len(matrix)} bytes that begin with {matrix[:4].hex()}")
    if matrix[-2] != _CHECKSUM or crc8(matrix[:-1]) != matrix[-1]:
        raise CorruptMatrix("wrong checksum")
    try:
        return _decode(matrix)
    except (struct.error, IndexError, KeyError) as error:
        raise CorruptMatrix(
            f"{len(matrix)} bytes that break off or hold an unknown type"
        ) from error


def _decode(matrix: bytes) -> RowMatrix:
    _, at, options_at, key_count, count = _HEAD.unpack_from(matrix)
    tag, entire, row_tag, row_count = _OPTIONS.unpack_from(matrix, options_at)
    if (tag, row_tag) != (_ENTIRE_KEY, _ROW_COUNT):
        raise CorruptMatrix(f"options of tags {tag}, {row_tag}")
    names = _decode_names(matrix, key_count + count)
    rows: list[list[bytes]] = []
    for _ in range(row_count):
        if matrix[at] != _ROW:
            raise CorruptMatrix(f"byte {at}: tag {matrix[at]:02X} instead of a row")
        at += 1
        fields: list[bytes] = []
        for _ in names:
            size = _size_at(matrix, at)
            fields.append(matrix[at : at + size])
            at += size
        rows.append(fields)
    if at != len(matrix) - _FOOTER_BYTES:
        raise CorruptMatrix(f"rows end at byte {at} of {len(matrix)}")
    return RowMatrix(names[:key_count], names[key_count:], bool(entire), rows)


def _decode_names(matrix: bytes, count: int) -> tuple[bytes, ...]:
    names: list[bytes] = []
    at = _HEAD.size
    for _ in range(count):
        (length,) = _NAME.unpack_from(matrix, at)
        if length < 0:
            raise CorruptMatrix(f"byte {at}: a name of {length} bytes")
        at += _NAME.size
        names.append(matrix[at : at + length])
        at += length
    return tuple(names)


def _size_at(matrix: bytes, at: int) -> int:
    kind = matrix[at]
    if kind in (variant.STRING, variant.BLOB):
        length: int = _LENGTH.unpack_from(matrix, at + 1)[0]
        if length < 0:
            raise CorruptMatrix(f"byte {at}: a value of {length} bytes")
        return 1 + _LENGTH.size + length
    return _SIZES[kind]
