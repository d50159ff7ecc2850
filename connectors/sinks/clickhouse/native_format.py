"""ClickHouse's Native format: blocks of columns, written and read.

    block   = count of columns, count of rows, column ...
    column  = name, type, values
    name, type, String = length, bytes
    Nullable(T) = a byte for each row, 1 if it is NULL, then a T for each row, NULL or not

    counts and lengths are unsigned LEB128; numbers are little-endian

Every version reads and writes it. It needs no parsing by rows and carries any bytes and
doubles. Only the types that the sink makes are supported. Decimals, dates and times are
integers here (``stored_types.py``).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple, cast

from rowtide.connectors.sinks.clickhouse.stored_types import width
from rowtide.core.values.variant import Scalar

__all__ = ["Block", "NativeColumn", "decode_columns", "encode_block"]

Values = Sequence[Scalar | None]

_PACKED = {"Int64": "q", "UInt64": "Q", "Float64": "d", "UInt8": "B"}


class NativeColumn(NamedTuple):
    """A column. Texts are bytes, as in ClickHouse. Booleans are UInt8."""

    name: str
    type: str
    values: Values


Block = Sequence[NativeColumn]


def encode_block(block: Block) -> bytes:
    """Return a block's bytes. Strings may be given as ``str`` too."""
    rows = len(block[0].values)
    parts = [_length(len(block)), _length(rows)]
    for column in block:
        parts += [_string(column.name), _string(column.type)]
        kind, values = column.type, column.values
        if kind.startswith("Nullable("):
            kind = kind[len("Nullable(") : -1]
            parts.append(bytes([value is None for value in values]))
            nothing: Scalar = b"" if kind == "String" else 0
            values = [nothing if value is None else value for value in values]
        parts.append(_pack_values(kind, values))
    return b"".join(parts)


def decode_columns(answer: bytes) -> dict[str, list[Scalar | None]]:
    """Return the values of a response's columns by name, block after block."""
    columns: dict[str, list[Scalar | None]] = {}
    reader = _Reader(answer)
    while reader.at < len(answer):
        count, rows = reader.length(), reader.length()
        for _ in range(count):
            name, kind = reader.text(), reader.text()
            columns.setdefault(name, []).extend(reader.values(kind, rows))
    return columns


class _Reader:
    def __init__(self, answer: bytes) -> None:
        self._answer = answer
        self.at = 0

    def length(self) -> int:
        length = shift = 0
        while True:
            byte = self._answer[self.at]
            self.at += 1
            length |= (byte & 0x7F) << shift
            if byte < 0x80:
                return length
            shift += 7

    def string(self) -> bytes:
        return self._take(self.length())

    def text(self) -> str:
        return self.string().decode()

    def values(self, kind: str, rows: int) -> Values:
        if kind.startswith("Nullable("):
            absent = self._take(rows)
            values = self.values(kind[len("Nullable(") : -1], rows)
            return [None if a else value for a, value in zip(absent, values, strict=True)]
        if kind == "String":
            return [self.string() for _ in range(rows)]
        integers = width(kind)
        if integers is not None:
            count, signed = integers
            taken = self._take(rows * count)
            return [
                int.from_bytes(taken[at : at + count], "little", signed=signed)
                for at in range(0, len(taken), count)
            ]
        packing = struct.Struct(f"<{rows}{_PACKED[kind]}")
        return packing.unpack(self._take(packing.size))

    def _take(self, count: int) -> bytes:
        taken = self._answer[self.at : self.at + count]
        if len(taken) < count:
            raise ValueError(
                f"a response of {len(self._answer)} bytes in Native format is incomplete"
            )
        self.at += count
        return taken


def _pack_values(kind: str, values: Values) -> bytes:
    integers = width(kind)
    if integers is not None:
        count, signed = integers
        numbers = cast(Sequence[int], values)
        return b"".join([number.to_bytes(count, "little", signed=signed) for number in numbers])
    if kind != "String":
        return struct.pack(f"<{len(values)}{_PACKED[kind]}", *values)
    written: list[bytes] = []
    for value in values:
        text = value.encode() if isinstance(value, str) else value
        assert isinstance(text, bytes), "a String column"
        written += (_length(len(text)), text)
    return b"".join(written)


def _string(text: str) -> bytes:
    encoded_text = text.encode()
    return _length(len(encoded_text)) + encoded_text


def _leb128(length: int) -> bytes:
    written = bytearray()
    while length >= 0x80:
        written.append(length & 0x7F | 0x80)
        length >>= 7
    written.append(length)
    return bytes(written)


_SHORT = [_leb128(length) for length in range(1024)]
_length: Callable[[int], bytes] = lambda n: _SHORT[n] if n < 1024 else _leb128(n)  # noqa: E731
