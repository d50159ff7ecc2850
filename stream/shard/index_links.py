"""A slot's calls to the tables and indexes around its shards, some of which are on other
workers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from rowtide.core.values.schema import ShardRange
from rowtide.stream.shard.owner import ShardOwner

__all__ = ["IndexLinks"]


class IndexLinks(Protocol):
    """The tables and indexes around a slot's shards."""

    def sources(self, number: int) -> Sequence[ShardRange]:
        """Return the shards of a table, by its number."""
        ...

    def source(self, shard_id: str) -> ShardOwner:
        """Return an open shard. Raises ``Unavailable``."""
        ...

    async def pin(self, owner: ShardOwner) -> int | None:
        """Return the first offset of a shard's log that an index still needs, or None."""
        ...

    async def finish(self, number: int) -> None:
        """Record that a shard of a table has gone through its rows for an index."""
        ...
