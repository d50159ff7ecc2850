"""How often a log-in may be tried: by one address, and with one key."""

from __future__ import annotations

import math
import time
from collections import OrderedDict, deque
from collections.abc import Callable

from aiohttp import web

from rowtide.console.web.refusals import RequestRefused

__all__ = ["ATTEMPTS", "LoginAttempts"]

ATTEMPTS_MAX = 10
WINDOW_S = 60.0
NAMES_MAX = 20_000
"""Addresses and keys that are remembered; the oldest are forgotten first."""


class LoginAttempts:
    """Counts attempts of the last minute. The right key counts too: it may be guessed right."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._found: OrderedDict[str, deque[float]] = OrderedDict()

    def require(self, *names: str) -> None:
        """Count an attempt for each name. Raises ``RequestRefused`` where one has too many."""
        now_s = self._now_s()
        all_times = [self._times_of(name, now_s) for name in names]
        full = [times[0] for times in all_times if len(times) >= ATTEMPTS_MAX]
        if full:
            wait_s = max(1, math.ceil(max(full) + WINDOW_S - now_s))
            raise RequestRefused(429, "failure.attempts", retry_after_s=wait_s, seconds=wait_s)
        for times in all_times:
            times.append(now_s)

    def _times_of(self, name: str, now_s: float) -> deque[float]:
        times = self._found.setdefault(name, deque())
        self._found.move_to_end(name)
        while times and times[0] <= now_s - WINDOW_S:
            times.popleft()
        while len(self._found) > NAMES_MAX:
            self._found.popitem(last=False)
        return times


ATTEMPTS = web.AppKey("ATTEMPTS", LoginAttempts)
