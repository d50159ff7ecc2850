"""How long the leases of a worker's slots last."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["LeaseSettings"]


@dataclass(frozen=True, slots=True)
class LeaseSettings:
    """How long a lease lasts. If short, a crash costs less; a starved process loses reads
    sooner.
    """

    lease_s: float = 1.2

    @property
    def renew_s(self) -> float:
        """Seconds between renewals."""
        return self.lease_s / 5

    @property
    def answer_s(self) -> float:
        """Time for which a broker is waited for, in seconds."""
        return self.lease_s / 2

    @property
    def lease_ms(self) -> int:
        """The lease in whole milliseconds, rounded up."""
        return math.ceil(self.lease_s * 1000)
