"""A topic's durability is verified, or it is not known: never passed over."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from rowtide.stream.log.kafka.brokers import UNKNOWN_TOPIC, Brokers
from rowtide.stream.log.kafka.cluster import KafkaCluster
from rowtide.stream.log.kafka.config import KafkaConfig, topic_settings
from rowtide.stream.log.kafka.errors import NotDurable
from rowtide.stream.log.kafka.metadata import PartitionFound, TopicFound
from rowtide.stream.log.topics import TopicSpec

CONFIG = KafkaConfig("one:9092", durability="replicated", replication_factor=3, min_insync=2)
LEASES = TopicSpec("leases")
NOT_YET_KNOWN = TopicFound(UNKNOWN_TOPIC, "leases", [])
"""By a broker that has just started, or was cut off when the topic was made."""


class LateBrokers(Brokers):
    """Brokers of which the first asked does not know the topic yet."""

    def __init__(self, replicas: int) -> None:
        super().__init__(CONFIG)
        found = TopicFound(0, "leases", [PartitionFound(0, 0, 1, 1, replicas)])
        self.answers = [NOT_YET_KNOWN, found]

    async def metadata(self, topics: list[str] | None) -> Sequence[TopicFound]:
        """Answer for the next broker."""
        return [self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]]


class Settled(KafkaCluster):
    """A cluster whose topics have the settings that are required."""

    async def settings(self, topic: str) -> dict[str, str]:
        """Return them."""
        return topic_settings(CONFIG, LEASES)


@pytest.mark.parametrize("replicas", [1, 3])
async def test_replicas_are_counted_by_a_broker_that_knows_the_topic(replicas: int) -> None:
    cluster = Settled(CONFIG)
    cluster.brokers = LateBrokers(replicas)
    if replicas < CONFIG.replication_factor:
        with pytest.raises(NotDurable, match="has 1 replicas, must have 3"):
            await cluster.verify_durability(LEASES)
    else:
        await cluster.verify_durability(LEASES)
