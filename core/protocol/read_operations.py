"""Operations that change nothing, of the protocol and of rowtide's own, by their names."""

from __future__ import annotations

__all__ = ["READ_ROWS", "READ_ROWS_KEYS_MAX", "only_reads"]

READ_ROWS = "RowtideReadRows"
"""Ours: rows of encoded keys as of a commit stamp."""

READ_ROWS_KEYS_MAX = 5000
"""Keys in one such request."""

_READS = (
    *("BatchGet", "BulkExport", "Compute", "Describe", "Get", "List"),
    *("RowtideClusterStatus", "RowtideConsumption", "RowtideList", "RowtideStatus"),
)
"""How their names begin."""


def only_reads(operation: str) -> bool:
    """True if an operation changes nothing."""
    return operation.startswith(_READS)
