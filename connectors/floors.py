"""Floors of a target: in a range of keys, rows below the floor's stamp are old.

A page of a snapshot has all rows of its range as of a stamp. A row with a lower stamp
that arrives later, from a process that was paused, is old. This is so even if the target
has no row of that key. Targets store floors for good, beside the rows.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import NamedTuple

__all__ = ["Floor", "Floors"]

_NONE = -1


class Floor(NamedTuple):
    """A stamp for the keys from ``begin`` on, before ``end`` (empty: unbounded)."""

    begin: bytes
    end: bytes
    stamp: int


class Floors:
    """The highest floor at each key: a step function over the keys."""

    def __init__(self, floors: Iterable[Floor] = ()) -> None:
        # From starts[i] up to starts[i + 1] the floor is stamps[i].
        self._starts: list[bytes] = [b""]
        self._stamps: list[int] = [_NONE]
        for floor in floors:
            self.add(floor)

    def merge(self, floors: Iterable[Floor]) -> Floors:
        """Return a new object with these floors and others. This object does not change."""
        copy = Floors()
        copy._starts, copy._stamps = list(self._starts), list(self._stamps)
        for floor in floors:
            copy.add(floor)
        return copy

    def add(self, floor: Floor) -> None:
        """Add a floor to these."""
        first = self._cut(floor.begin)
        last = self._cut(floor.end) if floor.end else len(self._starts)
        for place in range(first, last):
            self._stamps[place] = max(self._stamps[place], floor.stamp)

    def fewest(self) -> Iterator[Floor]:
        """Yield the smallest equivalent list of floors, in key order."""
        begin, stamp = b"", self._stamps[0]
        for start, other in zip(self._starts[1:], self._stamps[1:], strict=True):
            if other != stamp:
                if stamp != _NONE:
                    yield Floor(begin, start, stamp)
                begin, stamp = start, other
        if stamp != _NONE:
            yield Floor(begin, b"", stamp)

    def at(self, key: bytes) -> int:
        """Return the stamp below which rows of a key are old, -1 if there is no floor."""
        return self._stamps[bisect_right(self._starts, key) - 1]

    def hides(self, floor: Floor) -> bool:
        """True if higher floors cover this one everywhere, so that it may be forgotten."""
        first = bisect_right(self._starts, floor.begin) - 1
        last = bisect_left(self._starts, floor.end) if floor.end else len(self._starts)
        return min(self._stamps[first:last]) > floor.stamp

    def _cut(self, key: bytes) -> int:
        """Return the index of the step that begins at a key. Insert the step if it is missing."""
        place = bisect_left(self._starts, key)
        if place == len(self._starts) or self._starts[place] != key:
            self._starts.insert(place, key)
            self._stamps.insert(place, self._stamps[place - 1])
        return place
