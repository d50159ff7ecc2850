"""Where to cut a table into parts of about equal size.

A table is first measured as pieces in key order: runs of rows with their bytes. Cuts are between
pieces. So if pieces are far smaller than a part, parts have nearly the requested size. The caller
chooses which pieces it measures exactly and which it estimates from the store's files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["RowRun", "StoredFile", "bytes_between", "choose", "estimate"]


class RowRun(NamedTuple):
    """A run of rows: its first key, in any form that sorts like keys, and its bytes."""

    key: bytes
    size: int


class StoredFile(NamedTuple):
    """A sorted file of the store: first and last key, level, entries, bytes.

    Files of one level above 0 do not overlap. Files of different levels do.
    """

    start: bytes
    end: bytes
    level: int
    entries: int
    size: int = 0


def choose(pieces: Sequence[RowRun], split_bytes: int, points_max: int) -> list[bytes]:
    """Return the first keys of all parts but the first, each ``split_bytes`` or slightly more.

    If that would give more than ``points_max`` cuts, the parts are made larger.
    """
    total = sum(piece.size for piece in pieces)
    wanted = max(split_bytes, -(-total // (points_max + 1)))
    points: list[bytes] = []
    size = 0
    for piece in pieces:
        if size >= wanted and len(points) < points_max:
            points.append(piece.key)
            size = 0
        size += piece.size
    return points


def bytes_between(files: Sequence[StoredFile], low: bytes, high: bytes) -> int:
    """Return about how many bytes of files have low <= key < high."""
    size = 0
    for file in files:
        if file.end >= low and file.start < high:
            inside = file.start >= low and file.end < high
            size += file.size if inside else file.size // 2  # Assume half of a file at a border.
    return size


def estimate(
    files: Sequence[StoredFile], measured: Sequence[RowRun], behind: bytes, entry_bytes: float
) -> list[RowRun]:
    """Return pieces, one per file, for the rows from ``behind`` on, which were not measured.

    The level with the most entries gives the distribution of rows. Entries of other levels are
    spread over it in proportion. A file that was ``measured`` in part counts with its rest, from
    ``behind`` on. The keys are those of files; there may be no row with that key.
    """
    by_level: Counter[int] = Counter()
    for file in files:
        by_level[file.level] += file.entries
    if not by_level:
        return []
    largest, entries = by_level.most_common(1)[0]
    entry_bytes *= by_level.total() / max(entries, 1)
    pieces: list[RowRun] = []
    for file in sorted(file for file in files if file.level == largest):
        if file.end < behind:
            continue
        size = int(file.entries * entry_bytes)
        if file.start < behind:
            size -= sum(piece.size for piece in measured if piece.key >= file.start)
        # During a merge of files the first rows may be in a file of another level.
        start = max(file.start, behind) if pieces else behind
        pieces.append(RowRun(start, max(size, 0)))
    return pieces
