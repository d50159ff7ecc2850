"""A rate limit: a steady rate, and a burst above it.

A bucket has up to ``burst`` tokens and gains ``rate_per_s`` per second. Each event takes one.
Seconds are those of a monotonic clock, which the caller reads.
"""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["TokenBucket"]


@dataclass(slots=True)
class TokenBucket:
    """One bucket, full at first. A ``rate_per_s`` of 0 allows everything."""

    rate_per_s: float
    burst: int
    _tokens: float = field(init=False)
    _at_s: float = field(init=False, default=0.0)

    def __post_init__(self) -> None:
        self._tokens = self.burst

    def take(self, now_s: float) -> bool:
        """Take a token. True if there was one."""
        if self.rate_per_s <= 0:
            return True
        gained = max(0.0, now_s - self._at_s) * self.rate_per_s
        self._tokens = min(self.burst, self._tokens + gained)
        self._at_s = max(self._at_s, now_s)
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True
