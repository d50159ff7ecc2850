"""The logs of shards as a whole: made before the catalog names a shard, deleted after it does not.

A crash in between leaves a topic that belongs to nobody (`stream/topic_sweep.py`).
"""

from __future__ import annotations

from collections.abc import Iterable

from rowtide.stream.kafka_cluster import Cluster
from rowtide.stream.kafka_config import TopicSpec
from rowtide.stream.topics import TopicNames

__all__ = ["ShardLogs"]


class ShardLogs:
    """Topics by the ids of their shards. ``slots`` is how many there are to spread shards over."""

    def __init__(self, cluster: Cluster, topics: TopicNames, slots: int) -> None:
        self._cluster = cluster
        self._topics = topics
        self.slots = slots

    async def make(self, shard_ids: Iterable[str]) -> None:
        """Make the logs of shards that nobody ever used."""
        await self._cluster.create_topics([TopicSpec(self._topics.shard(i)) for i in shard_ids])

    async def delete(self, shard_ids: Iterable[str]) -> None:
        """Delete the logs of shards that are no more."""
        await self._cluster.delete_topics([self._topics.shard(i) for i in shard_ids])

    def slot_of(self, shard_id: str) -> int:
        """Return the slot that a new shard belongs to: its number tells."""
        return int(shard_id[1:]) % self.slots
