"""CreateIndex and DropIndex, and how far indexes are.

The catalog knows an index first; in the same moment every open shard of its table learns of it,
logs with each mutation what the index learns, and begins to go through the rows that were there
before (``Slot.retable``). A shard that is not open learns of it when it opens. A dropped index is
gone from the catalog first; its rows, or its log, are removed after.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import product
from typing import Any

from rowtide.core.authentication import Identity
from rowtide.core.catalog import TABLE, Catalog, Document, table_content, table_id
from rowtide.core.errors import OutcomeUnknown, Rejected, Unavailable, no_table
from rowtide.core.schema import GLOBAL, Index, ShardRange, Table, check_table_name
from rowtide.core.shard import options_body
from rowtide.core.wire import ots_pb2 as pb
from rowtide.stream.catalog_owner import CatalogOwner
from rowtide.stream.directory import Directory
from rowtide.stream.index_builder import is_built
from rowtide.stream.index_feed import FeedLag, IndexFeeder, fed_position
from rowtide.stream.index_requests import check_count, check_shapes, index_of, read_only
from rowtide.stream.kafka_cluster import Cluster
from rowtide.stream.kafka_config import TopicSpec
from rowtide.stream.row_requests import parse
from rowtide.stream.shard_owner import ShardOwner
from rowtide.stream.table_throttle import TableThrottle
from rowtide.stream.topics import TopicNames

__all__ = ["IndexOperations"]

CATCH_UP_S = 5.0
"""How long a finished build waits, at a time, for a global index to have followed."""


class IndexOperations:
    """Handlers by operation; each takes the caller's identity and the request's body."""

    def __init__(
        self,
        directory: Directory,
        catalog: CatalogOwner,
        cluster: Cluster,
        topics: TopicNames,
        throttle: TableThrottle,
        *,
        slots: int,
    ) -> None:
        self._directory = directory
        self._owner = catalog
        self._cluster = cluster
        self._topics = topics
        self._throttle = throttle
        self._slots = slots
        self._limits = directory.limits

    # Creating.

    async def create_index(self, identity: Identity, body: bytes) -> bytes:
        """Create an index of a table; it learns of rows that are there if so asked."""
        request = parse(pb.CreateIndexRequest, body)
        check_table_name(request.main_table_name, self._limits)
        check_shapes([request.index_meta], self._limits)
        # The service's default: an index holds what is written from then on.
        whole = request.include_base_data
        self._directory.require_space()
        catalog, instance, name = self._owner.catalog, identity.instance, request.main_table_name
        self._drafted(catalog, instance, name, request.index_meta, whole=whole)
        self._throttle.take(instance)
        shards = await self.reserve(int(request.index_meta.index_type == pb.IT_GLOBAL_INDEX))

        def decide(catalog: Catalog, stamp: int) -> Sequence[Document]:
            table, draft = self._drafted(catalog, instance, name, request.index_meta, whole=whole)
            index = numbered(draft, catalog.next_table_id, shards, stamp)
            changed = replace(table, indexes=(*table.indexes, index))
            document = Document(TABLE, table_id(table), table_content(changed))
            return [document, catalog.counters(tables=1)]

        starts = self._ends(self._directory.table(instance, name))
        try:
            await self._owner.change(decide)
        except Rejected:
            with suppress(Unavailable):
                await self._cluster.delete_topics([self._topics.shard(s.shard_id) for s in shards])
            raise
        for shard in shards:
            await self._directory.slot(shard.slot).add_shard(shard)
            await self._begin_feed(shard, starts)
        return pb.CreateIndexResponse().SerializeToString()

    def _drafted(
        self, catalog: Catalog, instance: str, name: str, message: pb.IndexMeta, *, whole: bool
    ) -> tuple[Table, Index]:
        """Return the table and the index to be. Raises what refuses it."""
        table = catalog.table(instance, name)
        if table is None:
            raise no_table()
        if table.main:
            raise read_only(table)
        check_count(len(table.indexes) + 1, self._limits)
        self.require_free(catalog, instance, message.name)
        return table, index_of(message, table, whole=whole, building=whole)

    def require_free(self, catalog: Catalog, instance: str, name: str) -> None:
        """Raise OTSObjectAlreadyExist where a table or an index has that name."""
        if catalog.table(instance, name) is not None:
            raise Rejected("OTSObjectAlreadyExist", "Requested table already exists.")

    async def reserve(self, count: int) -> list[ShardRange]:
        """Make the logs of ``count`` global indexes, under shard ids that nobody ever used."""
        if not count:
            return []
        taken: list[str] = []

        def decide(catalog: Catalog, _stamp: int) -> Sequence[Document]:
            taken[:] = [f"s{catalog.next_shard + index}" for index in range(count)]
            return [catalog.counters(shards=count)]

        await self._owner.change(decide)
        await self._cluster.create_topics([TopicSpec(self._topics.shard(i)) for i in taken])
        return [ShardRange(shard_id, int(shard_id[1:]) % self._slots) for shard_id in taken]

    def _ends(self, table: Table) -> dict[str, int]:
        """Return where the logs end in which nothing before concerns an index yet to be."""
        return {owner.shard.shard_id: owner.end for owner in self._open_shards(table)}

    async def _begin_feed(self, shard: ShardRange, starts: dict[str, int]) -> None:
        """Note where an index begins to follow each log; otherwise it would read all of it."""
        for source, offset in starts.items():
            await self._feeder(shard).begin(source, offset)

    # Dropping.

    async def drop_index(self, identity: Identity, body: bytes) -> bytes:
        """Drop an index with all it holds."""
        request = parse(pb.DropIndexRequest, body)
        check_table_name(request.main_table_name, self._limits)
        check_table_name(request.index_name, self._limits)
        instance, name = identity.instance, request.main_table_name
        _known(self._directory.table(instance, name), request.index_name)
        self._throttle.take(instance)
        dropped: list[Index] = []

        def decide(catalog: Catalog, _stamp: int) -> Sequence[Document]:
            table = catalog.table(instance, name)
            if table is None:
                raise no_table()
            dropped[:] = [_known(table, request.index_name)]
            left = tuple(index for index in table.indexes if index not in dropped)
            changed = replace(table, indexes=left)
            return [Document(TABLE, table_id(table), table_content(changed))]

        await self._owner.change(decide)
        await self._settle(self._directory.table(instance, name))
        for index in dropped:
            await self.remove(index)
        return pb.DropIndexResponse().SerializeToString()

    async def _settle(self, table: Table) -> None:
        """Wait until what was evaluated for a dropped index is applied, then sweep it."""
        for owner in self._open_shards(table):
            # Closed since: it opens without the index. Not known: it is swept again later.
            with suppress(Unavailable, OutcomeUnknown):
                await owner.submit_hidden(options_body(owner.shard.table))
            with suppress(Unavailable):
                self._slot_of(owner).sweep()

    async def remove(self, index: Index) -> None:
        """Seal and delete the log of a global index that the catalog knows no more."""
        for shard in index.shards:
            with suppress(Unavailable):
                await self._directory.slot(shard.slot).remove_shard(shard.shard_id)
        await self._cluster.delete_topics([self._topics.shard(s.shard_id) for s in index.shards])

    # Building.

    async def finish(self, number: int) -> None:
        """Note of a table's indexes those that have all rows by now."""
        table = self._owner.catalog.tables_by_id.get(number)
        for index in table.indexes if table is not None else ():
            if index.building and await self._is_whole(number, index):
                await self._owner.change(_without_building(number, index.table_id))

    async def _is_whole(self, number: int, index: Index) -> bool:
        owners = [self._directory.shard(shard) for shard in self.sources(number)]
        if not owners or not all(is_built(owner, index) for owner in owners):
            return False
        ends = [(owner.shard.shard_id, owner.end) for owner in owners]
        feeders = [self._feeder(shard) for shard in index.shards]
        try:
            async with asyncio.timeout(CATCH_UP_S):
                for feeder, (source, end) in product(feeders, ends):
                    await feeder.reach(source, end)
        except TimeoutError:
            return False
        return True

    # Telling.

    def list_indexes(self, identity: Identity, body: bytes) -> bytes:
        """Return a table's indexes and how far each is behind."""
        fields = json.loads(body or b"{}")
        name = str(fields.get("table", "")) if isinstance(fields, dict) else ""
        table = self._directory.table(identity.instance, name)
        told = [self._told(table, index) for index in table.indexes]
        return json.dumps({"table": name, "indexes": told}).encode()

    def _told(self, table: Table, index: Index) -> dict[str, Any]:
        lags = [lag for shard in index.shards for lag in self._lags(table, shard)]
        unknown = index.kind == GLOBAL and not lags
        return {
            "name": index.name,
            "type": "global" if index.kind == GLOBAL else "local",
            "phase": "building" if index.building else "following",
            "key": list(index.key),
            "columns": list(index.columns),
            "behind": None if unknown else sum(lag.behind for lag in lags),
            "behind_s": max((lag.behind_s for lag in lags), default=0.0),
            "sources": [lag.told() for lag in lags],
        }

    def _lags(self, table: Table, shard: ShardRange) -> list[FeedLag]:
        with suppress(Unavailable):
            feeder = self._feeder(shard)
            return [feeder.lag(self._directory.shard(source)) for source in table.shards]
        return []

    # What slots ask.

    def sources(self, number: int) -> Sequence[ShardRange]:
        """Return the shards of a table, by its number."""
        table = self._owner.catalog.tables_by_id.get(number)
        return table.shards if table is not None else ()

    def source(self, shard_id: str) -> ShardOwner:
        """Return an open shard. Raises ``Unavailable``."""
        found = self._owner.catalog.shards.get(shard_id)
        if found is None:
            raise Unavailable("The partition is not available.")
        return self._directory.shard(found[1])

    def pin(self, owner: ShardOwner) -> int | None:
        """Return the first offset of a log that a global index still needs; None where none does.

        Where an index can't be asked nothing may go: then it is 0.
        """
        positions: list[int] = []
        for index in owner.shard.table.indexes:
            for shard in index.shards:
                try:
                    fed = fed_position(self._directory.shard(shard), owner.shard.shard_id)
                except Unavailable:
                    return 0
                positions.append(0 if fed is None else fed.following)
        return min(positions, default=None)

    def _feeder(self, shard: ShardRange) -> IndexFeeder:
        feeder = self._directory.slot(shard.slot).feeders.get(shard.shard_id)
        if feeder is None:
            raise Unavailable("The partition is not available.")
        return feeder

    def _open_shards(self, table: Table) -> list[ShardOwner]:
        owners: list[ShardOwner] = []
        for shard in table.shards:
            with suppress(Unavailable):
                owners.append(self._directory.shard(shard))
        return owners

    def _slot_of(self, owner: ShardOwner) -> Any:
        place = owner.shard.indexes.place()
        return self._directory.slot(place.slot)


def numbered(draft: Index, number: int, shards: Sequence[ShardRange], stamp: int) -> Index:
    """Return an index with its number, its time, and its shards where it is global."""
    return replace(draft, table_id=number, created_us=stamp, shards=tuple(shards))


def _known(table: Table, name: str) -> Index:
    index = table.index(name)
    if index is None:
        raise no_table()
    return index


def _without_building(number: int, index_id: int) -> Callable[[Catalog, int], Sequence[Document]]:
    """Return the change of the catalog that says that an index has all rows."""

    def decide(catalog: Catalog, _stamp: int) -> Sequence[Document]:
        table = catalog.tables_by_id.get(number)
        if table is None:
            return []
        indexes = tuple(
            replace(index, building=False) if index.table_id == index_id else index
            for index in table.indexes
        )
        if indexes == table.indexes:
            return []
        changed = replace(table, indexes=indexes)
        return [Document(TABLE, table_id(table), table_content(changed))]

    return decide
