"""Which operations, of the protocol and of rowtide's own, change nothing, by their names."""

from __future__ import annotations

__all__ = ["only_reads"]

_READS = (
    *("BatchGet", "BulkExport", "Compute", "Describe", "Get", "List"),
    *("RowtideClusterStatus", "RowtideConsumption", "RowtideList", "RowtideStatus"),
)
"""How their names begin."""


def only_reads(operation: str) -> bool:
    """True if an operation changes nothing."""
    return operation.startswith(_READS)
