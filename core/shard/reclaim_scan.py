"""Finds work for the reclaimer in a shard's rows: a slice of chunks at a time, by their headers.

Nothing is decoded here. A slice has two bounds: its chunks are scanned between two requests, and
those that need work are decoded between two others.
"""

from __future__ import annotations

from typing import NamedTuple

from rowtide.core.records.record import Reclaim
from rowtide.core.rows.chunk import DELETED, header
from rowtide.core.rows.fold import ChunkReader
from rowtide.core.shard.reclaim import first_place, last_place, needs_reclaim

__all__ = ["Slice", "scan_slice"]


class Slice(NamedTuple):
    """The result for a slice: the range of places with possible work, and deleted rows.

    ``first`` and ``last`` are both empty without work. ``graves`` are chunk keys of deleted rows
    with the stamps of their deletes. ``following`` is the next chunk key, None at the end.
    """

    scanned: int
    first: bytes
    last: bytes
    graves: dict[bytes, int]
    following: bytes | None


def scan_slice(
    rows: ChunkReader,
    low: bytes,
    high: bytes,
    removing: Reclaim,
    *,
    chunks_max: int,
    work_bytes_max: int,
) -> Slice:
    """Scan the chunks from ``low`` on and before ``high``; ``removing`` defines what is hidden."""
    scanned = work_bytes = 0
    first = last = b""
    graves: dict[bytes, int] = {}
    for key, value in rows.scan(low, high):
        if scanned >= chunks_max or work_bytes >= work_bytes_max:
            return Slice(scanned, first, last, graves, key)
        scanned += 1
        if value[1] & DELETED:
            graves[key] = header(value)[4]
        elif needs_reclaim(value, removing.version_cutoff_ms, removing.max_versions):
            first = first or first_place(key, value)
            last = last_place(key, value)
            work_bytes += len(value)
    return Slice(scanned, first, last, graves, None)
