"""The lease of a shard's slot, as the shard sees it: if its owner may answer strong reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rowtide.core.values.errors import Unavailable

__all__ = ["ReadLease"]


@dataclass(frozen=True, slots=True)
class ReadLease:
    """``holds`` is true while the lease holds; ``failure`` returns the error of a read
    without it.
    """

    holds: Callable[[], bool]
    failure: Callable[[], Unavailable] = Unavailable

    def require(self) -> None:
        """Raise the error of a read unless the lease holds."""
        if not self.holds():
            raise self.failure()
