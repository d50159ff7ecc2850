"""Answers of the hot operations, written as protobuf bytes by hand.

Building and serializing a message object costs more than reading the row in it. The bytes
equal those of the generated classes; a test compares them.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from rowtide.core.protocol.plainbuffer import HEADER, encode_row
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.records.body import Kept
from rowtide.core.records.record_wire import StreamRow
from rowtide.core.values.growing_table import GrowingTable
from rowtide.core.values.varint import varint

__all__ = [
    "encode_consumed",
    "field",
    "range_answer",
    "row_answer",
    "stream_answer",
    "write_answer",
]


@lru_cache(4096)
def encode_consumed(read: int, write: int) -> bytes:
    """Return field 1 of an answer: the capacity units used. Both are always set (Go needs it)."""
    used = pb.ConsumedCapacity(capacity_unit=pb.CapacityUnit(read=read, write=write))
    return field(1, used.SerializeToString())


def field(number: int, value: bytes) -> bytes:
    """Return a length-delimited field; ``number`` is below 16."""
    size = len(value)
    if size < 128:
        return bytes((number << 3 | 2, size)) + value
    return bytes((number << 3 | 2,)) + varint(size) + value


def row_answer(read: int, write: int, wire: bytes) -> bytes:
    """Return GetRowResponse, or the answer of a write: units and one row (empty: absent)."""
    return encode_consumed(read, write) + field(2, HEADER + wire if wire else b"")


def write_answer(read: int, write: int, wire: bytes) -> bytes:
    """Return the answer of a write, with a row only if the client requested one."""
    head = encode_consumed(read, write)
    return head + field(2, HEADER + wire) if wire else head


def range_answer(read: int, rows: list[bytes], next_key: bytes) -> bytes:
    """Return GetRangeResponse; ``next_key`` is empty if the range is read to its end."""
    # Joined once, because a page has megabytes.
    size = len(HEADER) + sum(map(len, rows)) if rows else 0
    parts = [encode_consumed(read, 0), b"\x12", varint(size)]
    if rows:
        parts += (HEADER, *rows)
    if next_key:
        parts.append(field(3, HEADER + next_key))
    return b"".join(parts)


def stream_answer(
    rows: Iterable[StreamRow], read: int, next_iterator: str, *, more: bool, wants_kept: bool
) -> bytes:
    """Return GetStreamRecordResponse; an empty ``next_iterator``: the shard is read to its end."""
    parts: list[bytes] = []
    for action, _, row, before, kept in rows:
        size = len(row)
        head = b"\x12" + (_TWO_BYTES[size] if size < TWO_BYTES_END else varint(size))
        inner = len(head) + size + 2
        origin = b""
        if before is not None:
            origin = field(3, before)
            if wants_kept and kept is not None:
                origin += _encode_kept(kept)
            inner += len(origin)
        length = _TWO_BYTES[inner] if inner < TWO_BYTES_END else varint(inner)
        parts += (b"\x0a", length, _ACTIONS[action], head, row, origin)
    if next_iterator:
        parts.append(field(2, next_iterator.encode()))
    parts.append(b"\x1a" + encode_consumed(read, 0)[1:])
    parts.append(b"\x20\x01" if more else b"\x20\x00")
    return b"".join(parts)


def _encode_kept(kept: Kept) -> bytes:
    """Return the field ``kept`` of a record."""
    existed, absent, after = kept
    parts = [b"\x08\x01" if existed else b"\x08\x00", *(field(2, name) for name in absent)]
    if after:
        parts.append(field(3, HEADER + encode_row((), after)))
    content = b"".join(parts)
    return b"".join((_KEPT_TAG, varint(len(content)), content))


_KEPT_TAG = varint(1001 << 3 | 2)

TWO_BYTES_END = 1 << 14
"""Lengths below this take at most two bytes: those of most rows."""

_TWO_BYTES = GrowingTable(varint)
_ACTIONS = [bytes((0x08, action)) for action in range(4)]
