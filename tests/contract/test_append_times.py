"""A worker's clock may be anywhere: which time a record has is the broker's to say."""

from __future__ import annotations

import time
from unittest.mock import patch

import pytest

from rowtide.core.values.errors import StoreError, Unavailable
from rowtide.stream.log.kafka.append import Append
from rowtide.stream.log.kafka.cluster import KafkaCluster
from rowtide.stream.log.kafka.record_batch import encode_batch
from rowtide.stream.log.topics import TopicKind, TopicSpec
from tests.support.waiting import SOON_S, until_async

pytestmark = pytest.mark.kafka

DAY_H = 24
CLOCKS_H = [-400 * DAY_H, 0.9, 2, 400 * DAY_H]


async def outcome(cluster: KafkaCluster, topic: str, ahead_h: float) -> int | StoreError:
    """Append a record by a clock that is so many hours ahead of the broker's."""
    now_ms = int((time.time() + ahead_h * 3600) * 1000)
    batches = {(topic, 0): encode_batch([(b"key", b"value")], now_ms=now_ms)}
    return (await Append(cluster.brokers, batches).run(deadline_s=SOON_S))[topic, 0]


@pytest.mark.parametrize("kind", ["log", "compacted"])
@pytest.mark.parametrize("ahead_h", CLOCKS_H)
async def test_a_topic_takes_records_by_any_clock(
    cluster: KafkaCluster, topic: str, kind: TopicKind, ahead_h: float
) -> None:
    await cluster.create_topics([TopicSpec(topic, kind=kind)])
    assert await outcome(cluster, topic, ahead_h) == 0
    [entry] = await cluster.log(topic).read(0, bytes_max=1 << 20)
    assert (entry.key, entry.value) == (b"key", b"value")
    await cluster.delete_topics([topic])


async def test_a_topic_of_an_earlier_version_does_so_from_a_start_on_and_keeps_its_settings(
    cluster: KafkaCluster, topic: str
) -> None:
    kept = {"retention.ms": "-1", "max.message.bytes": "123456"}
    await cluster.create_topic(topic, partitions=1, replicas=1, settings=kept)
    refused = await outcome(cluster, topic, 2)
    # The same write succeeds once the clock is right: it is not refused for good.
    assert isinstance(refused, Unavailable)
    assert "our clock is ahead" in str(refused)
    for _ in range(2):
        await cluster.use_append_time([topic, f"{topic}.deleted"])

    async def is_taken() -> bool:
        return not isinstance(await outcome(cluster, topic, 2), Unavailable)

    await until_async(is_taken, s_max=SOON_S)  # The controller answers before the log has it.
    assert await outcome(cluster, topic, 2) == 1
    assert kept.items() <= (await cluster.settings(topic)).items()
    await cluster.delete_topics([topic])


async def test_where_the_change_is_refused_it_is_reported_and_all_goes_on(
    cluster: KafkaCluster, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def list_topics(*_: object) -> list[str]:
        return [topic]

    with patch.object(KafkaCluster, "_with_writer_time", list_topics):
        await cluster.use_append_time([topic])  # There is no such topic.
    assert "could not be set on 1 topics, so a worker whose clock is an hour ahead" in caplog.text
    assert topic in caplog.text
