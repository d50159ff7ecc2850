"""Tables are made while others change the catalog: what is decided holds when it is written."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import pytest

from rowtide.core.authentication import Identity
from rowtide.core.catalog import INSTANCE, Document, Instance
from rowtide.core.errors import Rejected
from rowtide.core.limits import Limits
from rowtide.core.schema import ShardRange
from rowtide.core.wire import ots_pb2 as pb
from rowtide.stream.admin_operations import instance_document
from rowtide.stream.catalog_owner import CatalogOwner, Decide
from rowtide.stream.directory import Directory
from rowtide.stream.index_operations import IndexOperations
from rowtide.stream.memory_log import MemoryLog
from rowtide.stream.placement import Placement
from rowtide.stream.shard_logs import ShardLogs
from rowtide.stream.table_operations import TableOperations
from rowtide.stream.table_throttle import TableThrottle

ANN = Identity("key-of-ann", "shop", b"")


class Around:
    """What surrounds the operations. The instance goes while a table's logs are made."""

    def __init__(self, catalog: CatalogOwner) -> None:
        self._catalog = catalog

    async def make(self, _shard_ids: Iterable[str]) -> None:
        gone = Document(INSTANCE, ANN.instance, None)
        await self._catalog.change(lambda _catalog, _stamp: [gone])

    def slot_of(self, _shard_id: str) -> int:
        return 0

    def take(self, _instance: str) -> None:
        """There is room for any number of operations."""

    async def reserve(self, _count: int) -> list[ShardRange]:
        return []

    async def change(self, decide: Decide) -> None:
        await self._catalog.change(decide)


async def test_no_table_is_made_in_an_instance_that_is_deleted_meanwhile() -> None:
    log = MemoryLog()
    catalog = CatalogOwner(log, log.twin(), owner=b"ownerid1", clock_us=lambda: 1)
    await catalog.open(1)
    shop = instance_document(Instance(ANN.instance, "capacity", 1))
    await catalog.change(lambda _catalog, _stamp: [shop])
    around = Around(catalog)
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
    with pytest.raises(Rejected, match="does not exist"):
        await operations.create_table(ANN, request.SerializeToString())
    assert catalog.catalog.table(ANN.instance, "t") is None
