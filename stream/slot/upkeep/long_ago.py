"""Decides what is old by elapsed time, not by the time of day, which may jump.

A transaction's start, or a shard's end, has the time of the slot's owner at that moment.
So both clocks are read again and again from the opening of the slot on. A time is old
only if it lies below every time of day that was read during ``kept_s``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

__all__ = ["LongAgo"]


class LongAgo:
    """Finds times that are older than ``kept_s``: all below ``before_us``; 0: none.

    ``clock_us`` is the time of day, ``steady_s`` a clock that never goes back.
    """

    def __init__(
        self, kept_s: float, clock_us: Callable[[], int], steady_s: Callable[[], float]
    ) -> None:
        self.before_us = 0
        self._kept_s = kept_s
        self._clock_us = clock_us
        self._steady_s = steady_s
        self._looks: deque[tuple[float, int]] = deque()
        """(steady seconds, time of day); the first is as old as necessary, or none is."""

    def restart(self) -> None:
        """Start again at this moment: until now another clock may have been in use."""
        self._looks.clear()
        self.look()

    def look(self) -> None:
        """Read the clocks: call it often within ``kept_s``, because a clock may go back."""
        now_s = self._steady_s()
        looks, since_s = self._looks, now_s - self._kept_s
        looks.append((now_s, self._clock_us()))
        while len(looks) > 1 and looks[1][0] <= since_s:
            looks.popleft()
        self.before_us = min(us for _, us in looks) if looks[0][0] <= since_s else 0
