"""What was long ago, by the time that has passed and not by the clock of the day, which may jump.

A start of a transaction, or an end of a shard, is known by the clock of whoever owned the slot
then. So both clocks are looked at again and again from the opening of the slot on; only what lies
below all that the clock of the day has told in so long a time is as old.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

__all__ = ["LongAgo"]


class LongAgo:
    """Tells what is older than ``kept_s``: all that happened below ``before_us``, 0 for nothing.

    ``clock_us`` is the clock of the day, ``steady_s`` one that never goes back.
    """

    def __init__(
        self, kept_s: float, clock_us: Callable[[], int], steady_s: Callable[[], float]
    ) -> None:
        self.before_us = 0
        self._kept_s = kept_s
        self._clock_us = clock_us
        self._steady_s = steady_s
        self._looks: deque[tuple[float, int]] = deque()
        """(steady seconds, time of day); the first is as old as it has to be, or none is."""

    def restart(self) -> None:
        """Tell what is older than this moment: until now another clock may have been in use."""
        self._looks.clear()
        self.look()

    def look(self) -> None:
        """Look at the clocks: to be called often in ``kept_s``, for a clock may go back."""
        now_s = self._steady_s()
        looks, since_s = self._looks, now_s - self._kept_s
        looks.append((now_s, self._clock_us()))
        while len(looks) > 1 and looks[1][0] <= since_s:
            looks.popleft()
        self.before_us = min(us for _, us in looks) if looks[0][0] <= since_s else 0
