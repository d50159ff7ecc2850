"""The files of an export, one for each partition: a head, then records in frames.

A frame has the offset of its record and a checksum of both. So the last whole record of a
cut-off file can be found, and a changed byte is detected at its record. The page of this
format is ``docs/internals/formats/export.md``. Integers are unsigned and big-endian.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from struct import Struct
from typing import IO, NamedTuple

__all__ = ["FORMAT", "Damaged", "Frame", "Head", "frame", "read_frames", "read_head"]

FORMAT = 1
MAGIC = b"RTEX"
SOURCE_BYTES = 32
RECORD_BYTES_MAX = 64 << 20
"""No stored record is larger. A length above it is damaged."""

_BEGIN = Struct(f">4sI{SOURCE_BYTES}sII")
_CHECKSUM = Struct(">I")
_FRAME = Struct(">IIQ")
_OFFSET = Struct(">Q")


class Damaged(Exception):
    """A file of an export has other bytes than were written."""


class Head(NamedTuple):
    """The source and partition of a file. ``source`` is a digest of the directory's state."""

    source: bytes
    topic: str
    partition: int

    def encode(self) -> bytes:
        """Return the bytes with which a file begins."""
        name = self.topic.encode()
        begin = _BEGIN.pack(MAGIC, FORMAT, self.source, self.partition, len(name)) + name
        return begin + _CHECKSUM.pack(zlib.crc32(begin))


class Frame(NamedTuple):
    """A record as stored, and the position in the file after its frame."""

    offset: int
    record: bytes
    end: int


def frame(offset: int, record: bytes) -> bytes:
    """Return the frame of a record."""
    checksum = zlib.crc32(record, zlib.crc32(_OFFSET.pack(offset)))
    return _FRAME.pack(len(record), checksum, offset) + record


def read_head(file: IO[bytes]) -> Head:
    """Read the head at the start of a file. Raises ``Damaged``."""
    begin = file.read(_BEGIN.size)
    if len(begin) < _BEGIN.size or not begin.startswith(MAGIC):
        raise Damaged("it does not begin as a file of an export")
    _, found, source, partition, length = _BEGIN.unpack(begin)
    if found != FORMAT:
        raise Damaged(f"it has format {found}, this version reads {FORMAT}")
    name = file.read(min(length, 1024))
    if file.read(_CHECKSUM.size) != _CHECKSUM.pack(zlib.crc32(begin + name)):
        raise Damaged("its head does not match the checksum")
    return Head(source, name.decode(), partition)


def read_frames(file: IO[bytes]) -> Iterator[Frame]:
    """Yield the frames from the file's position to its end. Raises ``Damaged``."""
    position = file.tell()
    while begin := file.read(_FRAME.size):
        if len(begin) < _FRAME.size:
            raise Damaged(f"it is cut off at byte {position}")
        length, checksum, offset = _FRAME.unpack(begin)
        record = file.read(length) if length <= RECORD_BYTES_MAX else b""
        if len(record) < length:
            raise Damaged(f"it is cut off, or damaged, at byte {position}")
        if zlib.crc32(record, zlib.crc32(begin[8:])) != checksum:
            raise Damaged(f"the record at byte {position} does not match its checksum")
        position += _FRAME.size + length
        yield Frame(offset, record, position)
