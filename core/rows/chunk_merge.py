"""How a changelog entry changes the stored chunks: at every place the newer one wins.

An entry has the content of a range of a row as of its stamp, and so has a stored chunk. Where both
cover a place, the higher stamp is right. Stored chunks below the entry's stamp are cut to the part
outside its range, and the entry is cut around the others. So entries may arrive in any order and
repeatedly, and a store that has folded beyond an entry does not go back.

While entries arrive, a row's chunks are disjoint but may have gaps, and the row's first chunk may
come last. Until then a *stand-in* takes its place: a deleted first chunk of stamp 0, below every
real one. It keeps the row absent for readers. With it, "no first chunk" means "no chunk", which the
fast case relies on. Invariant: the stored chunks of one row never overlap.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from rowtide.core.rows import chunk as chunks
from rowtide.core.rows.chunk import DELETED, HEADER_BYTES, Chunk, header
from rowtide.core.rows.fold import ChunkReader, Writes
from rowtide.core.values.cell import Cell

__all__ = ["bury", "encode_deletion", "merge"]

_STAND_IN = 0
"""The stand-in's stamp. Real stamps are times, and never 0."""

_NO_KEY = b"\x01"
"""The key of a row that only the changelog's reader sees: the tag, without a cell."""

_ROW_END = b"\xff"
"""Above every border, for a chunk that reaches the row's end."""

Range = tuple[bytes, bytes]
"""Borders: begin <= place < end."""


def merge(rows: ChunkReader, chunk_key: bytes, value: bytes) -> Writes:
    """Return the writes that make the entry valid wherever nothing newer is.

    For a narrow row against a narrow row, or against nothing, this is one lookup and one
    comparison.
    """
    _, _, end_bytes, _, stamp, _, _, _, begin_bytes = header(value)
    if not begin_bytes:
        stored = rows.get(chunk_key)
        if stored is None:
            return [(chunk_key, value)]
        head = header(stored)
        if not end_bytes and not head[2]:
            return [(chunk_key, value)] if stamp > head[4] else []
    return _merge_ranges(rows, chunk_key, value)


def bury(rows: ChunkReader, chunk_key: bytes) -> Writes:
    """Return the writes for a tombstone: remove a deleted row, keep an existing one.

    The tombstone was written for a deleted row. A row that exists here was put again since, and is
    newer than the tombstone.
    """
    stored = rows.get(chunk_key)
    if stored is None or not header(stored)[1] & DELETED:
        return []
    later: Iterator[tuple[bytes, bytes]] = iter(())
    if header(stored)[2]:
        later = rows.scan(chunk_key + b"\0", chunks.row_end(chunk_key))
    return [(chunk_key, None), *((key, None) for key, _ in later)]


def encode_deletion(stamp: int) -> bytes:
    """Return a chunk that records that a row was deleted at ``stamp``.

    Merged before its tombstone is buried, it removes older chunks here. After compaction nothing
    else shows the delete.
    """
    return chunks.encode(Chunk(stamp, [], deleted=True, key_piece=_NO_KEY))


def _merge_ranges(rows: ChunkReader, chunk_key: bytes, value: bytes) -> Writes:
    """Merge by ranges, for a row that is wide in the entry or in the store."""
    row_key, whole = _place(chunk_key, value)
    stamp = header(value)[4]
    writes: dict[bytes, bytes | None] = {}
    open_ranges = [whole]
    nearest = rows.floor(chunk_key, row_key)
    for key, stored in _overlapping(rows, row_key, whole, nearest):
        _, covered = _place(key, stored)
        if header(stored)[4] >= stamp:
            open_ranges = _without(open_ranges, covered)
            continue
        writes[key] = None
        for rest in _without([covered], whole):
            if header(stored)[4] != _STAND_IN or not rest[0]:
                writes[row_key + rest[0]] = _cut(key, stored, rest)
    for part in open_ranges:
        writes[row_key + part[0]] = _cut(chunk_key, value, part)
    if nearest is None and whole[0]:
        writes[row_key] = chunks.encode(Chunk(_STAND_IN, [], whole[0], True, _NO_KEY))
    return list(writes.items())


def _place(chunk_key: bytes, value: bytes) -> tuple[bytes, Range]:
    """Return the row's key, and the range that a chunk covers."""
    _, _, end_bytes, _, _, _, _, _, begin_bytes = header(value)
    at = len(chunk_key) - begin_bytes
    end = value[HEADER_BYTES : HEADER_BYTES + end_bytes]
    return chunk_key[:at], (chunk_key[at:], end or _ROW_END)


def _overlapping(
    rows: ChunkReader, row_key: bytes, whole: Range, nearest: tuple[bytes, bytes] | None
) -> Iterator[tuple[bytes, bytes]]:
    """Yield the stored chunks that overlap ``whole``, in order.

    ``nearest`` is the last chunk that begins at or before it.
    """
    begin, end = whole
    if nearest is not None and begin < _place(*nearest)[1][1]:
        yield nearest
    yield from list(rows.scan(row_key + begin + b"\0", row_key + end))


def _without(ranges: list[Range], taken: Range) -> list[Range]:
    """Return the parts of ``ranges`` outside ``taken``."""
    low, high = taken
    left: list[Range] = []
    for begin, end in ranges:
        if begin < low:
            left.append((begin, min(end, low)))
        if high < end:
            left.append((max(begin, high), end))
    return left


def _cut(chunk_key: bytes, value: bytes, part: Range) -> bytes:
    """Return a chunk's bytes cut down to ``part`` of its range, with the same stamp.

    The part with the row's start stays the first chunk. Other parts of a deleted chunk become
    ranges without cells.
    """
    if _place(chunk_key, value)[1] == part:
        return value
    begin, end = part
    whole = chunks.decode(chunk_key, value)
    low = bisect_left(whole.cells, begin, key=_border)
    high = bisect_left(whole.cells, end, key=_border)
    rest = Chunk(whole.stamp, whole.cells[low:high], b"" if end == _ROW_END else end, begin=begin)
    if not begin:
        rest.deleted = whole.deleted
        rest.key_piece, rest.key_state = whole.key_piece, whole.key_state
    return chunks.encode(rest)


def _border(cell: Cell) -> bytes:
    return chunks.border(cell.name, cell.version_ms)  # type: ignore[arg-type]
