"""Which failed calls are retried, and when. Only calls that were not applied are."""

from __future__ import annotations

import random

from rowtide.core.values.errors import StoreError, Unavailable

__all__ = ["Retries"]

FIRST_S = 0.05
"""A shard that moves is served by its new worker after about a tenth of a second."""

PAUSE_S_MAX = 0.8
"""Pauses double up to this limit, so that retries do not add to an overload."""


class Retries:
    """The retries of one call. ``began_s`` and ``now_s`` come from one monotonic clock."""

    def __init__(self, patience_s: float, began_s: float) -> None:
        self._until_s = began_s + patience_s
        self._pause_s = FIRST_S

    def pause_s(self, failure: StoreError, now_s: float) -> float | None:
        """Return the pause before the next retry; None if the failure must be raised."""
        if not isinstance(failure, Unavailable) or now_s >= self._until_s:
            return None
        pause_s = self._pause_s * random.uniform(0.8, 1.0)
        self._pause_s = min(2 * self._pause_s, PAUSE_S_MAX)
        return min(pause_s, self._until_s - now_s)
