"""The operations on tables: create, list, describe, update, delete.

A change goes to the catalog first. Then every worker brings its shards in line: opens
them, seals them, or gives them the new options (a hidden record in their logs). Only then
the client gets its answer. After a crash in between, each worker compares its shards with
the catalog and completes the change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rowtide.core.cluster.catalog import (
    TABLE,
    Catalog,
    Document,
    reshape_document,
    table_content,
    table_id,
)
from rowtide.core.protocol import plainbuffer
from rowtide.core.protocol.authentication import Identity
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.shard.index import check_options
from rowtide.core.values import key
from rowtide.core.values.defined_columns import check_defined
from rowtide.core.values.errors import Rejected, no_table
from rowtide.core.values.schema import GLOBAL, ShardRange, Table, check_table_name
from rowtide.stream.api.defined_column import columns_of
from rowtide.stream.api.directory import Directory
from rowtide.stream.api.index import IndexOperations, number_index
from rowtide.stream.api.index_requests import (
    check_shapes,
    index_message,
    index_of,
    read_only,
)
from rowtide.stream.api.row_requests import parse
from rowtide.stream.api.table_requests import (
    check_update,
    key_columns,
    key_schema,
    make_quota_error,
    options_message,
    options_of,
    split_points,
    stream_details,
    stream_of,
    throughput_of,
)
from rowtide.stream.api.table_throttle import TableThrottle
from rowtide.stream.cluster.catalog_owner import CatalogOwner
from rowtide.stream.cluster.placement import Placement
from rowtide.stream.http.handlers import answers
from rowtide.stream.shard.logs import ShardLogs

__all__ = ["TableOperations"]

THROUGHPUT_CHANGE_S_MIN = 120


class TableOperations:
    """Handlers by operation; each takes the caller's identity and the request's body."""

    def __init__(
        self,
        directory: Directory,
        catalog: CatalogOwner,
        logs: ShardLogs,
        throttle: TableThrottle,
        indexes: IndexOperations,
        placement: Placement,
    ) -> None:
        self._indexes = indexes
        self._placement = placement
        self._directory = directory
        self._owner = catalog
        self._logs = logs
        self._throttle = throttle
        self._limits = directory.limits

    # Reading.

    @answers("ListTable")
    def list_table(self, identity: Identity, _body: bytes) -> bytes:
        """Return the names of the instance's tables, sorted."""
        tables = self._directory.catalog.tables_of(identity.instance)
        return pb.ListTableResponse(table_names=[t.name for t in tables]).SerializeToString()

    @answers("DescribeTable")
    def describe_table(self, identity: Identity, body: bytes) -> bytes:
        """Return the full description of a table."""
        request = parse(pb.DescribeTableRequest, body)
        table = self._directory.table(identity.instance, request.table_name)
        response = pb.DescribeTableResponse(
            table_meta=_meta(table),
            reserved_throughput_details=_throughput(table),
            table_options=options_message(table.options),
            table_status=pb.ACTIVE,
            stream_details=stream_details(table.stream),
            creation_time=table.created_us,
            index_metas=[index_message(table, index) for index in table.indexes],
        )
        first = table.key[0].name.encode()
        for point in table.split_points:
            row = plainbuffer.encode_row([(first, point)], [])
            response.shard_splits.append(plainbuffer.HEADER + row)
        return response.SerializeToString()

    # Changing.

    @answers("CreateTable")
    async def create_table(self, identity: Identity, body: bytes) -> bytes:
        """Create a table; it accepts reads and writes once the answer is sent."""
        request = parse(pb.CreateTableRequest, body)
        check_table_name(request.table_meta.table_name, self._limits)
        draft = self._draft(identity, request)
        self._directory.require_space()
        self._check_new(self._owner.catalog, draft)
        self._throttle.take(identity.instance)
        shards = await self._owner.reserve_shards(len(draft.split_points) + 1)
        await self._logs.make(shards)
        followers = await self._indexes.reserve(sum(i.kind == GLOBAL for i in draft.indexes))

        def decide(catalog: Catalog, stamp: int) -> Sequence[Document]:
            self._check_new(catalog, draft)
            self._owner.require_reserved([*shards, *(shard.shard_id for shard in followers)])
            table = self._number_table(catalog, draft, shards, request, stamp)
            table = _with_indexes(table, followers)
            return [
                Document(TABLE, table_id(table), table_content(table)),
                catalog.counters(tables=1 + len(table.indexes)),
            ]

        made = [*shards, *(shard.shard_id for shard in followers)]
        async with self._logs.delete_if_refused(made):
            await self._placement.change(decide)
        return pb.CreateTableResponse().SerializeToString()

    def _check_new(self, catalog: Catalog, draft: Table) -> None:
        if draft.instance not in catalog.instances:
            raise Rejected("OTSObjectNotExist", f"Instance '{draft.instance}' does not exist.")
        if catalog.table(draft.instance, draft.name) is not None:
            raise Rejected("OTSObjectAlreadyExist", "Requested table already exists.")
        for index in draft.indexes:
            self._indexes.require_free(catalog, draft.instance, index.name)
        limit = self._limits.tables_per_instance_max
        if len(catalog.tables_of(draft.instance)) >= limit:
            raise make_quota_error(limit)

    def _draft(self, identity: Identity, request: pb.CreateTableRequest) -> Table:
        """Return the requested table, without ids, times and shards."""
        meta = request.table_meta
        columns = key_columns(meta.primary_key, self._limits)
        instance = self._directory.catalog.instances.get(identity.instance)
        kind = instance.kind if instance is not None else "high-performance"
        read, write = throughput_of(request.reserved_throughput, kind, self._limits)
        stream_of(request.stream_spec, meta.table_name, 0, self._limits)
        defined = columns_of(meta.defined_column)
        check_defined(defined, columns, self._limits)
        check_shapes(_indexes(request), self._limits)
        table = Table(
            instance=identity.instance,
            name=meta.table_name,
            table_id=0,
            key=columns,
            options=options_of(request.table_options, self._limits),
            stream=None,
            reserved_read=read,
            reserved_write=write,
            created_us=0,
            throughput_changed_s=0,
            shards=(),
            split_points=split_points(request.partitions, columns[0], self._limits),
            defined_columns=defined,
            enable_local_txn=request.enable_local_txn
            if request.HasField("enable_local_txn")
            else True,
        )
        for message in _indexes(request):
            index = index_of(message, table, whole=True, building=False)
            table = replace(table, indexes=(*table.indexes, index))
        return table

    def _number_table(
        self,
        catalog: Catalog,
        draft: Table,
        shards: Sequence[str],
        request: pb.CreateTableRequest,
        stamp: int,
    ) -> Table:
        """Return the draft with its ids, times and shards."""
        cuts = [b"", *(key.encode([point]) for point in draft.split_points), b""]
        ranges = tuple(
            ShardRange(shard, self._logs.slot_of(shard), cuts[index], cuts[index + 1])
            for index, shard in enumerate(shards)
        )
        return replace(
            draft,
            table_id=catalog.next_table_id,
            created_us=stamp,
            throughput_changed_s=stamp // 1_000_000,
            shards=ranges,
            stream=stream_of(request.stream_spec, draft.name, stamp, self._limits),
        )

    @answers("UpdateTable")
    async def update_table(self, identity: Identity, body: bytes) -> bytes:
        """Change throughput, options or stream; every shard has the change before the answer."""
        request = parse(pb.UpdateTableRequest, body)
        check_update(request, self._limits)
        known = self._directory.table(identity.instance, request.table_name)
        self._apply_update(known, request, self._directory.clock_us())
        self._throttle.take(identity.instance)

        def decide(catalog: Catalog, stamp: int) -> Sequence[Document]:
            table = catalog.table(identity.instance, request.table_name)
            if table is None:
                raise no_table()
            changed = self._apply_update(table, request, stamp)
            return [Document(TABLE, table_id(table), table_content(changed))]

        await self._owner.change(decide)
        table = self._directory.table(identity.instance, request.table_name)
        await self._placement.settle({table.table_id})
        return pb.UpdateTableResponse(
            reserved_throughput_details=_throughput(table),
            table_options=options_message(table.options),
            stream_details=stream_details(table.stream),
        ).SerializeToString()

    def _apply_update(self, table: Table, request: pb.UpdateTableRequest, stamp: int) -> Table:
        changed = table
        if table.main:
            raise read_only(table)
        if request.HasField("reserved_throughput"):
            changed = self._with_throughput(changed, request.reserved_throughput, stamp)
        if request.HasField("table_options"):
            options = options_of(request.table_options, self._limits, now=table.options)
            if table.indexes:
                check_options(options)
            changed = replace(changed, options=options)
        if request.HasField("stream_spec"):
            stream = stream_of(
                request.stream_spec, table.name, stamp, self._limits, now=table.stream
            )
            changed = replace(changed, stream=stream)
        return changed

    def _with_throughput(self, table: Table, message: pb.ReservedThroughput, stamp: int) -> Table:
        instance = self._owner.catalog.instances.get(table.instance)
        kind = instance.kind if instance is not None else "high-performance"
        now = table.reserved_read, table.reserved_write
        read, write = throughput_of(message, kind, self._limits, now=now)
        if (read, write) == now:
            return table
        now_s = stamp // 1_000_000
        if 0 <= now_s - table.throughput_changed_s < THROUGHPUT_CHANGE_S_MIN:
            raise Rejected(
                "OTSTooFrequentReservedThroughputAdjustment",
                "Capacity unit adjustment is too frequent.",
            )
        return replace(table, reserved_read=read, reserved_write=write, throughput_changed_s=now_s)

    @answers("DeleteTable")
    async def delete_table(self, identity: Identity, body: bytes) -> bytes:
        """Delete a table with all its rows; its shards are sealed before the answer.

        Once the catalog has changed, no request finds the table. The next start removes
        topics and rows that a crash left behind. If a worker is too slow, the topics go
        with the next deleted table.
        """
        request = parse(pb.DeleteTableRequest, body)
        table = self._directory.table(identity.instance, request.table_name)
        if table.main:
            raise read_only(table)
        self._throttle.take(identity.instance)
        shards: list[ShardRange] = []

        def decide(catalog: Catalog, _stamp: int) -> Sequence[Document]:
            known = catalog.tables_by_id.get(table.table_id)
            if known is None:
                raise no_table()
            changes = [c for c in catalog.reshapes.values() if c.table_id == table.table_id]
            shards[:] = [*known.shards, *known.ended]
            shards.extend(shard for index in known.indexes for shard in index.shards)
            shards.extend(child for change in changes for child in change.children)
            gone = [reshape_document(change, gone=True) for change in changes]
            return [Document(TABLE, table_id(table), None), *gone]

        await self._owner.change(decide)
        left = self._logs.note_dropped(shard.shard_id for shard in shards)
        await self._placement.settle({table.table_id})
        await self._logs.delete(left)
        return pb.DeleteTableResponse().SerializeToString()


def _indexes(request: pb.CreateTableRequest) -> Sequence[pb.IndexMeta]:
    """Return the requested indexes; older SDKs' messages have them in the description."""
    return request.index_metas or request.table_meta.index_meta


def _with_indexes(table: Table, shards: Sequence[ShardRange]) -> Table:
    """Return a numbered table with its indexes numbered; each global one has one of ``shards``."""
    left = list(shards)
    indexes = tuple(
        number_index(
            index,
            table.table_id + 1 + position,
            [left.pop(0)] if index.kind == GLOBAL else [],
            table.created_us,
        )
        for position, index in enumerate(table.indexes)
    )
    return replace(table, indexes=indexes)


def _meta(table: Table) -> pb.TableMeta:
    meta = pb.TableMeta(table_name=table.name, primary_key=key_schema(table))
    for name, kind in table.defined_columns:
        meta.defined_column.add(name=name, type=kind)
    return meta


def _throughput(table: Table) -> pb.ReservedThroughputDetails:
    return pb.ReservedThroughputDetails(
        capacity_unit=pb.CapacityUnit(read=table.reserved_read, write=table.reserved_write),
        last_increase_time=table.throughput_changed_s,
    )
