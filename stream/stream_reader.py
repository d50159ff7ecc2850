"""Reads a shard's log as its table's stream.

A reader sees the valid mutations from the stream's enabling on, in log order, up to what is
acknowledged and applied; void and hidden records it never sees. Records older than the stream's
expiration are refused before they are trimmed, so expiry does not depend on when the trim ran.

Stamps increase with offsets among valid records; a void record's stamp says nothing.
"""

from __future__ import annotations

from typing import NamedTuple

from rowtide.core import plainbuffer, record
from rowtide.core.errors import LogTrimmed
from rowtide.core.plainbuffer import SequenceInfo
from rowtide.core.schema import StreamSettings
from rowtide.stream.log import Entry
from rowtide.stream.shard_owner import ShardOwner

__all__ = ["Change", "Page", "find_stamp", "horizon", "read_page"]

HOUR_US = 3600 * 1_000_000
PROBE_BYTES = 64 * 1024
PUT_ROW, UPDATE_ROW, DELETE_ROW = 1, 2, 3
"""Numbers of the protocol's ActionType."""


class Change(NamedTuple):
    """One stream record: its kind, its row as wire bytes with sequence, the original columns."""

    action: int
    record: bytes
    origin: bytes | None


class Page(NamedTuple):
    """What one read found. ``next_offset`` is where the next read goes on."""

    changes: list[Change]
    next_offset: int
    at_end: bool


async def horizon(owner: ShardOwner, stream: StreamSettings, now_us: int) -> int:
    """Return the first offset of the stream that is neither trimmed nor expired."""
    start, _ = await owner.log.bounds()
    first = max(start, owner.shard.state.stream_start)
    oldest_us = now_us - stream.expiration_hours * HOUR_US
    if stream.enabled_at_us >= oldest_us:
        return first
    _, stamp = await _stamp_from(owner, first, owner.end)
    if stamp is None or stamp >= oldest_us:
        return first
    return await find_stamp(owner, oldest_us, first)


async def find_stamp(owner: ShardOwner, stamp_us: int, low: int) -> int:
    """Return the first offset from ``low`` on whose record is not older than ``stamp_us``."""
    high = owner.end
    while low < high:
        middle = (low + high) // 2
        at, stamp = await _stamp_from(owner, middle, high)
        if stamp is None or stamp >= stamp_us:
            high = middle
        else:
            low = at + 1
    return low


async def read_page(owner: ShardOwner, offset: int, *, limit: int, bytes_max: int) -> Page:
    """Return up to ``limit`` records from ``offset`` on, about ``bytes_max`` at most."""
    end = owner.end
    if offset >= end:
        return Page([], offset, True)
    entries = await _entries(owner, offset, limit, bytes_max)
    changes: list[Change] = []
    size = 0
    at = offset
    for entry in entries:
        if entry.offset >= end or len(changes) >= limit or size >= bytes_max:
            break
        at = entry.offset + 1
        change = _change(owner, entry)
        if change is not None:
            changes.append(change)
            size += len(change.record)
    return Page(changes, at, at >= end)


async def _entries(owner: ShardOwner, offset: int, limit: int, bytes_max: int) -> list[Entry]:
    held = owner.recent.read(offset, limit)
    if held is not None:
        return held
    try:
        return await owner.log.read(offset, bytes_max=bytes_max)
    except LogTrimmed as error:
        raise LogTrimmed() from error


async def _stamp_from(owner: ShardOwner, offset: int, end: int) -> tuple[int, int | None]:
    """Return (offset, stamp) of the first valid record from ``offset`` on, before ``end``."""
    while offset < end:
        held = owner.recent.read(offset, 64)
        entries = held or await owner.log.read(offset, bytes_max=PROBE_BYTES)
        for entry in entries:
            if entry.offset >= end:
                break
            envelope = record.decode_envelope(entry.value)
            if envelope.at == entry.offset:
                return entry.offset, envelope.stamp
        offset = entries[-1].offset + 1 if entries else end
    return end, None


def _change(owner: ShardOwner, entry: Entry) -> Change | None:
    """Return the stream record of a log entry, or None for what the stream does not show."""
    envelope, body = record.decode_record(entry.value)
    if envelope.at != entry.offset:
        return None
    sequence = SequenceInfo(0, envelope.stamp, 0)
    names = owner.shard.names
    if isinstance(body, record.Put):
        action, cells = PUT_ROW, body.cells
    elif isinstance(body, record.Update):
        action, cells = UPDATE_ROW, body.cells
    elif isinstance(body, record.Delete):
        action, cells = DELETE_ROW, []
    else:
        return None
    key = list(zip(names, body.key, strict=True))
    row = plainbuffer.HEADER + plainbuffer.encode_row(key, cells, sequence=sequence)
    origin = None
    if body.before is not None:
        origin = plainbuffer.HEADER + plainbuffer.encode_row(key, body.before, sequence=sequence)
    return Change(action, row, origin)
