"""The clock of a reader's leases."""

from __future__ import annotations

import time

__all__ = ["lease_clock"]

# The server has a clock of its own (stream/measures/clock.py). A client imports nothing of the
# server, and the two are never compared.
_CLOCK: int | None = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))
"""Linux: seconds since boot, suspend included. macOS: CLOCK_MONOTONIC counts suspend there. None:
Windows, whose ``time.monotonic`` does."""


def lease_clock() -> float:
    """Return seconds on a clock that never goes back and runs during suspend."""
    return time.monotonic() if _CLOCK is None else time.clock_gettime(_CLOCK)
