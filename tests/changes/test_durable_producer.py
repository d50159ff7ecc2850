"""An app's producer knows what Kafka has: its own records, refused ones, and another worker's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import faust
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from rowtide.client.agents.durable_producer import DurableProducer, ForeignRecords, NotDelivered

pytestmark = pytest.mark.kafka

ANSWER_S_MAX = 30.0
BYTES_MAX = 2000
"""The topic's largest record."""


@pytest.fixture
async def topic(broker: str) -> str:
    """A topic with one partition."""
    name = f"durable-{uuid4().hex[:8]}"
    admin = AIOKafkaAdminClient(bootstrap_servers=broker)
    await admin.start()
    limits = {"max.message.bytes": str(BYTES_MAX)}
    await admin.create_topics([NewTopic(name, 1, 1, topic_configs=limits)])
    await admin.close()
    return name


@pytest.fixture
async def producer(broker: str) -> AsyncIterator[DurableProducer]:
    """The producer of an app that does nothing else."""
    app = faust.App(f"app-{uuid4().hex[:8]}", broker=f"kafka://{broker}")
    app.transport.Producer = DurableProducer
    app.finalize()
    made = app.producer
    assert isinstance(made, DurableProducer)
    await made.start()
    yield made
    await made.stop()


async def send(producer: DurableProducer, topic: str, value: bytes) -> Any:
    """Send a record without waiting for Kafka."""
    return await producer.send(topic, b"k", value, None, None, None)


async def send_as_another(broker: str, topic: str) -> None:
    async with AIOKafkaProducer(bootstrap_servers=broker) as other:
        await other.send_and_wait(topic, b"theirs")


async def test_settle_returns_when_kafka_has_answered(
    producer: DurableProducer, topic: str
) -> None:
    answers = [await send(producer, topic, b"%d" % number) for number in range(100)]
    await producer.settle()
    assert [answer.result().offset for answer in answers] == list(range(100))


async def test_a_refused_record_is_never_forgotten(producer: DurableProducer, topic: str) -> None:
    answer = await send(producer, topic, b"x" * BYTES_MAX)
    async with asyncio.timeout(ANSWER_S_MAX):
        with pytest.raises(NotDelivered, match="MessageSizeTooLarge"):
            await producer.settle()
    assert answer.done()
    await send(producer, topic, b"small")
    with pytest.raises(NotDelivered):
        await producer.settle()


async def test_a_changelog_with_own_records_only_is_complete(
    producer: DurableProducer, topic: str
) -> None:
    producer.watch({(topic, 0): 0})
    for number in range(5):
        await send(producer, topic, b"%d" % number)
    await producer.require_untouched((topic, 0), 5)


async def test_records_that_came_after_the_recovery_are_noticed(
    producer: DurableProducer, topic: str, broker: str
) -> None:
    await send_as_another(broker, topic)
    producer.watch({(topic, 0): 1})
    await producer.require_untouched((topic, 0), 1)
    await send_as_another(broker, topic)
    with pytest.raises(ForeignRecords, match="goes on at offset 2, and this worker knows it up to"):
        await producer.require_untouched((topic, 0), 2)


async def test_records_between_own_records_are_noticed(
    producer: DurableProducer, topic: str, broker: str
) -> None:
    producer.watch({(topic, 0): 0})
    await send(producer, topic, b"ours")
    await producer.settle()
    await send_as_another(broker, topic)
    await send(producer, topic, b"ours")
    with pytest.raises(NotDelivered, match="another worker wrote to it"):
        await producer.settle()


async def test_changelogs_of_other_workers_are_not_watched(
    producer: DurableProducer, topic: str, broker: str
) -> None:
    producer.watch({(topic, 0): 0})
    producer.watch({})
    await send_as_another(broker, topic)
    await send(producer, topic, b"ours")
    await producer.settle()
    await producer.require_untouched((topic, 0), 2)
