"""Counts of one connector in this process: changes, their rate, and the last error.

These are for status and metrics only. They decide nothing.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from rowtide.client.changes.worker import Batch

__all__ = ["Progress"]

RATE_S = 10.0
"""Seconds over which a rate is measured."""


class Progress:
    """Counts since the connector started here. ``clock`` returns seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.changes = 0
        self.snapshot_rows = 0
        self.failures = 0
        self.last_error = ""
        self.last_error_us = 0
        self.waiting: set[str] = set()
        """Shards that wait for an unavailable sink."""
        self._clock = clock
        self._past: deque[tuple[float, int]] = deque()

    def count_batch(self, batch: Batch) -> None:
        """Count a batch that is finished."""
        if batch.covers is not None:
            self.snapshot_rows += len(batch)
        self.count_changes(len(batch))

    def count_changes(self, changes: int) -> None:
        """Count changes that are finished."""
        self.changes += changes
        now_s = self._clock()
        self._past.append((now_s, changes))
        self._cut(now_s)

    def note_failure(self, what: str) -> None:
        """Count a failure and keep its text."""
        self.failures += 1
        self.last_error = what
        self.last_error_us = time.time_ns() // 1000

    @property
    def rate(self) -> float:
        """Changes per second."""
        self._cut(self._clock())
        return sum(count for _, count in self._past) / RATE_S

    def _cut(self, now_s: float) -> None:
        while self._past and self._past[0][0] < now_s - RATE_S:
            self._past.popleft()
