"""A sink that looks at every row and keeps none: what the pipeline itself costs."""

from __future__ import annotations

from collections.abc import Sequence

from rowtide.connectors.fields import Fields
from rowtide.connectors.registry import ConnectorContext
from rowtide.connectors.rows import Refused, SinkBatch, TableShape
from rowtide.connectors.sinks.sink import Sink

__all__ = ["make_sink"]


def make_sink(fields: Fields, surroundings: ConnectorContext) -> Sink:
    """Return the sink; it has no settings."""
    return NullSink()


class NullSink:
    """Keeps nothing."""

    async def open(self, table: TableShape) -> None:
        """There is nothing to make."""

    async def apply(self, batch: SinkBatch) -> Sequence[Refused]:
        """Look at the rows."""
        assert all(row.stamp for row in batch)
        return ()

    async def close(self) -> None:
        """There is nothing to let go of."""
