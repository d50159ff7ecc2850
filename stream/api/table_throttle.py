"""Limits how often an instance's tables are created, changed and deleted.

Each such operation creates or deletes Kafka topics and writes to the one catalog. So it
costs far more than a write of a row. An operation that is rejected for another reason
does not count.
"""

from __future__ import annotations

from collections.abc import Callable

from rowtide.core.cluster.token_bucket import TokenBucket
from rowtide.core.values.errors import Rejected
from rowtide.core.values.limits import Limits

__all__ = ["TableThrottle"]


class TableThrottle:
    """One bucket per instance. ``clock_s`` gives seconds and never goes back."""

    def __init__(self, limits: Limits, clock_s: Callable[[], float]) -> None:
        self._limits = limits
        self._clock_s = clock_s
        self._buckets: dict[str, TokenBucket] = {}

    def take(self, instance: str) -> None:
        """Count one operation. Raises OTSQuotaExhausted, with the text that SDKs retry."""
        bucket = self._buckets.get(instance)
        if bucket is None:
            limits = self._limits
            bucket = TokenBucket(limits.table_operations_per_s, limits.table_operations_burst)
            self._buckets[instance] = bucket
        if not bucket.take(self._clock_s()):
            raise Rejected("OTSQuotaExhausted", "Too frequent table operations.")
