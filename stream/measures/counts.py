"""Counts of a worker beside its requests: appends, flushes, recoveries, leases, stream reads.

They are plain numbers that only rise. The code that does the work increments them. There
is one object per worker; a part without one counts in its own object.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rowtide.core.shard.reshape import KINDS
from rowtide.stream.measures.histogram import LONG_S, Histogram

__all__ = ["Counts"]


def _long() -> Histogram:
    return Histogram(LONG_S)


@dataclass(slots=True)
class Counts:
    """Counts since the process started. Bytes are those of records as the log stores them."""

    appends: Histogram = field(default_factory=Histogram)
    append_records: int = 0
    append_bytes: int = 0
    appends_void: int = 0
    """Batches that another writer preceded; they were evaluated again."""
    appends_unknown: int = 0
    """Batches without an answer of the log in time; reading the log showed their outcome."""

    stream_reads: int = 0
    stream_records: int = 0

    flushes: Histogram = field(default_factory=_long)
    flush_entries: int = 0
    flush_failures: int = 0

    recoveries: Histogram = field(default_factory=_long)
    """Shards opened by reading their logs."""
    recovered_records: int = 0

    reshapes: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    """Finished splits, merges and moves, by kind."""
    copied_bytes: int = 0
    """Bytes of moved rows, in records of the shards that replace the old ones."""

    standby_records: int = 0
    bounded_copy: int = 0
    """Reads that allow staleness, answered without their owner."""
    bounded_owner: int = 0

    claims: int = 0
    renewals: int = 0
    renewals_failed: int = 0
    leases_lost: int = 0

    loop_delay: Histogram = field(default_factory=Histogram)
    broker_restarts: int = 0
    """Restarts of the embedded broker."""
