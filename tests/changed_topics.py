"""Changes a topic's setting, as an administrator of Kafka does behind rowtide's back."""

from __future__ import annotations

import asyncio
from typing import Any

from rowtide.stream.log.kafka.alter_configs import AlterTopics
from rowtide.stream.log.kafka.cluster import KafkaCluster
from tests.support.waiting import POLL_S, SOON_S

__all__ = ["change_topic"]


async def change_topic(cluster: KafkaCluster, topic: str, name: str, value: str) -> None:
    """Give a topic another value of one setting; return once the broker shows it.

    The controller answers before the broker knows of the change.
    """

    def check(response: Any) -> None:
        assert [code for code, *_ in response.resources] == [0]

    await cluster.brokers.ask_any(AlterTopics([topic], name, value), check)
    async with asyncio.timeout(SOON_S):
        while (await cluster.settings(topic))[name] != value:  # noqa: ASYNC110 - Without an event.
            await asyncio.sleep(POLL_S)
