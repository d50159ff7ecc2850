"""The clock of a reader's leases."""

from __future__ import annotations

import time

__all__ = ["lease_clock"]

# The server has a clock of its own (stream/measures/clock.py). A client imports nothing of the
# server, and the two are never compared.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Linux: seconds since boot, suspend included. macOS: CLOCK_MONOTONIC counts suspend there."""


def lease_clock() -> float:
    """Return seconds on a clock that never goes back and runs during suspend."""
    return time.clock_gettime(_CLOCK)
