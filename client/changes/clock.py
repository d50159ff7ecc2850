"""The clock of a reader's leases."""

from __future__ import annotations

import time

__all__ = ["lease_clock"]

# The server has its own clock (stream/measures/clock.py). A client imports nothing of the server,
# and the two clocks are never compared.
_CLOCK: int | None = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))
"""Linux: seconds since boot, with suspend. macOS: CLOCK_MONOTONIC includes suspend.
Windows: None, because ``time.monotonic`` includes suspend.
"""


def lease_clock() -> float:
    """Return seconds of a monotonic clock that includes suspend."""
    return time.monotonic() if _CLOCK is None else time.clock_gettime(_CLOCK)
