"""The logs of shards as a whole: made before the catalog names a shard, deleted after it does not.

A crash in between leaves a topic that belongs to nobody (`stream/cluster/topic_sweep.py`).
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
    """Topics by the ids of their shards. ``slots`` is how many there are to spread shards over."""

    def __init__(self, cluster: TopicCluster, topics: TopicNames, slots: int) -> None:
        self._cluster = cluster
        self._topics = topics
        self.slots = slots
        self._left: set[str] = set()
        """Topics that could not be deleted yet."""
        self._dropped: set[str] = set()
        """Shards that the catalog has no more, and whose owners may not know it yet."""

    async def make(self, shard_ids: Iterable[str]) -> None:
        """Make the logs of shards that nobody ever used."""
        await self._cluster.create_topics([TopicSpec(self._topics.shard(i)) for i in shard_ids])

    @asynccontextmanager
    async def deleted_if_refused(self, shard_ids: Iterable[str]) -> AsyncIterator[None]:
        """Delete the logs of shards where the change of the catalog within is refused."""
        try:
            yield
        except LogTrimmed:
            raise  # Of the catalog's own log: another worker owns it, and our change may stand.
        except Rejected:
            await self.delete(shard_ids)
            raise

    def dropped(self, shard_ids: Iterable[str]) -> set[str]:
        """Note shards that the catalog has no more; return all whose logs are still there.

        Their logs are to be deleted once every worker has settled what the catalog says by now: an
        owner can't seal a log that is gone. Where one takes too long, the next call returns them.
        """
        self._dropped.update(shard_ids)
        return set(self._dropped)

    async def delete(self, shard_ids: Iterable[str]) -> None:
        """Delete the logs of shards that are no more.

        Never raises where the brokers do not answer: the shards are gone whatever becomes of their
        logs. What is left goes with the next ones, or once the catalog has another owner.
        """
        gone = set(shard_ids)
        self._dropped -= gone
        self._left.update(map(self._topics.shard, gone))
        wanted = sorted(self._left)
        try:
            await self._cluster.delete_topics(wanted)
        except StoreError as error:
            logger.warning("%d topics are deleted later: %s", len(wanted), error)
        else:
            self._left.difference_update(wanted)

    def slot_of(self, shard_id: str) -> int:
        """Return the slot that a new shard belongs to: its number tells."""
        return int(shard_id[1:]) % self.slots
