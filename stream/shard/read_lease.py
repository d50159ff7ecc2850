"""Whether the owner of a shard may answer strong reads: its slot's lease, as a shard sees it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rowtide.core.values.errors import Unavailable

__all__ = ["ReadLease"]


@dataclass(frozen=True, slots=True)
class ReadLease:
    """``holds`` tells whether the lease holds now, ``failure`` returns that of a read without."""

    holds: Callable[[], bool]
    failure: Callable[[], Unavailable] = Unavailable

    def require(self) -> None:
        """Raise the failure of a read unless the lease holds."""
        if not self.holds():
            raise self.failure()
