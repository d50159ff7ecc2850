"""A cluster on the run's broker, and names that no other test uses."""

from __future__ import annotations

from collections.abc import AsyncIterator
from uuid import uuid4

import pytest

from rowtide.stream.log.kafka.cluster import KafkaCluster
from rowtide.stream.log.kafka.config import KafkaConfig


@pytest.fixture
async def cluster(broker: str) -> AsyncIterator[KafkaCluster]:
    """A started cluster on the real broker."""
    async with KafkaCluster(KafkaConfig(broker, request_s=5, deadline_s=20)) as started:
        yield started


@pytest.fixture
def topic() -> str:
    """The name of a topic that does not exist yet."""
    return f"rowtide.test.{uuid4().hex}"
