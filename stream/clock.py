"""The one clock of requests and shards: Unix microseconds, which may go back.

A test may have one that stands still until it is set, because what the store means by time shows
only over days. Leases, deadlines and the signatures' dates never depend on this clock.
"""

from __future__ import annotations

import time

from rowtide.core.errors import invalid

__all__ = ["Clock"]


class Clock:
    """The machine's clock, or, given ``still_us``, one that stands there until it is set."""

    def __init__(self, still_us: int | None = None) -> None:
        self._still_us = still_us

    def __call__(self) -> int:
        """Return Unix microseconds."""
        return time.time_ns() // 1000 if self._still_us is None else self._still_us

    def set(self, now_us: int) -> None:
        """Let it be ``now_us``. Raises OTSParameterInvalid where it is the machine's clock."""
        if self._still_us is None:
            raise invalid("The clock cannot be set: this server runs on the machine's clock.")
        self._still_us = now_us
