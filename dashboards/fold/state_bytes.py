"""Reads and writes the parts of a partial as bytes; docs/internals/formats/dashboard-state.md.

An integer of any size is its zigzag number in groups of seven bits, lowest first. A value is a
byte for its type and its content. Nothing here depends on the order in which values were added.
"""

from __future__ import annotations

import math
import struct

from rowtide.dashboards.values.kinds import Value

__all__ = ["CorruptState", "StateReader", "StateWriter"]

_NULL, _FALSE, _TRUE, _INTEGER, _DOUBLE, _TEXT = range(6)
_DOUBLE_FORM = struct.Struct(">d")


class CorruptState(ValueError):
    """Bytes that are no partial of this version."""


class StateWriter:
    """Gathers the bytes of a partial."""

    def __init__(self) -> None:
        self.buffer = bytearray()

    def integer(self, value: int) -> None:
        """Write an integer of any size."""
        rest = value << 1 if value >= 0 else (-value << 1) - 1
        while rest > 0x7F:
            self.buffer.append(rest & 0x7F | 0x80)
            rest >>= 7
        self.buffer.append(rest)

    def text(self, content: bytes) -> None:
        """Write bytes after their length."""
        self.integer(len(content))
        self.buffer += content

    def value(self, value: Value) -> None:
        """Write a value."""
        if value is None:
            self.buffer.append(_NULL)
        elif isinstance(value, bool):
            self.buffer.append(_TRUE if value else _FALSE)
        elif isinstance(value, int):
            self.buffer.append(_INTEGER)
            self.integer(value)
        elif isinstance(value, float):
            self.buffer.append(_DOUBLE)
            self.buffer += _DOUBLE_FORM.pack(value)
        else:
            self.buffer.append(_TEXT)
            self.text(value.encode())


class StateReader:
    """Reads what a ``StateWriter`` wrote. Every method raises ``CorruptState``."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0

    def integer(self) -> int:
        """Return the next integer."""
        number = shift = 0
        while True:
            byte = self._take(1)[0]
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number >> 1 if not number & 1 else -((number + 1) >> 1)
            shift += 7

    def count(self) -> int:
        """Return the next integer, which is a number of items."""
        found = self.integer()
        if not 0 <= found <= len(self._content):
            raise CorruptState(f"a length of {found} at byte {self._at}")
        return found

    def text(self) -> bytes:
        """Return the next bytes."""
        return self._take(self.count())

    def value(self) -> Value:
        """Return the next value."""
        kind = self._take(1)[0]
        if kind == _NULL:
            return None
        if kind in (_FALSE, _TRUE):
            return kind == _TRUE
        if kind == _INTEGER:
            return self.integer()
        if kind == _DOUBLE:
            found = float(_DOUBLE_FORM.unpack(self._take(8))[0])
            return math.nan if found != found else found
        if kind != _TEXT:
            raise CorruptState(f"an unknown type {kind} at byte {self._at - 1}")
        try:
            return self.text().decode()
        except UnicodeDecodeError as error:
            raise CorruptState(f"a text is not UTF-8: {error}") from error

    def end(self) -> None:
        """Require that everything is read."""
        if self._at != len(self._content):
            raise CorruptState(f"{len(self._content) - self._at} surplus bytes")

    def _take(self, length: int) -> bytes:
        found = self._content[self._at : self._at + length]
        if len(found) < length:
            raise CorruptState("the bytes end too early")
        self._at += length
        return found
