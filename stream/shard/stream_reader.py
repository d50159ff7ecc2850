"""Reads a shard's log as its table's stream.

A reader sees the valid mutations since the stream was enabled, in log order, up to the
acknowledged and applied end. It never sees void or hidden records. Records older than the
stream's expiration are rejected even before they are trimmed, so expiry does not depend
on the time of the trim.

Stamps of valid mutations increase with their offsets. A void record's stamp means
nothing, and a no-op's little: the worker that fences a log has not read the earlier
stamps.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple

from rowtide.core.records import record
from rowtide.core.records.change_selection import ChangeSelection
from rowtide.core.records.record_wire import StreamRow, select_row, stream_row
from rowtide.core.values.errors import LogTrimmed
from rowtide.core.values.schema import StreamSettings
from rowtide.stream.log.log import Entry
from rowtide.stream.shard.owner import ShardOwner

__all__ = ["HOUR_US", "Page", "find_stamp", "has_stream", "horizon", "read_page"]

HOUR_US = 3600 * 1_000_000
PROBE_BYTES = 64 * 1024
FETCH_BYTES = 1024 * 1024
"""Bytes requested from the broker at once. A fetch is decoded whole, and kept until it is used."""
SLICE = 128
"""Records converted to answers before other requests get their turn."""


class Page(NamedTuple):
    """The result of one read, with the offset of each record. The next read starts at
    ``next_offset``.
    """

    changes: list[StreamRow]
    offsets: list[int]
    next_offset: int
    at_end: bool


def has_stream(owner: ShardOwner, stream: StreamSettings) -> bool:
    """True if a shard's log has the beginning of a stream, and of no later one."""
    known = owner.shard.state.stream
    return known is not None and known.stream_id == stream.stream_id


async def horizon(owner: ShardOwner, stream: StreamSettings, now_us: int) -> int:
    """Return the first offset of the stream that is neither trimmed nor expired."""
    if not has_stream(owner, stream):
        return owner.end  # Its log has no entry of the stream yet.
    start, _ = await owner.log.bounds()
    first = max(start, owner.shard.state.stream_start)
    oldest_us = now_us - stream.expiration_hours * HOUR_US
    if stream.enabled_at_us >= oldest_us:
        return first
    return await _beyond_trims(owner, first, partial(_find_unexpired, owner, oldest_us))


async def find_stamp(owner: ShardOwner, stamp_us: int, low: int) -> int:
    """Return the first offset from ``low`` on whose record is not older than ``stamp_us``.

    If the log is trimmed beyond ``low``, the search begins at its start.
    """
    return await _beyond_trims(owner, low, partial(_search, owner, stamp_us))


async def _beyond_trims(owner: ShardOwner, low: int, find: Callable[[int], Awaitable[int]]) -> int:
    """Return the result of ``find`` from ``low`` on, or from the log's start if that is later.

    Entries that are trimmed meanwhile had expired, so a reader of the rest must not fail
    for them.
    """
    while True:
        try:
            return await find(low)
        except LogTrimmed:
            start, _ = await owner.log.bounds()
            if start <= low:
                raise
            low = start


async def _find_unexpired(owner: ShardOwner, oldest_us: int, first: int) -> int:
    _, stamp = await _stamp_from(owner, first, owner.end)
    if stamp is None or stamp >= oldest_us:
        return first
    return await _search(owner, oldest_us, first)


async def _search(owner: ShardOwner, stamp_us: int, low: int) -> int:
    high = owner.end
    while low < high:
        middle = (low + high) // 2
        at, stamp = await _stamp_from(owner, middle, high)
        if stamp is None or stamp >= stamp_us:
            high = middle
        else:
            low = at + 1
    return low


async def read_page(
    owner: ShardOwner,
    offset: int,
    *,
    limit: int,
    bytes_max: int,
    selection: ChangeSelection | None = None,
) -> Page:
    """Return up to ``limit`` records from ``offset`` on, about ``bytes_max`` at most.

    Void and hidden entries, and those that ``selection`` leaves out, are skipped, up to
    ``bytes_max`` of log. So a page may be empty without being at the end.
    """
    end = owner.end
    names = owner.shard.names
    changes: list[StreamRow] = []
    offsets: list[int] = []
    at, scanned = offset, 0
    while at < end and len(changes) < limit and scanned < bytes_max:
        entries = await _entries(owner, at, limit - len(changes), bytes_max)
        if not entries or entries[0].offset >= end:
            break
        for entry in entries:
            if entry.offset >= end or len(changes) >= limit or scanned >= bytes_max:
                break
            at = entry.offset + 1
            scanned += len(entry.value)
            if at % SLICE == 0:
                await asyncio.sleep(0)
            if selection is None:
                change = stream_row(entry.value, entry.offset, names)
            else:
                change = select_row(entry.value, entry.offset, names, selection)
            if change is not None:
                changes.append(change)
                offsets.append(entry.offset)
    return Page(changes, offsets, at, at >= end)


async def _entries(owner: ShardOwner, offset: int, limit: int, bytes_max: int) -> list[Entry]:
    held = owner.readers.read_held(offset, limit)
    if held:
        return held
    try:
        entries = await owner.log.read(offset, bytes_max=min(bytes_max, FETCH_BYTES))
    except LogTrimmed as error:
        raise LogTrimmed() from error
    owner.readers.keep_fetched(entries)
    return entries


async def _stamp_from(owner: ShardOwner, offset: int, end: int) -> tuple[int, int | None]:
    """Return (offset, stamp) of the first valid record from ``offset`` on, before ``end``."""
    while offset < end:
        held = owner.readers.read_recent(offset, 64)
        entries = held or await owner.log.read(offset, bytes_max=PROBE_BYTES)
        for entry in entries:
            if entry.offset >= end:
                break
            if not entry.key:
                continue  # Hidden. A no-op that fences has not read the stamps before it.
            envelope = record.decode_envelope(entry.value)
            if envelope.at == entry.offset:
                return entry.offset, envelope.stamp
        offset = entries[-1].offset + 1 if entries else end
    return end, None
