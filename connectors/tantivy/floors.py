"""From which stamp on a key that is not held may come, for every key there may be.

A page of a snapshot says of a range of keys that nothing else was there as of its stamp. A row of
that range with a lower stamp is a row of before, whether the key is held or not: it may come late,
from a process that was paused with it in hand.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from rowtide.core.key_ranges import Range

__all__ = ["Floors"]


class Floors:
    """A step function of keys: from ``_begins[i]`` on it is ``_stamps[i]``."""

    def __init__(self) -> None:
        self._begins = [b""]
        self._stamps = [0]

    def of(self, key: bytes) -> int:
        """Return the stamp below which a row of the key is of before."""
        return self._stamps[bisect_right(self._begins, key) - 1]

    def lift(self, covered: Range, stamp: int) -> None:
        """Note that a range was told as of ``stamp``; a later stamp stays."""
        begin, end = covered
        first = self._cut(begin)
        last = self._cut(end) if end else len(self._begins)
        self._stamps[first:last] = [max(held, stamp) for held in self._stamps[first:last]]
        self._join(max(first - 1, 0), last)

    def ranges(self) -> Iterator[tuple[Range, int]]:
        """Yield the ranges that have a stamp."""
        ends = [*self._begins[1:], b""]
        for begin, end, stamp in zip(self._begins, ends, self._stamps, strict=True):
            if stamp:
                yield (begin, end), stamp

    def _cut(self, key: bytes) -> int:
        """Return the index of the step that begins at ``key``, made where there was none."""
        at = bisect_left(self._begins, key)
        if at == len(self._begins) or self._begins[at] != key:
            self._begins.insert(at, key)
            self._stamps.insert(at, self._stamps[at - 1])
        return at

    def _join(self, first: int, last: int) -> None:
        """Drop the steps of [first, last] that are as high as the one before."""
        for at in range(min(last, len(self._begins) - 1), first, -1):
            if self._stamps[at] == self._stamps[at - 1]:
                del self._begins[at], self._stamps[at]
