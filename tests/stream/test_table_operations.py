"""Tables are made while others change the catalog: what is decided holds when it is written."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import cast

import pytest

from rowtide.core.authentication import Identity
from rowtide.core.catalog import INSTANCE, Document, Instance
from rowtide.core.errors import Rejected, Unavailable
from rowtide.core.limits import Limits
from rowtide.core.schema import ShardRange
from rowtide.core.wire import ots_pb2 as pb
from rowtide.stream.catalog.owner import CatalogOwner, Decide
from rowtide.stream.operations.admin import instance_document
from rowtide.stream.operations.directory import Directory
from rowtide.stream.operations.index import IndexOperations
from rowtide.stream.operations.table import TableOperations
from rowtide.stream.operations.table_throttle import TableThrottle
from rowtide.stream.peers.placement import Placement
from rowtide.stream.shards.logs import ShardLogs
from tests.contract.memory_log import MemoryLog

ANN = Identity("key-of-ann", "shop", b"")


class Around:
    """What surrounds the operations. Something happens while a table's logs are made."""

    def __init__(self, catalog: CatalogOwner, happens: Callable[[], Awaitable[None]]) -> None:
        self._catalog = catalog
        self._happens = happens

    async def make(self, _shard_ids: Iterable[str]) -> None:
        await self._happens()

    def slot_of(self, _shard_id: str) -> int:
        return 0

    def take(self, _instance: str) -> None:
        """There is room for any number of operations."""

    async def reserve(self, _count: int) -> list[ShardRange]:
        return []

    async def change(self, decide: Decide) -> None:
        await self._catalog.change(decide)


async def opened() -> CatalogOwner:
    """Return a catalog that is owned, with one instance."""
    log = MemoryLog()
    catalog = CatalogOwner(log, log.twin(), owner=b"ownerid1", clock_us=lambda: 1)
    await catalog.open(1)
    shop = instance_document(Instance(ANN.instance, "capacity", 1))
    await catalog.change(lambda _catalog, _stamp: [shop])
    return catalog


async def create(catalog: CatalogOwner, meanwhile: Callable[[], Awaitable[None]]) -> None:
    """Ask for a table."""
    around = Around(catalog, meanwhile)
    operations = TableOperations(
        Directory(catalog.catalog, {}, Limits(), lambda: 1),
        catalog,
        cast(ShardLogs, around),
        cast(TableThrottle, around),
        cast(IndexOperations, around),
        cast(Placement, around),
    )
    request = pb.CreateTableRequest()
    request.table_meta.table_name = "t"
    request.table_meta.primary_key.add(name="pk", type=pb.STRING)
    request.reserved_throughput.capacity_unit.read = 0
    request.reserved_throughput.capacity_unit.write = 0
    await operations.create_table(ANN, request.SerializeToString())


async def test_no_table_is_made_in_an_instance_that_is_deleted_meanwhile() -> None:
    catalog = await opened()

    async def deleted() -> None:
        gone = Document(INSTANCE, ANN.instance, None)
        await catalog.change(lambda _catalog, _stamp: [gone])

    with pytest.raises(Rejected, match="does not exist"):
        await create(catalog, deleted)
    assert catalog.catalog.table(ANN.instance, "t") is None


async def test_no_table_is_made_of_logs_that_are_swept_meanwhile() -> None:
    """The same worker takes the catalog over again, and deletes the logs that are no table's."""
    catalog = await opened()

    async def taken_over() -> None:
        await catalog.open(2)

    with pytest.raises(Unavailable, match="taken over"):
        await create(catalog, taken_over)
    assert catalog.catalog.table(ANN.instance, "t") is None
