"""The one clock of requests and shards, Unix microseconds that may go back, and that of leases.

A test may have one that stands still until it is set, because what the store means by time shows
only over days. Leases, deadlines and the signatures' dates never depend on this clock. The lives of
local transactions are measured by its steady side, which never goes back: in a test, time passes
there only when the test says so.
"""

from __future__ import annotations

import time

from rowtide.core.errors import invalid

__all__ = ["Clock", "lease_clock"]

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Linux: seconds since boot, suspend included. macOS: CLOCK_MONOTONIC counts suspend there."""


def lease_clock() -> float:
    """Return seconds on a clock that never goes back and runs during suspend."""
    return time.clock_gettime(_CLOCK)


class Clock:
    """The machine's clock, or, given ``still_us``, one that stands there until it is set."""

    def __init__(self, still_us: int | None = None) -> None:
        self._still_us = still_us
        self._passed_us = 0

    def __call__(self) -> int:
        """Return Unix microseconds."""
        return time.time_ns() // 1000 if self._still_us is None else self._still_us

    def steady_s(self) -> float:
        """Return seconds since an arbitrary moment; setting the clock does not change them."""
        return time.monotonic() if self._still_us is None else self._passed_us / 1_000_000

    def set(self, now_us: int, passed_us: int = 0) -> None:
        """Let it be ``now_us``, and ``passed_us`` later on its steady side.

        Raises OTSParameterInvalid where it is the machine's clock, or time would go back.
        """
        if self._still_us is None:
            raise invalid("The clock cannot be set: this server runs on the machine's clock.")
        if passed_us < 0:
            raise invalid(f"The passed_us must not be less than 0, but is {passed_us}.")
        self._still_us = now_us
        self._passed_us += passed_us
