"""The work of a slot's open shards for secondary indexes.

A shard of a table goes through its rows for a new index. A shard of a global index
follows the logs of its table. Both are tasks of the slot, and end with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from rowtide.core.values.schema import Table
from rowtide.stream.log.log import Log
from rowtide.stream.shard.index_builder import build_index
from rowtide.stream.shard.index_feed import IndexFeeder
from rowtide.stream.shard.index_links import IndexLinks
from rowtide.stream.shard.owner import ShardOwner

__all__ = ["SlotIndexes"]


class SlotIndexes:
    """The index work of one slot. ``log_of`` returns a separate handle on a shard's log."""

    def __init__(self, links: IndexLinks, log_of: Callable[[str], Log]) -> None:
        self.feeders: dict[str, IndexFeeder] = {}
        """The feeders of the shards of global indexes, by shard id."""
        self.dropped: set[ShardOwner] = set()
        """Shards that may have rows of a dropped index."""
        self._links = links
        self._log_of = log_of
        self._building: set[tuple[ShardOwner, int]] = set()

    def retable(self, owner: ShardOwner, table: Table, tasks: asyncio.TaskGroup) -> None:
        """Pass the catalog's present table to an open shard.

        From then on it logs the entries of a new index, and goes through its rows for it.
        """
        left = {index.table_id for index in table.indexes}
        if any(index.table_id not in left for index in owner.shard.table.indexes):
            self.dropped.add(owner)
        owner.shard.retable(table)
        self._build(owner, tasks)

    def follow(self, owner: ShardOwner, tasks: asyncio.TaskGroup) -> None:
        """Start the index work of an opened shard: go through its rows, or follow its table."""
        self._build(owner, tasks)
        main = owner.shard.table.main
        if main:
            feeder = IndexFeeder(
                owner, lambda: self._links.sources(main), self._links.source, self._log_of
            )
            self.feeders[owner.shard.shard_id] = feeder
            tasks.create_task(feeder.run(), name=f"feed[{owner.shard.shard_id}]")

    def stop(self, shard_id: str) -> None:
        """Stop a shard's following: it is about to be sealed."""
        feeder = self.feeders.pop(shard_id, None)
        if feeder is not None:
            feeder.stop()

    def _build(self, owner: ShardOwner, tasks: asyncio.TaskGroup) -> None:
        """Build the new indexes of a shard from its rows, in the background."""
        for index in owner.shard.table.indexes:
            place = (owner, index.table_id)
            if index.building and place not in self._building:
                self._building.add(place)
                name = f"build[{owner.shard.shard_id}, {index.table_id}]"
                tasks.create_task(self._build_index(*place), name=name)

    async def _build_index(self, owner: ShardOwner, number: int) -> None:
        try:
            await build_index(owner, number, self._links.finish)
        finally:
            self._building.discard((owner, number))
