"""Rows with pending writes: a reader of chunks, with later writes over it.

A shard evaluates against an overlay over its store. So a change sees earlier changes that are
appended but not yet applied. A transaction or an atomic batch has its own overlay over the shard's,
so no one else sees its writes.

Only added writes are kept here, and what a batch has read ahead.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import Protocol

from rowtide.core.rows.fold import ChunkReader, Writes

__all__ = ["Overlay", "RangeReader"]

Pair = tuple[bytes, bytes]


class RangeReader(ChunkReader, Protocol):
    """Chunks that can be read in both directions, and many at once."""

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        """Return for each key what ``get`` would."""
        ...

    def scan_backward(self, high: bytes, low: bytes) -> Iterator[Pair]:
        """Yield chunks with low <= key <= high, in descending order."""
        ...


class Overlay:
    """A ``RangeReader`` over another one, with writes that the other does not have."""

    __slots__ = ("_below", "_known", "_order", "_pending", "_removals")

    def __init__(self, below: RangeReader) -> None:
        self._below = below
        self._pending: dict[bytes, bytes | None] = {}
        self._removals: dict[bytes, int] = {}
        """Number of pending removals of a chunk. Unlike values, removals are all equal."""
        self._order: list[bytes] | None = []
        """The keys in order. None after a write: the next scan sorts them."""
        self._known: dict[bytes, bytes | None] = {}
        """Chunks that were read ahead from below."""

    def get(self, chunk_key: bytes) -> bytes | None:
        """Return a chunk as of the last write."""
        pending = self._pending
        if chunk_key in pending:
            return pending[chunk_key]
        known = self._known
        return known[chunk_key] if chunk_key in known else self._below.get(chunk_key)

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        """Return for each key what ``get`` would."""
        pending = self._pending
        if pending.keys().isdisjoint(keys):
            return self._below.get_many(keys)
        asked = [key for key in keys if key not in pending]
        found = dict(zip(asked, self._below.get_many(asked), strict=True))
        return [pending[key] if key in pending else found[key] for key in keys]

    def scan(self, start: bytes, end: bytes) -> Iterator[Pair]:
        """Yield chunks with start <= key < end as of the last write."""
        pending = self._pending
        keys = self._sort_keys()
        fresh = keys[bisect_left(keys, start) : bisect_left(keys, end)]
        below = self._below.scan(start, end)
        return _merge(below, [(k, pending[k]) for k in fresh]) if fresh else below

    def scan_backward(self, high: bytes, low: bytes) -> Iterator[Pair]:
        """Yield chunks with low <= key <= high as of the last write, in descending order."""
        pending = self._pending
        keys = self._sort_keys()
        fresh = keys[bisect_left(keys, low) : bisect_right(keys, high)][::-1]
        below = self._below.scan_backward(high, low)
        return _merge(below, [(k, pending[k]) for k in fresh], down=True) if fresh else below

    def floor(self, chunk_key: bytes, low: bytes) -> Pair | None:
        """Return the last chunk with low <= its key <= chunk_key."""
        return next(self.scan_backward(chunk_key, low), None)

    def add(self, writes: Writes) -> None:
        """Show ``writes`` to readers."""
        self._pending.update(writes)
        self._order = None
        for chunk_key, value in writes:
            if value is None:
                self._removals[chunk_key] = self._removals.get(chunk_key, 0) + 1

    def growth(self, writes: Writes) -> int:
        """Return by how many bytes ``writes`` would increase the chunks in memory."""
        pending = self._pending
        return sum(len(value or b"") - len(pending.get(k) or b"") for k, value in writes)

    def settle(self, writes: Writes) -> None:
        """Drop writes that the reader below has now, unless a later write replaced them."""
        pending = self._pending
        for chunk_key, value in writes:
            last = value is not None or self._settle_removal(chunk_key)
            if last and chunk_key in pending and pending[chunk_key] is value:
                del pending[chunk_key]
        self._order = None

    def _settle_removal(self, chunk_key: bytes) -> bool:
        """Count a removal as stored. True if it was the last one pending."""
        left = self._removals.pop(chunk_key, 1) - 1
        if left:
            self._removals[chunk_key] = left
        return not left

    def read_ahead(self, keys: list[bytes]) -> None:
        """Read chunks that will be needed, at once. The reader below must not change meanwhile."""
        self._known = dict(zip(keys, self._below.get_many(keys), strict=True))

    def pending(self) -> dict[bytes, bytes | None]:
        """Return a copy of every write."""
        return dict(self._pending)

    def clear(self) -> None:
        """Drop every write."""
        self._pending.clear()
        self._removals.clear()
        self._order = None

    def _sort_keys(self) -> list[bytes]:
        if self._order is None:
            self._order = sorted(self._pending)
        return self._order


def _merge(
    below: Iterator[Pair], above: Sequence[tuple[bytes, bytes | None]], *, down: bool = False
) -> Iterator[Pair]:
    """Yield both in key order; ``above`` wins if both have a key."""
    lower = next(below, None)
    for chunk_key, value in above:
        while lower is not None and (lower[0] > chunk_key if down else lower[0] < chunk_key):
            yield lower
            lower = next(below, None)
        if lower is not None and lower[0] == chunk_key:
            lower = next(below, None)
        if value is not None:
            yield chunk_key, value
    if lower is not None:
        yield lower
        yield from below
