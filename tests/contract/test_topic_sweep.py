"""Topics that a crash left without a table are deleted by the catalog's next owner, no others."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from uuid import uuid4

import pytest

from rowtide.core.cluster.catalog import (
    TABLE,
    Catalog,
    Document,
    reshape_document,
    table_content,
    table_id,
)
from rowtide.core.shard.reshape import move
from rowtide.core.values.schema import STRING, KeyColumn, ShardRange, Table, TableOptions
from rowtide.stream.cluster.catalog_owner import CatalogOwner
from rowtide.stream.cluster.topic_sweep import TopicSweep
from rowtide.stream.log.kafka.cluster import KafkaCluster
from rowtide.stream.log.kafka.config import KafkaConfig
from rowtide.stream.log.topics import TopicNames, TopicSpec
from tests.contract.memory_log import MemoryLog

pytestmark = pytest.mark.kafka

SHARD = ShardRange("s1", 0)
ENDED = ShardRange("s2", 0, sealed_us=5, sealed_at=3)
KEY = (KeyColumn("k", STRING),)
WHOLE = Table("i", "t", 1, KEY, TableOptions(), None, 0, 0, 0, 0, (SHARD,), ended=(ENDED,))
SWEPT_S_MAX = 30.0


class Noted(KafkaCluster):
    """A cluster that notes which topics it was to delete, and when they are gone."""

    def __init__(self, config: KafkaConfig) -> None:
        super().__init__(config)
        self.deleted: list[str] = []
        self.swept = asyncio.Event()

    async def delete_topics(self, names: Sequence[str]) -> None:
        """Delete topics."""
        self.deleted += names
        await super().delete_topics(names)
        self.swept.set()


def decide(_catalog: Catalog, stamp: int) -> Sequence[Document]:
    """A table with an open and an ended shard, one that arrives, and one id reserved for
    nothing.
    """
    change = move(WHOLE, SHARD, 1, ["s3"], stamp)
    counters = Document("counters", "ids", {"table": 2, "shard": 5})
    table = Document(TABLE, table_id(WHOLE), table_content(replace(WHOLE, created_us=stamp)))
    return [table, reshape_document(change), counters]


async def test_only_what_was_taken_before_and_belongs_to_nobody_goes(broker: str) -> None:
    prefix = f"sweep{uuid4().hex}"
    topics = TopicNames(prefix, "changelog")
    log = MemoryLog()

    def owner(name: bytes) -> CatalogOwner:
        return CatalogOwner(log.twin(), log.twin(), owner=name, clock_us=lambda: 9)

    former, owning = owner(b"former--"), owner(b"owning--")
    await former.open(1)
    await former.change(decide)
    # s4 was reserved and never used, s5 is just being made under the new owner.
    made = {topics.shard(f"s{number}") for number in range(1, 6)}
    async with Noted(KafkaConfig(broker, topic_prefix=prefix)) as cluster:
        await cluster.create_topics([TopicSpec(name) for name in sorted(made)])
        await owning.open(2)
        async with asyncio.TaskGroup() as tasks:
            sweep = tasks.create_task(TopicSweep(owning, cluster, topics).run(), name="sweep")
            async with asyncio.timeout(SWEPT_S_MAX):
                await cluster.swept.wait()
            sweep.cancel()
        assert cluster.deleted == [topics.shard("s4")]
        assert made - set(await cluster.topics()) == {topics.shard("s4")}
        await cluster.delete_topics(sorted(made))
