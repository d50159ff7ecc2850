"""CreateIndex, DropIndex and the progress of indexes.

A new index is first in the catalog. In the same moment every open shard of its table
learns of it. From then on the shard logs the index's part with each mutation. It also
begins to go through its older rows (``Slot.retable``). A closed shard learns of the index
when it opens. A dropped index is removed from the catalog first; then its rows, or its
log, are removed.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

from rowtide.core.cluster.catalog import TABLE, Catalog, Document, table_content, table_id
from rowtide.core.protocol.authentication import Identity
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.protocol.worker_messages import (
    FinishIndexRequest,
    IndexStateAnswer,
    IndexStateRequest,
    NoFields,
)
from rowtide.core.shard.reshape import sort_ended
from rowtide.core.values.errors import OutcomeUnknown, Rejected, Unavailable, no_table
from rowtide.core.values.schema import GLOBAL, Index, ShardRange, Table, check_table_name
from rowtide.stream.api.admin_request import json_fields
from rowtide.stream.api.directory import Directory
from rowtide.stream.api.index_requests import check_count, check_shapes, index_of, read_only
from rowtide.stream.api.row_requests import parse
from rowtide.stream.api.table_throttle import TableThrottle
from rowtide.stream.cluster.catalog_owner import CatalogOwner
from rowtide.stream.cluster.hop_frames import NOBODY
from rowtide.stream.cluster.placement import Placement
from rowtide.stream.http.handlers import answers
from rowtide.stream.shard.index_builder import is_built
from rowtide.stream.shard.index_feed import IndexFeeder, IndexProgress
from rowtide.stream.shard.logs import ShardLogs
from rowtide.stream.shard.owner import ShardOwner

__all__ = ["IndexOperations", "number_index"]


class State(NamedTuple):
    """The progress of a table's shards.

    ``ends`` has (end, last commit stamp) of their logs. ``built`` has the indexes for
    which a shard has gone through all its rows. ``fed`` has how far each shard of a
    global index has followed each log.
    """

    ends: dict[str, Sequence[int]]
    built: dict[str, Sequence[int]]
    fed: dict[str, Mapping[str, Sequence[Any]]]

    def is_built(self, table: Table, index: Index) -> bool:
        """True if every shard of a table has built its part of an index."""
        shards = (shard.shard_id for shard in table.shards)
        return all(index.table_id in self.built.get(shard_id, ()) for shard_id in shards)

    def has_followed(self, table: Table, index: Index, ends: Mapping[str, int]) -> bool:
        """True if an index has followed its table's logs up to ``ends``."""
        lags = self.lags(table, index)
        return all(lag is not None and lag["position"] >= ends[lag["source"]] for lag in lags)

    def lags(self, table: Table, index: Index) -> list[dict[str, Any] | None]:
        """Return how far an index is behind each shard of its table; None if not known.

        ``behind`` counts unread entries of the log. ``behind_s`` is the time between the
        last commit there and the last one in the index. ``failed`` is the reason why the
        index cannot go on there, or None.
        """
        return [
            self._lag(self.fed.get(shard.shard_id, {}).get(source.shard_id), source.shard_id)
            for shard in index.shards
            for source in table.shards
        ]

    def _lag(self, followed: Sequence[Any] | None, source: str) -> dict[str, Any] | None:
        ended = self.ends.get(source)
        if followed is None or ended is None:
            return None
        at, (end, stamp) = IndexProgress(*followed), ended
        behind = max(0, end - at.following)
        late_us = stamp - at.stamp if behind and at.stamp else 0
        return {
            "source": source,
            "position": at.following,
            "end": end,
            "behind": behind,
            "behind_s": max(0, late_us) / 1_000_000,
            "failed": at.failed or None,
        }


class IndexOperations:
    """Handlers by operation; each takes the caller's identity and the request's body."""

    def __init__(
        self,
        directory: Directory,
        catalog: CatalogOwner,
        logs: ShardLogs,
        throttle: TableThrottle,
        placement: Placement,
        finish: Callable[[Identity, bytes], Awaitable[bytes]],
    ) -> None:
        self._placement = placement
        self._built_at: dict[int, dict[str, int]] = {}
        """The end of each log of an index's table, when all its older rows had been logged."""
        self._finish = finish
        self._directory = directory
        self._owner = catalog
        self._logs = logs
        self._throttle = throttle
        self._limits = directory.limits

    # Creating.

    @answers("CreateIndex")
    async def create_index(self, identity: Identity, body: bytes) -> bytes:
        """Create an index of a table; ``include_base_data`` adds the existing rows."""
        request = parse(pb.CreateIndexRequest, body)
        check_table_name(request.main_table_name, self._limits)
        check_shapes([request.index_meta], self._limits)
        # The service's default: an index has only the rows that are written from then on.
        whole = request.include_base_data
        self._directory.require_space()
        instance, name, message = identity.instance, request.main_table_name, request.index_meta
        self._draft_index(self._owner.catalog, instance, name, message, whole=whole)
        self._throttle.take(instance)
        shards = await self.reserve(int(message.index_type == pb.IT_GLOBAL_INDEX))

        def decide(catalog: Catalog, stamp: int) -> Sequence[Document]:
            table, draft = self._draft_index(catalog, instance, name, message, whole=whole)
            self._owner.require_reserved(shard.shard_id for shard in shards)
            index = number_index(draft, catalog.next_table_id, shards, stamp)
            changed = replace(table, indexes=(*table.indexes, index))
            document = Document(TABLE, table_id(table), table_content(changed))
            return [document, catalog.counters(tables=1)]

        starts = self._ends(self._directory.table(instance, name))
        async with self._logs.delete_if_refused(shard.shard_id for shard in shards):
            await self._placement.change(decide)
        for shard in shards:
            with suppress(Unavailable):  # It reads the logs from their start then.
                await self._begin_following(shard, starts)
        return pb.CreateIndexResponse().SerializeToString()

    def _draft_index(
        self, catalog: Catalog, instance: str, name: str, message: pb.IndexMeta, *, whole: bool
    ) -> tuple[Table, Index]:
        """Return the table and the planned index. Raises if the index is not allowed."""
        table = catalog.table(instance, name)
        if table is None:
            raise no_table()
        if table.main:
            raise read_only(table)
        if any(change.table_id == table.table_id for change in catalog.reshapes.values()):
            raise Unavailable(f"Shards of table '{name}' are being split, merged or moved.")
        check_count(len(table.indexes) + 1, self._limits)
        self.require_free(catalog, instance, message.name)
        return table, index_of(message, table, whole=whole, building=whole)

    def require_free(self, catalog: Catalog, instance: str, name: str) -> None:
        """Raise OTSObjectAlreadyExist if a table or an index has that name."""
        if catalog.table(instance, name) is not None:
            raise Rejected("OTSObjectAlreadyExist", "Requested table already exists.")

    async def reserve(self, count: int) -> list[ShardRange]:
        """Create the logs of ``count`` global indexes, under shard ids that were never used."""
        if not count:
            return []
        taken = await self._owner.reserve_shards(count)
        await self._logs.make(taken)
        return [ShardRange(shard_id, self._logs.slot_of(shard_id)) for shard_id in taken]

    def _ends(self, table: Table) -> dict[str, int]:
        """Return the ends of the logs: no entry before them concerns a future index."""
        return {owner.shard.shard_id: owner.end for owner in self._open_shards(table)}

    async def _begin_following(self, shard: ShardRange, starts: dict[str, int]) -> None:
        """Record where an index begins to follow each log; otherwise it would read all of it."""
        for source, offset in starts.items():
            await self._feeder(shard).begin(source, offset)

    # Dropping.

    @answers("DropIndex")
    async def drop_index(self, identity: Identity, body: bytes) -> bytes:
        """Drop an index with all its rows."""
        request = parse(pb.DropIndexRequest, body)
        check_table_name(request.main_table_name, self._limits)
        check_table_name(request.index_name, self._limits)
        instance, name = identity.instance, request.main_table_name
        _find_index(self._directory.table(instance, name), request.index_name)
        self._throttle.take(instance)
        dropped: list[Index] = []
        tables: set[int] = set()

        def decide(catalog: Catalog, _stamp: int) -> Sequence[Document]:
            table = catalog.table(instance, name)
            if table is None:
                raise no_table()
            dropped[:] = [_find_index(table, request.index_name)]
            tables.add(table.table_id)
            left = tuple(index for index in table.indexes if index not in dropped)
            changed = replace(table, indexes=left)
            return [Document(TABLE, table_id(table), table_content(changed))]

        await self._owner.change(decide)
        shards = [shard for index in dropped for shard in index.shards]
        left = self._logs.note_dropped(shard.shard_id for shard in shards)
        await self._placement.settle(tables)
        await self._logs.delete(left)
        return pb.DropIndexResponse().SerializeToString()

    # Building.

    async def finish(self, number: int) -> None:
        """Mark a table's indexes that have all rows as built, through the catalog's owner."""
        await self._finish(NOBODY, FinishIndexRequest(number).encode())

    @answers(FinishIndexRequest.operation)
    async def finish_request(self, _identity: Identity, body: bytes) -> bytes:
        """Answer another worker that has gone through its rows for an index."""
        number = FinishIndexRequest.decode(body).table
        state = await self._state(number)
        table = self._owner.catalog.tables_by_id.get(number)
        for index in table.indexes if table is not None else ():
            if table is None or not index.building or not state.is_built(table, index):
                continue
            # All rows are logged before these ends. Under load an index never reaches the
            # present ends.
            ends = {source: end for source, (end, _) in state.ends.items()}
            ends = self._built_at.setdefault(index.table_id, ends)
            if state.has_followed(table, index, ends):
                await self._owner.change(_without_building(number, index.table_id))
                self._built_at.pop(index.table_id, None)
        await self._placement.settle({number})
        return NoFields().encode()

    async def _state(self, number: int) -> State:
        """Return the progress of a table's shards and of its indexes' shards, on all workers."""
        body = IndexStateRequest(number).encode()
        answers = [await self.state_request(NOBODY, body)]
        answers += await self._placement.others(IndexStateRequest.operation, body)
        whole = State({}, {}, {})
        for part in map(IndexStateAnswer.decode, answers):
            whole.ends.update(part.ends)
            whole.built.update(part.built)
            whole.fed.update(part.fed)
        return whole

    @answers(IndexStateRequest.operation)
    async def state_request(self, _identity: Identity, body: bytes) -> bytes:
        """Return the progress of this worker's shards of a table and of its indexes."""
        number = IndexStateRequest.decode(body).table
        table = self._owner.catalog.tables_by_id.get(number)
        state = State({}, {}, {}) if table is None else self._state_here(table)
        return IndexStateAnswer(*state).encode()

    def _state_here(self, table: Table) -> State:
        state = State({}, {}, {})
        for owner in self._open_shards(table):
            shard_id, indexes = owner.shard.shard_id, owner.shard.table.indexes
            state.ends[shard_id] = owner.end, owner.shard.state.stamp
            state.built[shard_id] = [i.table_id for i in indexes if is_built(owner, i)]
        for index in table.indexes:
            for shard in index.shards:
                with suppress(Unavailable):
                    state.fed[shard.shard_id] = self._feeder(shard).find_progress()
        return state

    # Reports.

    @answers("RowtideListIndexes")
    async def list_indexes(self, identity: Identity, body: bytes) -> bytes:
        """Return a table's indexes and how far each is behind."""
        name = str(json_fields(body, {"table"}).get("table", ""))
        table = self._directory.table(identity.instance, name)
        state = await self._state(table.table_id)
        indexes = [_describe_index(table, index, state) for index in table.indexes]
        return json.dumps({"table": name, "indexes": indexes}).encode()

    def lags(self) -> list[tuple[tuple[str, str, str], int, float]]:
        """Return (instance, table, index), entries and seconds behind, of each global index here.

        Logs of other workers' shards do not count.
        """
        found: list[tuple[tuple[str, str, str], int, float]] = []
        for table in self._owner.catalog.tables_by_id.values():
            state = self._state_here(table) if table.indexes else State({}, {}, {})
            for index in table.indexes:
                lags = [lag for lag in state.lags(table, index) if lag is not None]
                if lags:
                    names = table.instance, table.name, index.name
                    behind_s = max(lag["behind_s"] for lag in lags)
                    found.append((names, sum(lag["behind"] for lag in lags), behind_s))
        return found

    # Calls from slots.

    def sources(self, number: int) -> Sequence[ShardRange]:
        """Return the shards of a table, by its number, parents before their children."""
        table = self._owner.catalog.tables_by_id.get(number)
        return [*sort_ended(table.ended), *table.shards] if table is not None else ()

    def source(self, shard_id: str) -> ShardOwner:
        """Return an open shard. Raises ``Unavailable``."""
        found = self._owner.catalog.shards.get(shard_id)
        if found is None:
            raise Unavailable
        return self._directory.find_followable(found[1])

    async def pin(self, owner: ShardOwner) -> int | None:
        """Return the first offset of a log that a global index still needs; None if none does.

        Returns 0, which keeps the whole log, if an index does not answer.
        """
        # From the catalog: an ended shard does not learn of indexes that were created
        # later.
        table = self._owner.catalog.tables_by_id.get(owner.shard.table.table_id, owner.shard.table)
        shards = [shard for index in table.indexes for shard in index.shards]
        if not shards:
            return None
        try:
            state = await self._state(table.table_id)
        except (Unavailable, OutcomeUnknown):
            return 0
        source = owner.shard.shard_id
        followed = [state.fed.get(shard.shard_id, {}).get(source) for shard in shards]
        return min(0 if at is None else IndexProgress(*at).noted for at in followed)

    def _feeder(self, shard: ShardRange) -> IndexFeeder:
        feeder = self._directory.slot(shard.slot).feeders.get(shard.shard_id)
        if feeder is None:
            raise Unavailable
        return feeder

    def _open_shards(self, table: Table) -> list[ShardOwner]:
        owners: list[ShardOwner] = []
        for shard in table.shards:
            with suppress(Unavailable):
                owners.append(self._directory.shard(shard))
        return owners


def number_index(draft: Index, number: int, shards: Sequence[ShardRange], stamp: int) -> Index:
    """Return an index with its number, its time, and its shards if it is global."""
    return replace(draft, table_id=number, created_us=stamp, shards=tuple(shards))


def _describe_index(table: Table, index: Index, state: State) -> dict[str, Any]:
    """Return an index as operators see it."""
    lags = state.lags(table, index)
    known = [lag for lag in lags if lag is not None]
    return {
        "name": index.name,
        "type": "global" if index.kind == GLOBAL else "local",
        "phase": "building" if index.building else "following",
        "key": list(index.key),
        "columns": list(index.columns),
        "behind": sum(lag["behind"] for lag in known) if len(known) == len(lags) else None,
        "behind_s": max((lag["behind_s"] for lag in known), default=0.0),
        "failed": next((lag["failed"] for lag in known if lag["failed"]), None),
        "sources": known,
    }


def _find_index(table: Table, name: str) -> Index:
    index = table.index(name)
    if index is None:
        raise no_table()
    return index


def _without_building(number: int, index_id: int) -> Callable[[Catalog, int], Sequence[Document]]:
    """Return the change of the catalog that marks an index as built."""

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
