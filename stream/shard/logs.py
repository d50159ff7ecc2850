"""The logs of shards as a whole: created before the catalog has a shard, deleted after it.

A crash in between leaves a topic without a shard (`stream/cluster/topic_sweep.py`).
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from rowtide.core.values.errors import LogTrimmed, Rejected, StoreError
from rowtide.stream.log.cluster import TopicCluster
from rowtide.stream.log.topics import TopicNames, TopicSpec

__all__ = ["ShardLogs"]

logger = logging.getLogger(__name__)


class ShardLogs:
    """Topics by the ids of their shards. ``slots`` is the number of slots to spread shards over."""

    def __init__(self, cluster: TopicCluster, topics: TopicNames, slots: int) -> None:
        self._cluster = cluster
        self._topics = topics
        self.slots = slots
        self._left: set[str] = set()
        """Topics that could not be deleted yet."""
        self._dropped: set[str] = set()
        """Shards that are gone from the catalog, while their owners may not know it yet."""

    async def make(self, shard_ids: Iterable[str]) -> None:
        """Create the logs of shards whose ids were never used."""
        await self._cluster.create_topics([TopicSpec(self._topics.shard(i)) for i in shard_ids])

    @asynccontextmanager
    async def delete_if_refused(self, shard_ids: Iterable[str]) -> AsyncIterator[None]:
        """Delete the logs of shards if the change of the catalog within is rejected."""
        try:
            yield
        except LogTrimmed:
            # Raised by the catalog's own log: another worker owns it, and our change may
            # be durable.
            raise
        except Rejected:
            await self.delete(shard_ids)
            raise

    def note_dropped(self, shard_ids: Iterable[str]) -> set[str]:
        """Record shards that are gone from the catalog; return all of them whose logs
        still exist.

        Delete their logs once every worker has settled the present catalog: an owner
        cannot seal a deleted log. If one takes too long, the next call returns them
        again.
        """
        self._dropped.update(shard_ids)
        return set(self._dropped)

    async def delete(self, shard_ids: Iterable[str]) -> None:
        """Delete the logs of shards that no longer exist.

        Does not raise if the brokers do not answer: the shards are gone whatever happens
        to their logs. The rest is deleted with the next ones, or once the catalog has
        another owner.
        """
        gone = set(shard_ids)
        self._dropped -= gone
        self._left.update(map(self._topics.shard, gone))
        wanted = sorted(self._left)
        try:
            await self._cluster.delete_topics(wanted)
        except StoreError as error:
            logger.warning(
                "cannot delete %d topics, retrying with the next ones: %s", len(wanted), error
            )
        else:
            self._left.difference_update(wanted)

    def slot_of(self, shard_id: str) -> int:
        """Return the slot of a new shard, which its number determines."""
        return int(shard_id[1:]) % self.slots
