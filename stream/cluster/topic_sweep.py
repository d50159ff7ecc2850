"""Deletes shards' topics that a crash between two steps has left without a table.

A worker that takes the catalog over checks once. Every shard id that was taken before
belongs to a table, to a change of shards, or to nothing. The worker that wanted to use it
cannot change the catalog any more.
"""

from __future__ import annotations

import asyncio
import logging

from rowtide.core.values.errors import StoreError
from rowtide.stream.cluster.catalog_owner import CatalogOwner
from rowtide.stream.log.cluster import TopicCluster
from rowtide.stream.log.topics import TopicNames

__all__ = ["TopicSweep"]

logger = logging.getLogger(__name__)

RETRY_S = 2.0


class TopicSweep:
    """The sweeps of one worker, one each time it takes the catalog over."""

    def __init__(self, catalog: CatalogOwner, cluster: TopicCluster, topics: TopicNames) -> None:
        self._catalog = catalog
        self._cluster = cluster
        self._topics = topics

    async def run(self) -> None:
        """Sweep until cancelled."""
        while True:
            await self._catalog.taken_over.wait()
            self._catalog.taken_over.clear()
            try:
                await self._sweep(self._catalog.first_shard)
            except StoreError as error:
                logger.warning(
                    "cannot delete topics without a table, retrying in %s s: %s", RETRY_S, error
                )
                await asyncio.sleep(RETRY_S)
                self._catalog.taken_over.set()

    async def _sweep(self, first_shard: int) -> None:
        prefix = self._topics.shard("s")
        found = [name for name in await self._cluster.topics() if name.startswith(prefix)]
        # After reading the topics: what is known by now was created before.
        if not self._catalog.is_owner:
            return
        stray = [name for name in found if self._is_stray(name[len(prefix) :], first_shard)]
        if stray:
            logger.warning("deleting %d topics that belong to no table", len(stray))
            await self._cluster.delete_topics(stray)

    def _is_stray(self, number: str, first_shard: int) -> bool:
        catalog, shard_id = self._catalog.catalog, f"s{number}"
        planned = (child for change in catalog.reshapes.values() for child in change.children)
        known = shard_id in catalog.shards or any(child.shard_id == shard_id for child in planned)
        return number.isdecimal() and int(number) < first_shard and not known
