"""Avro's binary encoding for the content of log records: numbers, texts, keys and cells.

Written by hand, for the types of schemas/record-v1.avsc only. The data of a STRING, BLOB, DOUBLE or
BOOLEAN variant has the same bytes in Avro, so most of a cell is copied. The general library needs a
dictionary for each cell; docs/internals/hot-path.md has the figures. Tests compare every byte with
fastavro and with Apache's library.

Writers return bytes. Readers take the record and a position, and return the value and the position
after it. They raise ``ValueError`` (which includes UTF-8 errors), ``KeyError`` for an unknown cell
operation, and ``IndexError`` or ``struct.error`` if the record ends too early. A length beyond the
end gives a short slice, and then an error at the next byte: nothing read here is the last part of a
complete record.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from rowtide.core import native
from rowtide.core.protocol.row_form import HEADS_KNOWN, PackedCells, RowForm
from rowtide.core.values import variant
from rowtide.core.values.cell import DELETE_ALL, DELETE_ONE, INCREMENT, PUT, Cell
from rowtide.core.values.growing_table import GrowingTable

__all__ = [
    "cell_head",
    "count_log_bytes",
    "key_head",
    "read_bytes",
    "read_cells",
    "read_count",
    "read_key",
    "read_long",
    "read_names",
    "read_optional_cells",
    "read_text",
    "read_texts",
    "write_bytes",
    "write_cells",
    "write_key",
    "write_long",
    "write_names",
    "write_optional_cells",
    "write_texts",
]

_BITS = 16383

# Avro writes a number seven bits at a time, lowest first, with the top bit set on all but the last
# byte. Two bytes at once halve the steps: _LAST ends a number, _MORE continues it.


def _encode_last(pair: int) -> bytes:
    assert pair <= _BITS, f"{pair} takes more than 14 bits"
    return bytes((pair & 127 | 128, pair >> 7)) if pair > 127 else bytes((pair,))


_LAST = GrowingTable(_encode_last)
_MORE = GrowingTable(lambda pair: bytes((pair & 127 | 128, pair >> 7 | 128)))

_SHORT = tuple(byte >> 1 if byte < 128 and byte & 1 == 0 else -1 for byte in range(256))
"""A length that fits in one byte, by that byte; -1 means: call ``_read_length``."""

_BYTE = tuple(bytes((byte,)) for byte in range(256))
_OPS = {op << 1: op for op in (PUT, DELETE_ALL, DELETE_ONE, INCREMENT)}

# Branches of the value union, doubled by Avro's zigzag encoding.
_NULL, _LONG, _DOUBLE, _BOOLEAN, _STRING, _BYTES = range(0, 12, 2)
# Branches of the union of a key column.
_KEY_LONG, _KEY_STRING, _KEY_BYTES = range(0, 6, 2)
_KEY_BRANCHES = {
    variant.INTEGER: _KEY_LONG,
    variant.STRING: _KEY_STRING,
    variant.BLOB: _KEY_BYTES,
}
_BRANCHES = {
    variant.INTEGER: _LONG,
    variant.DOUBLE: _DOUBLE,
    variant.STRING: _STRING,
    variant.BLOB: _BYTES,
}


def _after_name(size: int) -> Callable[[bytes, int], tuple[Any, ...]]:
    """Return a reader of a cell's name, op, branch of the value and the next byte."""
    return struct.Struct(f"{size}sBBB").unpack_from


_AFTER_NAME = [_after_name(size) for size in range(64)]
_STRING_HEADS = [b"\x03" + size.to_bytes(4, "little") for size in range(64)]
_KEY_STRING_HEADS = [bytes((_KEY_STRING, size << 1)) for size in range(64)]
_PUT_STRING_HEADS = [bytes((0, _STRING, size << 1)) for size in range(64)]

_TOP_BITS = 0x8080808080808080
_EIGHT_BYTES = struct.Struct("<Q")
_INTEGER = struct.Struct("<Bq")
_INT64 = struct.Struct("<q")
_LENGTH = struct.Struct("<BI")

_new = tuple.__new__


def write_long(number: int) -> bytes:
    """Return an ``int`` or ``long``: zigzag, then seven bits per byte."""
    bits = number << 1 if number >= 0 else ~(number << 1)
    if bits < 1 << 14:
        return _LAST[bits]
    if bits < 1 << 28:
        return _MORE[bits & _BITS] + _LAST[bits >> 14]
    if bits < 1 << 42:
        return _MORE[bits & _BITS] + _MORE[bits >> 14 & _BITS] + _LAST[bits >> 28]
    low = _MORE[bits & _BITS] + _MORE[bits >> 14 & _BITS] + _MORE[bits >> 28 & _BITS]
    if bits < 1 << 56:
        return low + _LAST[bits >> 42]
    return low + _MORE[bits >> 42 & _BITS] + _LAST[bits >> 56]


_SHORT_NUMBERS: dict[bytes, bytes] = {}
"""Numbers that take at most two bytes, by their data: those that were written before. Most numbers
are so short, and it saves two calls each.
"""


def _write_integer(data: bytes) -> bytes:
    """Return a number that is given as its eight bytes, the lowest first."""
    written = write_long(_INT64.unpack(data)[0])
    if len(written) <= 2:
        _SHORT_NUMBERS[data] = written
    return written


def write_bytes(text: bytes) -> bytes:
    """Return ``bytes``, or a ``string`` given as UTF-8."""
    return write_long(len(text)) + text


def write_texts(texts: Sequence[str]) -> bytes:
    """Return an array of ``string``."""
    return write_names([text.encode() for text in texts])


def write_names(names: Sequence[bytes]) -> bytes:
    """Return an array of ``string``, given as UTF-8."""
    if not names:
        return b"\x00"
    return b"".join((write_long(len(names)), *map(write_bytes, names), b"\x00"))


def write_key(key: Sequence[bytes]) -> bytes:
    """Return a key, given as variants."""
    parts = [write_long(len(key))]
    for column in key:
        kind = column[0]
        if kind == variant.STRING:
            size = len(column) - 5
            parts += (_KEY_STRING_HEADS[size] if size < 64 else _long_text(size), column[5:])
        elif kind == variant.INTEGER:
            parts += (b"\x00", write_long(_INTEGER.unpack(column)[1]))
        elif kind == variant.BLOB:
            parts += (b"\x04", write_long(len(column) - 5), column[5:])
        else:
            raise ValueError(f"{variant.type_name(column)} in the key of a log record")
    if key:
        parts.append(b"\x00")
    return b"".join(parts)


def _long_text(size: int) -> bytes:
    return b"\x02" + write_long(size)


def write_optional_cells(cells: Sequence[Cell] | None) -> bytes:
    """Return optional cells."""
    return b"\x00" if cells is None else b"\x02" + write_cells(cells)


def write_cells(cells: Sequence[Cell]) -> bytes:
    """Return an array of cells."""
    if not cells:
        return b"\x00"
    if type(cells) is PackedCells and cells.version_ms is not None:
        return _write_packed(cells, cells.version_ms)
    array = native.kernels.logged_cells(cells)
    if array is not None:
        return array
    parts = [write_long(len(cells))]
    last_version = -1
    version_bytes = b"\x02\x01"
    for name, op, value, version, check in cells:
        # Most cells of one row have the same version.
        if version != last_version:
            last_version = version if version is not None else -1
            version_bytes = b"\x00" if version is None else b"\x02" + write_long(version)
        size = len(value) - 5
        if op == PUT and value[0] == variant.STRING and size < 64:
            parts += (
                _LAST[len(name) << 1],
                name,
                _PUT_STRING_HEADS[size],
                value[5:],
                version_bytes,
                _BYTE[check],
            )
        else:
            parts += (
                _LAST[len(name) << 1],
                name,
                _BYTE[op << 1],
                _write_value(value),
                version_bytes,
                _BYTE[check],
            )
    parts.append(b"\x00")
    return b"".join(parts)


def _write_packed(cells: PackedCells, version_ms: int) -> bytes:
    form = cells.form
    if form.logged is None:
        form.logged = _make_template(form)
    payloads: Sequence[bytes] = cells.payloads
    if form.integers:
        payloads = list(payloads)
        for index in form.integers:
            data = payloads[index]
            payloads[index] = _SHORT_NUMBERS.get(data) or _write_integer(data)
    return b"".join(cells.fill_template(form.logged, payloads, _encode_version(version_ms)))


@lru_cache(256)
def _encode_version(version_ms: int) -> bytes:
    """Return a version in the log's encoding. Cached: rows of one millisecond share it."""
    return b"\x02" + write_long(version_ms)


def _make_template(form: RowForm) -> list[bytes]:
    """Return the array of a form's cells with gaps for data, version and checksum."""
    changed: Sequence[int] = range(len(form.names))
    parts = [b""] * (4 * len(form.names)) + [b"\x00"]
    if form.like is not None:
        like, changed = form.like
        if like.logged is None:
            like.logged = _make_template(like)
        parts = like.logged.copy()
    for place in changed:
        parts[4 * place] = cell_head(form.names[place], form.kinds[place], form.sizes[place])
    if changed and changed[0] == 0:
        parts[0] = write_long(len(form.names)) + parts[0]
    return parts


@lru_cache(HEADS_KNOWN)
def cell_head(name: bytes, kind: int, size: int) -> bytes:
    """Return the bytes before the data of a put: name, operation, type, and length if any."""
    return write_bytes(name) + _BYTE[PUT << 1] + _BYTE[_BRANCHES[kind]] + _length(kind, size)


def key_head(kind: int, size: int) -> bytes:
    """Return the bytes before the data of a key column."""
    return _BYTE[_KEY_BRANCHES[kind]] + _length(kind, size)


def _length(kind: int, size: int) -> bytes:
    return write_long(size) if kind in (variant.STRING, variant.BLOB) else b""


def count_log_bytes(value: bytes) -> int:
    """Return the bytes that a value's data takes in the log."""
    if value[0] == variant.INTEGER:
        return len(write_long(_INTEGER.unpack(value)[1]))
    return variant.payload_size(value)


def _write_value(value: bytes) -> bytes:
    if not value:
        return b"\x00"
    kind = value[0]
    if kind == variant.INTEGER:
        return b"\x02" + write_long(_INTEGER.unpack(value)[1])
    if kind == variant.DOUBLE:
        return b"\x04" + value[1:]
    if kind == variant.BOOLEAN:
        return b"\x06" + value[1:]
    if kind == variant.STRING:
        return b"\x08" + write_long(len(value) - 5) + value[5:]
    if kind == variant.BLOB:
        return b"\x0a" + write_long(len(value) - 5) + value[5:]
    raise ValueError(f"{variant.type_name(value)} in a cell of a log record")


def read_long(record: bytes, at: int) -> tuple[int, int]:
    """Return an ``int`` or ``long``, and its end."""
    bits = record[at]
    if bits < 128:
        return (bits >> 1) ^ -(bits & 1), at + 1
    byte = record[at + 1]
    bits += (byte << 7) - 128
    if byte < 128:
        return (bits >> 1) ^ -(bits & 1), at + 2
    byte = record[at + 2]
    bits += (byte << 14) - (128 << 7)
    if byte < 128:
        return (bits >> 1) ^ -(bits & 1), at + 3
    if at + 8 <= len(record):
        (bits,) = _EIGHT_BYTES.unpack_from(record, at)
        ends = ~bits & _TOP_BITS
        if ends:
            return _fold_bits(bits, ends & -ends, at)
    return _read_long_slowly(record, at)


def _fold_bits(bits: int, end: int, at: int) -> tuple[int, int]:
    """Return the number in the eight bytes ``bits`` whose last byte's top bit is ``end``.

    Neighbours are joined, twice as wide each time: three steps for eight bytes.
    """
    bits &= end - 1
    bits = bits & 0x007F007F007F007F | bits >> 1 & 0x3F803F803F803F80
    bits = bits & 0x00003FFF00003FFF | bits >> 2 & 0x0FFFC0000FFFC000
    bits = bits & 0x000000000FFFFFFF | bits >> 4 & 0x00FFFFFFF0000000
    return (bits >> 1) ^ -(bits & 1), at + (end.bit_length() >> 3)


def _read_long_slowly(record: bytes, at: int) -> tuple[int, int]:
    """Return a number of nine or ten bytes, or one near the record's end."""
    bits = 0
    for shift, byte in zip(range(0, 70, 7), record[at : at + 10], strict=False):
        bits |= (byte & 127) << shift
        if byte < 128:
            if bits >> 64:
                break
            return (bits >> 1) ^ -(bits & 1), at + shift // 7 + 1
    if len(record) < at + 10:
        raise IndexError
    raise ValueError(f"byte {at}: a number of more than 64 bits")


def _read_length(record: bytes, at: int) -> tuple[int, int]:
    size, at = read_long(record, at)
    if size < 0:
        raise ValueError(f"byte {at}: a negative length")
    return size, at


def read_bytes(record: bytes, at: int) -> tuple[bytes, int]:
    """Return ``bytes``, and their end."""
    size, at = _read_length(record, at)
    end = at + size
    if end > len(record):
        raise IndexError
    return record[at:end], end


def read_text(record: bytes, at: int) -> tuple[str, int]:
    """Return a ``string``, and its end."""
    text, at = read_bytes(record, at)
    return text.decode(), at


def read_count(record: bytes, at: int) -> tuple[int, int]:
    """Return the number of items in the array's next block; 0 ends the array.

    Avro also allows a block with its size in bytes, marked by a negative count. We never write one.
    """
    count, at = read_long(record, at)
    if count < 0:
        count = -count
        _, at = _read_length(record, at)
    return count, at


def read_texts(record: bytes, at: int) -> tuple[list[str], int]:
    """Return an array of ``string``, and its end."""
    names, at = read_names(record, at)
    return [name.decode() for name in names], at


def read_names(record: bytes, at: int) -> tuple[list[bytes], int]:
    """Return an array of ``string`` as UTF-8, and its end."""
    names: list[bytes] = []
    count, at = read_count(record, at)
    while count:
        for _ in range(count):
            name, at = read_bytes(record, at)
            names.append(_check_text(name))
        count, at = read_count(record, at)
    return names, at


def read_key(record: bytes, at: int) -> tuple[list[bytes], int]:
    """Return a key as variants, and its end."""
    key: list[bytes] = []
    count, at = read_count(record, at)
    while count:
        for _ in range(count):
            branch = record[at]
            size = _SHORT[record[at + 1]]
            if branch == _KEY_STRING and size >= 0:
                at += 2 + size
                text = record[at - size : at]
                key.append(_STRING_HEADS[size] + _check_text(text))
            elif branch == _KEY_LONG:
                number, at = read_long(record, at + 1)
                key.append(_INTEGER.pack(variant.INTEGER, number))
            elif branch == _KEY_STRING or branch == _KEY_BYTES:  # noqa: SIM109 - faster.
                text, at = read_bytes(record, at + 1)
                if branch == _KEY_STRING:
                    key.append(_LENGTH.pack(variant.STRING, len(text)) + _check_text(text))
                else:
                    key.append(_LENGTH.pack(variant.BLOB, len(text)) + text)
            else:
                raise ValueError(f"byte {at}: branch {branch} in a key")
        count, at = read_count(record, at)
    return key, at


def _check_text(text: bytes) -> bytes:
    if not text.isascii():
        text.decode()
    return text


def read_optional_cells(record: bytes, at: int) -> tuple[list[Cell] | None, int]:
    """Return optional cells, and their end."""
    branch = record[at]
    if branch == 0:
        return None, at + 1
    if branch != 2:
        raise ValueError(f"byte {at}: branch {branch} before cells")
    return read_cells(record, at + 1)


def read_cells(record: bytes, at: int) -> tuple[list[Cell], int]:
    """Return an array of cells, and its end."""
    cells: list[Cell] = []
    count, at = read_count(record, at)
    while count:
        at = _read_block(record, at, count, cells)
        count, at = read_count(record, at)
    return cells, at


def _read_block(record: bytes, at: int, count: int, cells: list[Cell]) -> int:
    """Append ``count`` cells to ``cells``; return their end."""
    version: int | None = None
    version_bytes = b"\x00"
    for _ in range(count):
        size = _SHORT[record[at]]
        at += 1
        if size < 0:
            size, at = _read_length(record, at - 1)
        reader = _AFTER_NAME[size] if size < 64 else _after_name(size)
        name, op, branch, byte = reader(record, at)
        at += size
        if not name.isascii():
            name.decode()
        if branch == _STRING and (size := _SHORT[byte]) >= 0:
            at += 3
            text = record[at : at + size]
            at += size
            if not text.isascii():
                text.decode()
            value = _STRING_HEADS[size] + text
        elif branch == _LONG:
            number, at = read_long(record, at + 2)
            value = _INTEGER.pack(variant.INTEGER, number)
        else:
            value, at = _read_value(record, at + 1)
        if record.startswith(version_bytes, at):
            # Most cells of one row have the same version.
            at += len(version_bytes)
        else:
            start = at
            version, at = _read_version(record, start)
            version_bytes = record[start:at]
        cells.append(_new(Cell, (name, _OPS[op], value, version, record[at])))
        at += 1
    return at


def _read_version(record: bytes, at: int) -> tuple[int | None, int]:
    branch = record[at]
    if branch == 0:
        return None, at + 1
    if branch != 2:
        raise ValueError(f"byte {at}: branch {branch} before a version")
    return read_long(record, at + 1)


def _read_value(record: bytes, at: int) -> tuple[bytes, int]:
    branch = record[at]
    at += 1
    if branch == _DOUBLE:
        return b"\x01" + record[at : at + 8], at + 8
    if branch == _NULL:
        return b"", at
    if branch == _BOOLEAN:
        if record[at] > 1:
            raise ValueError(f"byte {at}: a boolean of {record[at]}")
        return b"\x02" + record[at : at + 1], at + 1
    if branch == _STRING:
        text, at = read_bytes(record, at)
        return _LENGTH.pack(variant.STRING, len(text)) + _check_text(text), at
    if branch == _BYTES:
        text, at = read_bytes(record, at)
        return _LENGTH.pack(variant.BLOB, len(text)) + text, at
    raise ValueError(f"byte {at - 1}: branch {branch} before a value")
