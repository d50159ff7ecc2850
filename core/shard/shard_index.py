"""What secondary indexes add to one shard: the changes that it logs, and index rows.

A shard of a table logs, with each mutation, the changes of every index, and folds those of local
indexes. For a new index it goes through its existing rows in slices, each a hidden record. A shard
of a global index folds the changes that its own log has from the logs of its table. The progress of
an index is written together with the rows, so a crash neither skips nor repeats a change.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rowtide.core.records.record import (
    Body,
    DeleteBody,
    IndexBuild,
    IndexFeed,
    IndexWrite,
    PutBody,
    UpdateBody,
)
from rowtide.core.rows import fold
from rowtide.core.rows.chunk import row_end, row_key, table_prefix
from rowtide.core.rows.fold import Writes
from rowtide.core.rows.overlay import Overlay, RangeReader
from rowtide.core.rows.read import read_range
from rowtide.core.shard.index import (
    Fed,
    TableIndexes,
    build_key,
    build_value,
    feed_key,
    index_writes,
    new_index_write,
)
from rowtide.core.values import key
from rowtide.core.values.cell import Cell
from rowtide.core.values.errors import invalid
from rowtide.core.values.limits import Limits
from rowtide.core.values.schema import ShardRange, Table, TableOptions
from rowtide.core.values.version import Window, visible_cells

__all__ = ["ShardIndexes"]

BUILD_ROWS = 200
"""Rows of one slice. Nothing else is evaluated meanwhile, for about 10 ms."""

BUILD_BYTES = 1024 * 1024
"""Bytes of rows read, or of changes of the index, after which a slice ends."""

_NEWEST = Window()


class ShardIndexes:
    """The indexes of a shard's table, or the index to which the shard belongs."""

    def __init__(self, shard_id: str, table: Table, limits: Limits) -> None:
        self._shard_id = shard_id
        self._table = table
        self._plan = TableIndexes(table, limits)
        # A slice has up to BUILD_BYTES of other rows, and as much again for their framing.
        self._row_bytes_max = limits.record_bytes_max - 2 * BUILD_BYTES
        self.passed_over: set[int] = set()
        """Local indexes that a record named and the table lacks. They were dropped since, or a
        remote follower of the log has not read of them yet.
        """

    def __bool__(self) -> bool:
        return bool(self._plan)

    def check(self, cells: Iterable[Cell]) -> None:
        """Raise OTSParameterInvalid if a value cannot be in one of the indexes."""
        self._plan.check(cells)

    def find_table(self, number: int) -> Table | None:
        """Return the index of that number as a table for reads, or None."""
        return self._plan.tables.get(number)

    def changes(
        self,
        view: RangeReader,
        at: bytes,
        row: Sequence[bytes],
        writes: Writes,
        options: TableOptions,
        now_us: int,
    ) -> list[IndexWrite]:
        """Return the changes of indexes when ``writes`` are made to ``row``, stored at ``at``."""
        after = Overlay(view)
        after.add(writes)
        before = self._visible(view, at, options, now_us)
        return self._plan.changes(row, before, self._visible(after, at, options, now_us))

    def local_writes(self, view: RangeReader, indexes: Iterable[IndexWrite], stamp: int) -> Writes:
        """Return the writes to the shard's local indexes. Skips indexes that were dropped since."""
        writes: Writes = []
        for write in indexes:
            if not write.local:
                continue
            table = self._plan.tables.get(write.table)
            if table is not None:
                writes += index_writes(view, table, write, stamp)
            else:
                self.passed_over.add(write.table)
        return writes

    def changes_of_new(
        self, row: Sequence[bytes], cells: Iterable[Cell], wire: bytes
    ) -> list[IndexWrite] | None:
        """Return the changes for a new row, given by its key; None if ``changes`` must decide.

        ``wire`` has the bytes of its cells, which are all puts. Raises what ``check`` raises.
        """
        return self._plan.changes_of_new(row, cells, wire)

    def writes_of_new(self, indexes: Iterable[IndexWrite], stamp: int) -> Writes:
        """Return the writes to the shard's local indexes for a new row (``changes_of_new``)."""
        tables = self._plan.tables
        return [new_index_write(tables[one.table], one, stamp) for one in indexes if one.local]

    def build_slice(
        self, view: RangeReader, asked: IndexBuild, options: TableOptions, now_us: int
    ) -> IndexBuild:
        """Return the record with the index's changes for the next rows, from ``following`` on.

        The rows are as evaluated so far; a mutation evaluated later logs its own change. Raises
        OTSParameterInvalid if a row is too large for any record.
        """
        number = asked.table
        if number not in self._plan.tables:
            return IndexBuild(number, None, ())
        place, table_id = self.place(), self._table.table_id
        low = row_key(table_id, max(place.begin, asked.following or b""))
        high = row_key(table_id, place.end) if place.end else table_prefix(table_id + 1)
        writes: list[IndexWrite] = []
        size = 0
        for count, stored in enumerate(read_range(view, low, high, backward=False)):
            encoded = stored.row_key[len(table_prefix(0)) :]
            if count == BUILD_ROWS or size > BUILD_BYTES:
                return IndexBuild(number, encoded, writes)
            cells = self._visible(view, stored.row_key, options, now_us)
            found = self._plan.changes(key.decode(encoded), None, cells, only=number)
            writes += found
            # The rest of a wide row is in other chunks than its first.
            size += max(len(stored.first), self._count_index_bytes(found))
        return IndexBuild(number, None, writes)

    def _count_index_bytes(self, found: Iterable[IndexWrite]) -> int:
        """Return the bytes that a row takes in an index. Raises if no record can hold them."""
        held = sum(len(c.name) + len(c.variant) for write in found for c in write.cells or ())
        if held > self._row_bytes_max:
            raise invalid(
                f"A row of {held} bytes in table '{self._table.name}' is too large for its index, "
                f"limit size: {self._row_bytes_max}."
            )
        return held

    def fold_record(self, view: RangeReader, body: IndexBuild | IndexFeed, stamp: int) -> Writes:
        """Return the writes of an index's record: rows of this shard, and the index's progress."""
        place, value = self.progress(body)
        before = view.get(place) or b""
        if isinstance(body, IndexBuild):
            if body.table not in self._plan.tables:
                self.passed_over.add(body.table)
                return []  # It was dropped since, and its rows are swept.
            writes = self.local_writes(view, body.indexes, stamp)
            return [*writes, (place, value)] if value >= before else writes
        # In a rebuild the changelog may already have more progress. Rows compare stamps to take
        # what is newer.
        writes = [(place, value)] if value >= before else []
        for write in body.indexes:
            writes += index_writes(view, self._table, write, stamp)
        return writes

    def drop_known_feed(self, view: RangeReader, asked: IndexFeed) -> IndexFeed:
        """Return the feed's record, without changes if the shard already has later ones.

        The rows have changed since.
        """
        place, value = self.progress(asked)
        if value < (view.get(place) or b""):
            return IndexFeed(asked.source, asked.following, asked.stamp, ())
        return asked

    def progress(self, body: IndexBuild | IndexFeed) -> tuple[bytes, bytes]:
        """Return the key and the value of an index's progress after its record."""
        if isinstance(body, IndexBuild):
            return build_key(body.table, self._shard_id), build_value(body.following)
        fed = Fed(body.following, body.stamp)
        return feed_key(self._table.table_id, body.source), fed.encode()

    def find_written_ranges(self, body: Body) -> list[tuple[bytes, bytes]]:
        """Return the key ranges (low <= key < high) of indexes' rows that a record wrote."""
        if isinstance(body, IndexFeed):
            return [_row_range(self._table.table_id, write) for write in body.indexes]
        if isinstance(body, PutBody | UpdateBody | DeleteBody | IndexBuild):
            return [_row_range(write.table, write) for write in body.indexes if write.local]
        return []

    def _visible(
        self, view: RangeReader, at: bytes, options: TableOptions, now_us: int
    ) -> dict[bytes, Cell] | None:
        """Return a row's visible cells that indexes use; None if the row is absent."""
        stored = fold.read_cells(view, at, self._plan.columns)
        if stored is None:
            return None
        return {c.name: c for c in visible_cells(stored, options, _NEWEST, now_us // 1000)}

    def place(self) -> ShardRange:
        """Return the keys of this shard, also after it has ended."""
        known = (*self._table.shards, *self._table.ended)
        own = (shard for shard in known if shard.shard_id == self._shard_id)
        return next(own, ShardRange(self._shard_id, 0))


def _row_range(table_id: int, write: IndexWrite) -> tuple[bytes, bytes]:
    first = row_key(table_id, key.encode(write.key))
    return first, row_end(first)
