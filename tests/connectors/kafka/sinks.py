"""Kafka sinks by their settings, and what a topic of theirs has."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from rowtide.connectors.fields import Fields
from rowtide.connectors.registry import ConnectorContext, make_sink
from rowtide.connectors.rows import TableShape
from rowtide.connectors.sinks.kafka.sink import KafkaSink
from rowtide.stream.log.kafka.changelog import KafkaChangelogReader
from rowtide.stream.log.kafka.cluster import KafkaCluster
from rowtide.stream.log.kafka.config import KafkaConfig
from rowtide.stream.log.kafka.fetch import FetchPartition

__all__ = ["TopicRecord", "kafka_sink", "open_sink", "read_records", "records"]


class TopicRecord(NamedTuple):
    """A record of a topic: key and value as JSON, or None for a tombstone."""

    partition: int
    key: Any
    value: Any
    headers: dict[str, bytes]


def kafka_sink(broker: str, topic: str, **settings: object) -> KafkaSink:
    """Return a sink by its settings, as the runtime does."""
    fields = Fields({"kind": "kafka", "brokers": broker, "topic": topic, **settings}, "test")
    sink = make_sink(fields, ConnectorContext("test", ""))
    assert isinstance(sink, KafkaSink)
    return sink


@asynccontextmanager
async def open_sink(
    broker: str, topic: str, table: TableShape, **settings: object
) -> AsyncIterator[KafkaSink]:
    """Give an open sink."""
    sink = kafka_sink(broker, topic, **settings)
    try:
        await sink.open(table)
        yield sink
    finally:
        await sink.close()


async def records(broker: str, topic: str, partitions: int = 1) -> list[tuple[int, Any]]:
    """Return what is committed in a topic, as (partition, entry)."""
    found: list[tuple[int, Any]] = []
    async with KafkaCluster(KafkaConfig(broker)) as cluster:
        for partition in range(partitions):
            reader = KafkaChangelogReader(cluster.brokers, topic, partition)
            end = await FetchPartition(cluster.brokers, topic, partition).find_decided_end()
            async for entries in reader.read(0, end):
                found += [(partition, entry) for entry in entries]
    return found


async def read_records(broker: str, topic: str, partitions: int = 1) -> Sequence[TopicRecord]:
    """Return a topic's records, taken as JSON."""
    return [
        TopicRecord(
            partition,
            json.loads(entry.key),
            None if entry.value is None else json.loads(entry.value),
            dict(entry.headers),
        )
        for partition, entry in await records(broker, topic, partitions)
    ]
