"""Counts durations in seconds: their number, their sum, and their number within each bound.

Every request adds one (0.2 us); reading is rare.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

__all__ = ["LONG_S", "SHORT_S", "Histogram"]

SHORT_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
"""Bounds for durations that a client waits for."""

LONG_S = (0.01, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
"""Bounds for work in the background."""


class Histogram:
    """One distribution. ``bounds`` are inclusive upper ends, rising; one more bucket is above."""

    __slots__ = ("bounds", "seconds", "within")

    def __init__(self, bounds: tuple[float, ...] = SHORT_S) -> None:
        self.bounds = bounds
        self.within = [0] * (len(bounds) + 1)
        self.seconds = 0.0

    def add(self, seconds: float) -> None:
        """Count one duration."""
        self.within[bisect_left(self.bounds, seconds)] += 1
        self.seconds += seconds

    @property
    def count(self) -> int:
        """The number of durations."""
        return sum(self.within)

    def cumulative(self) -> Iterator[tuple[float, int]]:
        """Yield (bound, number of durations within it); the last bound is infinite."""
        total = 0
        for bound, within in zip((*self.bounds, float("inf")), self.within, strict=True):
            total += within
            yield bound, total
