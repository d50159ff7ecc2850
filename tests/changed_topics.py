"""Changes a topic's setting, as an administrator of Kafka does behind rowtide's back."""

from __future__ import annotations

from typing import Any

from rowtide.stream.log.kafka.alter_configs import AlterTopics
from rowtide.stream.log.kafka.cluster import KafkaCluster
from tests.support.waiting import SOON_S, until_async

__all__ = ["change_topic"]


async def change_topic(cluster: KafkaCluster, topic: str, name: str, value: str) -> None:
    """Give a topic another value of one setting; return once the broker shows it.

    The controller answers before the broker knows of the change.
    """

    def check(response: Any) -> None:
        assert [code for code, *_ in response.resources] == [0]

    await cluster.brokers.ask_any(AlterTopics([topic], name, value), check)

    async def is_shown() -> bool:
        return (await cluster.settings(topic))[name] == value

    await until_async(is_shown, f"{name} of {topic}", s_max=SOON_S)
