"""Tables are made while others change the catalog: what is decided holds when it is written."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import cast

import pytest

from rowtide.core.cluster.catalog import INSTANCE, Document, Instance
from rowtide.core.protocol.authentication import Identity
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.values.errors import OutcomeUnknown, Rejected, Unavailable
from rowtide.core.values.limits import Limits
from rowtide.core.values.schema import ShardRange
from rowtide.stream.api.admin import instance_document
from rowtide.stream.api.directory import Directory
from rowtide.stream.api.index import IndexOperations
from rowtide.stream.api.table import TableOperations
from rowtide.stream.api.table_throttle import TableThrottle
from rowtide.stream.cluster.catalog_owner import CatalogOwner, Decide
from rowtide.stream.cluster.placement import Placement
from rowtide.stream.log.kafka.cluster import KafkaCluster
from rowtide.stream.log.topics import TopicNames, TopicSpec
from rowtide.stream.shard.logs import ShardLogs
from tests.contract.memory_log import MemoryLog

ANN = Identity("key-of-ann", "shop", b"")


class Around:
    """What surrounds the operations. ``happens`` does while a table's logs are made."""

    def __init__(self, catalog: CatalogOwner, happens: Callable[[], Awaitable[None]]) -> None:
        self._catalog = catalog
        self._happens = happens
        self.slow = False
        """A worker does not settle in time."""
        self.topics: set[str] = set()
        self.operations = TableOperations(
            Directory(catalog.catalog, {}, Limits(), lambda: 1),
            catalog,
            ShardLogs(cast(KafkaCluster, self), TopicNames("p", "changelog"), 4),
            cast(TableThrottle, self),
            cast(IndexOperations, self),
            cast(Placement, self),
        )

    async def create(self, name: str) -> None:
        """Ask for a table."""
        request = pb.CreateTableRequest()
        request.table_meta.table_name = name
        request.table_meta.primary_key.add(name="pk", type=pb.STRING)
        request.reserved_throughput.capacity_unit.read = 0
        request.reserved_throughput.capacity_unit.write = 0
        await self.operations.create_table(ANN, request.SerializeToString())

    async def drop(self, name: str) -> None:
        """Ask for a table's end."""
        request = pb.DeleteTableRequest(table_name=name)
        await self.operations.delete_table(ANN, request.SerializeToString())

    async def create_topics(self, specs: Sequence[TopicSpec]) -> None:
        self.topics.update(spec.name for spec in specs)
        await self._happens()

    async def delete_topics(self, names: Sequence[str]) -> None:
        self.topics.difference_update(names)

    def take(self, _instance: str) -> None:
        """There is room for any number of operations."""

    async def reserve(self, _count: int) -> list[ShardRange]:
        return []

    async def change(self, decide: Decide) -> None:
        await self._catalog.change(decide)
        await self.settle(())

    async def settle(self, _tables: Collection[int]) -> None:
        if self.slow:
            raise OutcomeUnknown


async def nothing() -> None:
    """What happens where nothing does."""


async def open_catalog() -> CatalogOwner:
    """Return a catalog that is owned, with one instance."""
    log = MemoryLog()
    catalog = CatalogOwner(log, log.twin(), owner=b"ownerid1", clock_us=lambda: 1)
    await catalog.open(1)
    shop = instance_document(Instance(ANN.instance, "capacity", 1))
    await catalog.change(lambda _catalog, _stamp: [shop])
    return catalog


async def create(catalog: CatalogOwner, meanwhile: Callable[[], Awaitable[None]]) -> None:
    """Ask for a table."""
    await Around(catalog, meanwhile).create("t")


async def test_no_table_is_made_in_an_instance_that_is_deleted_meanwhile() -> None:
    catalog = await open_catalog()

    async def delete() -> None:
        gone = Document(INSTANCE, ANN.instance, None)
        await catalog.change(lambda _catalog, _stamp: [gone])

    with pytest.raises(Rejected, match="does not exist"):
        await create(catalog, delete)
    assert catalog.catalog.table(ANN.instance, "t") is None


async def test_no_table_is_made_of_logs_that_are_swept_meanwhile() -> None:
    """The same worker takes the catalog over again, and deletes the logs that are no table's."""
    catalog = await open_catalog()

    async def take_over() -> None:
        await catalog.open(2)

    with pytest.raises(Unavailable, match="taken over"):
        await create(catalog, take_over)
    assert catalog.catalog.table(ANN.instance, "t") is None


async def test_a_table_that_is_refused_leaves_no_log() -> None:
    """Another one of its name was made while its logs were."""
    catalog = await open_catalog()
    around = Around(catalog, lambda: create(catalog, nothing))
    with pytest.raises(Rejected, match="already exists"):
        await around.create("t")
    assert around.topics == set()


async def test_logs_of_a_table_whose_end_a_slow_worker_did_not_settle_go_with_the_next() -> None:
    around = Around(await open_catalog(), nothing)
    for name in "ab":
        await around.create(name)
    assert len(around.topics) == 2
    around.slow = True
    with pytest.raises(OutcomeUnknown):
        await around.drop("a")
    assert len(around.topics) == 2, "the slow worker may still have to seal it"
    around.slow = False
    await around.drop("b")
    assert around.topics == set()


async def test_a_table_whose_end_is_not_decided_keeps_its_logs() -> None:
    around = Around(await open_catalog(), nothing)
    await around.create("t")
    with pytest.raises(Rejected):
        await around.drop("u")
    assert len(around.topics) == 1
