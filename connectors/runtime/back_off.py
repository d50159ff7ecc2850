"""Pauses before something that failed is retried: 1 s, doubled up to 60 s, with jitter.

The jitter keeps clients that failed together from retrying together.
"""

from __future__ import annotations

import asyncio
import random

__all__ = ["BackOff"]

FIRST_S, LAST_S = 1.0, 60.0
JITTER = 0.25


class BackOff:
    """The pauses of one operation that is retried. ``reset`` starts again at the first."""

    def __init__(self, *, first_s: float = FIRST_S, last_s: float = LAST_S) -> None:
        self._first_s = first_s
        self._last_s = last_s
        self.failures = 0

    def reset(self) -> None:
        """Forget the failures."""
        self.failures = 0

    def next_s(self) -> float:
        """Count a failure and return the pause after it, in seconds."""
        pause_s = min(self._last_s, self._first_s * 2.0 ** min(self.failures, 30))
        self.failures += 1
        return pause_s * random.uniform(1 - JITTER, 1 + JITTER)

    async def pause(self, stop: asyncio.Event) -> bool:
        """Count a failure and wait. True if ``stop`` ended the pause early."""
        try:
            async with asyncio.timeout(self.next_s()):
                await stop.wait()
        except TimeoutError:
            return False
        return True
