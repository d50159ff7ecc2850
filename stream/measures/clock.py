"""The one clock of requests and shards, in Unix microseconds, and the clock of leases.

A test may use another clock than the machine's, because some of the store's behaviour
shows only over days. One clock stands still until it is set; another runs and can be
advanced. Leases, deadlines and the signatures' dates never depend on this clock. The ages
of local transactions are measured on its steady side, which never goes back.
"""

from __future__ import annotations

import time

from rowtide.core.values.errors import invalid

__all__ = ["AdvancedClock", "MachineClock", "StillClock", "lease_clock"]

_CLOCK: int | None = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))
"""Linux: seconds since boot, suspend included. macOS: CLOCK_MONOTONIC counts suspend
there. None: Windows, whose ``time.monotonic`` counts it.
"""

ADVANCE_US_MAX = 100 * 366 * 86_400 * 1_000_000
"""A hundred years. More is probably a wrong unit; stamps of records have 63 bits."""


def lease_clock() -> float:
    """Return seconds on a clock that never goes back and runs during suspend."""
    return time.monotonic() if _CLOCK is None else time.clock_gettime(_CLOCK)


class MachineClock:
    """The machine's clock, which may go back. It cannot be set."""

    def __call__(self) -> int:
        """Return Unix microseconds."""
        return time.time_ns() // 1000

    def unix_s(self) -> float:
        """Return Unix seconds."""
        return time.time()

    def steady_s(self) -> float:
        """Return seconds since an arbitrary moment; they never go back."""
        return time.monotonic()

    def set(self, now_us: int, passed_us: int = 0) -> None:
        """Raise OTSParameterInvalid: only a ``StillClock`` can be set."""
        raise invalid("The clock cannot be set: it does not stand still on this server.")

    def advance(self, by_us: int) -> None:
        """Raise OTSParameterInvalid: only an ``AdvancedClock`` can be advanced."""
        raise invalid(
            "The clock cannot be advanced: this server runs on the machine's clock. Start one with "
            "`rowtide dev --ephemeral --test-clock`."
        )


class StillClock(MachineClock):
    """A clock that stands at ``now_us`` until it is set, also to an earlier time."""

    def __init__(self, now_us: int) -> None:
        self._now_us = now_us
        self._passed_us = 0

    def __call__(self) -> int:
        """Return Unix microseconds."""
        return self._now_us

    def unix_s(self) -> float:
        """Return Unix seconds."""
        return self._now_us / 1_000_000

    def steady_s(self) -> float:
        """Return the sum of the ``passed_us`` of all calls of ``set``, in seconds."""
        return self._passed_us / 1_000_000

    def set(self, now_us: int, passed_us: int = 0) -> None:
        """Set the clock to ``now_us``, and its steady side ``passed_us`` further."""
        if passed_us < 0:
            raise invalid(f"The passed_us must not be less than 0, but is {passed_us}.")
        self._now_us = now_us
        self._passed_us += passed_us


class AdvancedClock(MachineClock):
    """A clock that runs from the machine's time on, and that a test advances.

    It never goes back, even if the machine's clock does.
    """

    def __init__(self) -> None:
        self._begin_us = time.time_ns() // 1000 - self._ran_us()
        self._advanced_us = 0

    def __call__(self) -> int:
        """Return Unix microseconds."""
        return self._begin_us + self._ran_us() + self._advanced_us

    def unix_s(self) -> float:
        """Return Unix seconds."""
        return self() / 1_000_000

    def steady_s(self) -> float:
        """Return seconds since an arbitrary moment; advancing the clock counts."""
        return (self._ran_us() + self._advanced_us) / 1_000_000

    def advance(self, by_us: int) -> None:
        """Advance the clock by ``by_us``. Raises OTSParameterInvalid for a negative value."""
        if by_us < 0:
            raise invalid(
                f"The clock cannot go back: the time asked for is {-by_us} microseconds before "
                f"its present {self()}."
            )
        advanced_us = self._advanced_us + by_us
        if advanced_us > ADVANCE_US_MAX:
            raise invalid(
                f"The clock cannot be advanced by more than {ADVANCE_US_MAX} microseconds in "
                f"total, but this makes {advanced_us}. Is the unit right?"
            )
        self._advanced_us = advanced_us

    def _ran_us(self) -> int:
        return int(lease_clock() * 1_000_000)
