"""Which failed calls are repeated, and when. Only what was not applied may be."""

from __future__ import annotations

import random

from rowtide.core.values.errors import StoreError, Unavailable

__all__ = ["Retries"]

FIRST_S = 0.05
"""A shard that is on its way to another worker is there after about a tenth of a second."""

PAUSE_S_MAX = 0.8
"""Pauses double up to this: a server that has too much to do must not be asked ever more."""


class Retries:
    """The repetitions of one call, which began at ``began_s`` of any clock that never goes back."""

    def __init__(self, patience_s: float, began_s: float) -> None:
        self._until_s = began_s + patience_s
        self._pause_s = FIRST_S

    def pause_s(self, failure: StoreError, now_s: float) -> float | None:
        """Return for how long to wait before the call is repeated; None: raise the failure."""
        if not isinstance(failure, Unavailable) or now_s >= self._until_s:
            return None
        pause_s = self._pause_s * random.uniform(0.8, 1.0)
        self._pause_s = min(2 * self._pause_s, PAUSE_S_MAX)
        return min(pause_s, self._until_s - now_s)
