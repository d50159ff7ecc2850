"""A log that can't be deleted now is deleted later: what it belonged to is gone all the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pytest

from rowtide.core.values.errors import LogTrimmed, OutcomeUnknown, StoreError, Unavailable, no_table
from rowtide.stream.log.kafka.cluster import KafkaCluster
from rowtide.stream.log.topics import TopicNames
from rowtide.stream.shard.logs import ShardLogs

TOPICS = TopicNames("p", "changelog")


class Brokers:
    """Brokers that are away, or answer too late, when there is a ``failure``."""

    def __init__(self, *there: str) -> None:
        self.there = {TOPICS.shard(shard_id) for shard_id in there}
        self.failure: StoreError | None = None

    async def delete_topics(self, names: Sequence[str]) -> None:
        if self.failure is not None:
            raise self.failure
        self.there -= set(names)


async def test_a_log_that_could_not_be_deleted_goes_with_the_next_one() -> None:
    brokers = Brokers("s1", "s2", "s3", "s4")
    logs = ShardLogs(cast(KafkaCluster, brokers), TOPICS, 4)
    for shard_id, failure in (("s1", Unavailable("away")), ("s2", OutcomeUnknown("late"))):
        brokers.failure = failure
        await logs.delete([shard_id])  # The table is deleted for the client that deleted it.
    assert len(brokers.there) == 4
    brokers.failure = None
    await logs.delete(["s3"])
    assert brokers.there == {TOPICS.shard("s4")}


async def test_logs_made_for_what_is_refused_go_unless_it_may_stand_all_the_same() -> None:
    """Another owner trimmed the catalog's log, and may have read our change in it."""
    brokers = Brokers("s1", "s2", "s3")
    logs = ShardLogs(cast(KafkaCluster, brokers), TOPICS, 4)
    failures = {"s1": no_table(), "s2": LogTrimmed(), "s3": OutcomeUnknown("late")}
    for shard_id, failure in failures.items():
        with pytest.raises(type(failure)):
            async with logs.delete_if_refused([shard_id]):
                raise failure
    assert brokers.there == {TOPICS.shard("s2"), TOPICS.shard("s3")}
