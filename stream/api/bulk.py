"""BulkImport and BulkExport: many rows of one table, metered by bytes instead of capacity units.

BulkImport rejects the whole request for errors that its message alone shows: shapes,
names, sizes and counts. Errors that depend on the table (missing, its key, its defined
columns) and errors of the write are the row's own. The Java SDK's writer relies on this
division.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from rowtide.core.protocol import plainbuffer
from rowtide.core.protocol.authentication import Identity
from rowtide.core.protocol.plainbuffer import HEADER, RowChange
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.protocol.worker_messages import ExportPartRequest
from rowtide.core.rows import capacity
from rowtide.core.rows.mutation import DELETE, UPDATE, ChangeRequest, Outcome
from rowtide.core.rows.read import RowAnswer, RowFilter, Selection, StoredRow, answer
from rowtide.core.values.defined_columns import check_cell_types
from rowtide.core.values.errors import OutcomeUnknown, Rejected, StoreError, invalid
from rowtide.core.values.schema import Table, check_key, check_table_name
from rowtide.stream.api.directory import Directory
from rowtide.stream.api.index_requests import read_only
from rowtide.stream.api.range_scan import (
    Span,
    find_touched_shards,
    iterate_rows,
    key_piece,
    next_key,
    require_known,
    span_of,
)
from rowtide.stream.api.row_blocks import MatrixBlock, PlainBlock
from rowtide.stream.api.row_requests import (
    check_names,
    kind_of,
    note_named_key,
    parse,
    row_change,
    selection_of,
)
from rowtide.stream.api.source_changes import SourceChanges
from rowtide.stream.api.source_writes import check_source_request, write_source
from rowtide.stream.http.handlers import answers, checks
from rowtide.stream.http.tally import UnknownWithin
from rowtide.stream.shard.owner import ShardOwner
from rowtide.stream.shard.waiting import Tell

__all__ = ["BulkOperations"]

ROW_BYTES_MAX = 64 * 1024 * 1024
"""A wider row is rejected: BulkExport cannot answer a row in parts."""


class BulkOperations:
    """Handlers by operation; each takes the caller's identity and the request's body."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._limits = directory.limits
        self._loop = asyncio.get_running_loop()

    # BulkImport.

    @answers("BulkImport")
    def bulk_import(self, identity: Identity, body: bytes) -> Awaitable[bytes]:
        """Write rows of one table; each succeeds or fails independently, in request order."""
        request = parse(pb.BulkImportRequest, body)
        if request.HasField("source"):
            return self._import_of_source(identity, request)
        rows = self._rows(request)
        table, missing = self._find(identity, request.table_name)
        changes = [self._change(table, missing, kind, row) for kind, row in rows]
        sizes = [_row_bytes(row) for _, row in rows]
        used = self._directory.consumption
        if table is None:
            used.count_missing(identity.instance, write=len(rows))
        count = None if table is None else partial(used.count, table, None)
        reply = ImportReply(request.table_name, sizes, self._loop, count)
        for index, change in enumerate(changes):
            self._submit(table, change, partial(reply.take_result, index))
        return reply.future

    @checks("BulkImport")
    def check_import(self, _identity: Identity, body: bytes) -> pb.BulkImportRequest:
        """Return a checked BulkImport; it may be divided. Raises an error that rejects it whole."""
        request = parse(pb.BulkImportRequest, body)
        if request.HasField("source"):
            self._check_shape(request)
            check_source_request(request, self._limits)
        else:
            self._rows(request)
        return request

    def _import_of_source(
        self, identity: Identity, request: pb.BulkImportRequest
    ) -> asyncio.Future[bytes]:
        """Write the rows of a source in their order, and skip those that are already there."""
        self._check_shape(request)
        check_source_request(request, self._limits)
        table = self._directory.find_table_for_rows(
            identity.instance, request.table_name, write=len(request.rows)
        )
        changes = SourceChanges(table, request.row_forms, self._change, self._limits)
        return write_source(self._directory, table, request, changes.change, self._loop)

    def _rows(self, request: pb.BulkImportRequest) -> list[tuple[int, RowChange]]:
        """Return every row with its kind. Raises an error that rejects the whole request."""
        limits = self._limits
        self._check_shape(request)
        if len(request.rows) > limits.batch_write_rows_max:
            raise invalid(f"Rows count exceeds the upper limit: {limits.batch_write_rows_max}.")
        rows: list[tuple[int, RowChange]] = []
        for item in request.rows:
            kind = kind_of(item)
            rows.append((kind, row_change(item.row_change, kind, limits)))
        size = sum(_row_bytes(row) for _, row in rows)
        if size > limits.batch_write_bytes_max:
            raise invalid(
                f"The total data size of BulkImport request exceeds the limit, "
                f"limit size: {limits.batch_write_bytes_max}, data size: {size}."
            )
        return rows

    def _check_shape(self, request: pb.BulkImportRequest) -> None:
        check_table_name(request.table_name, self._limits)
        if not request.rows:
            raise invalid(f"No operation is specified for table: '{request.table_name}'.")

    def _find(self, identity: Identity, name: str) -> tuple[Table | None, StoreError | None]:
        try:
            return self._directory.table(identity.instance, name), None
        except Rejected as error:
            return None, error

    def _change(
        self, table: Table | None, missing: StoreError | None, kind: int, row: RowChange
    ) -> ChangeRequest | StoreError:
        """Return a row's change, or the error that prevents it.

        Raises for a key value that is too long, and for a column with the name of a key
        column.
        """
        if table is None:
            assert missing is not None, "a table is there or the reason it is not"
            return missing
        if table.main:
            raise read_only(table)
        if kind == UPDATE and not table.options.allow_update:
            raise invalid("Update operation is not allowed in this table")
        try:
            check_key(table, row.key, self._limits, auto=kind != DELETE)
        except Rejected as error:
            if error.code == "OTSParameterInvalid":
                raise
            return error
        check_names(row)
        if table.defined_columns:
            try:
                check_cell_types(table.defined_columns, row.cells)
            except Rejected as error:
                return error
        return ChangeRequest(kind, row.key, row.cells)

    def _submit(self, table: Table | None, change: ChangeRequest | StoreError, tell: Tell) -> None:
        if isinstance(change, StoreError):
            tell(change)
            return
        assert table is not None, "a change has a table"
        try:
            self._directory.require_space()
            self._directory.owner(table, change.key).submit(change, tell)
        except StoreError as error:
            tell(error)

    # BulkExport.

    @checks("BulkExport")
    def check_export(self, _identity: Identity, body: bytes) -> pb.BulkExportRequest:
        """Return a BulkExport, which any worker may forward."""
        return parse(pb.BulkExportRequest, body)

    @answers(ExportPartRequest.operation)
    def export_part(self, identity: Identity, body: bytes) -> bytes:
        """Return the rows of some of a range's shards, for the worker that the client called."""
        part = ExportPartRequest.decode(body)
        return self.bulk_export(identity, part.request, frozenset(part.shards))

    @answers("BulkExport")
    def bulk_export(
        self, identity: Identity, body: bytes, only: frozenset[str] | None = None
    ) -> bytes:
        """Return rows in key order, newest versions only, up to the limits of one answer.

        With ``only``, return the rows of these shards. Raises ``Unavailable`` if one is
        not here.
        """
        request = parse(pb.BulkExportRequest, body)
        start, end = request.inclusive_start_primary_key, request.exclusive_end_primary_key
        table = self._directory.read_table(identity.instance, request.table_name, start, end)
        if only is not None:
            require_known(table, only)
        self._directory.check_index_read(table)
        wanted = pb.GetRangeRequest(columns_to_get=request.columns_to_get, max_versions=1)
        if request.HasField("filter"):
            wanted.filter = request.filter
        selection = note_named_key(selection_of(wanted, self._limits), table)
        block = self._block(table, request)
        span = span_of(table, start, end, self._limits, backward=False)
        stored = self._iterate_stored(table, span, only)
        size, following = self._export(table, stored, selection, block)
        self._directory.consumption.count(table, None, capacity.units(size), 0)
        return _export_answer(size, block, following)

    def _block(self, table: Table, request: pb.BulkExportRequest) -> PlainBlock | MatrixBlock:
        bytes_max = self._limits.range_bytes_max
        if request.data_block_type_hint != pb.DBT_SIMPLE_ROW_MATRIX:
            return PlainBlock(bytes_max)
        if not request.columns_to_get:
            raise invalid("DBT_SIMPLE_ROW_MATRIX need at least one column to get.")
        return MatrixBlock(table, request.columns_to_get, bytes_max, entire_key=False)

    def _export(
        self,
        table: Table,
        rows: Iterable[tuple[ShardOwner, StoredRow]],
        selection: Selection,
        block: PlainBlock | MatrixBlock,
    ) -> tuple[int, bytes]:
        """Fill a block; return the bytes read for it and the next unread key (empty: none).

        Rows that the filter rejects count as read.
        """
        bare = replace(selection, filter=None)
        now_ms = self._directory.clock_us() // 1000
        size = 0
        for scanned, (owner, stored) in enumerate(rows):
            if scanned >= self._limits.range_rows_max:
                return size, next_key(stored.first)
            found = _whole(owner, stored, bare, now_ms)
            if found is None:
                continue
            kept = found.wire
            if selection.filter is not None:
                kept = _apply_filter(selection.filter, key_piece(stored.first), found.wire)
            if kept and not block.add(kept):
                return size, next_key(stored.first)
            size += found.size - table.key_overhead
        return size, b""

    def _iterate_stored(
        self, table: Table, span: Span, only: frozenset[str] | None
    ) -> Iterator[tuple[ShardOwner, StoredRow]]:
        for shard in find_touched_shards(table, span, only):
            owner = self._directory.shard(shard)
            owner.require_readable()
            for stored in iterate_rows(owner, table, shard, span):
                yield owner, stored


class ImportReply:
    """The answer of a BulkImport: every row's result in request order, once all are known."""

    def __init__(
        self,
        table_name: str,
        sizes: Sequence[int],
        loop: asyncio.AbstractEventLoop,
        count: Callable[[int, int], None] | None,
    ) -> None:
        self.future: asyncio.Future[bytes] = loop.create_future()
        self._table_name = table_name
        self._sizes = sizes
        self._count = count
        self._results: dict[int, Outcome | StoreError] = {}

    def take_result(self, index: int, outcome: Outcome | StoreError) -> None:
        """Take the result of one row."""
        self._results[index] = outcome
        if self._count is not None and not isinstance(outcome, StoreError):
            self._count(outcome.read_units, outcome.write_units)
        if len(self._results) == len(self._sizes) and not self.future.done():
            unknown = any(isinstance(t, OutcomeUnknown) for t in self._results.values())
            answer = self._answer()
            self.future.set_result(UnknownWithin(answer) if unknown else answer)

    def _answer(self) -> bytes:
        response = pb.BulkImportResponse(table_name=self._table_name)
        for index, size in enumerate(self._sizes):
            outcome = self._results[index]
            if isinstance(outcome, StoreError):
                error = pb.Error(code=outcome.code, message=outcome.message)
                response.rows.add(is_ok=False, error=error)
            else:
                response.rows.add(is_ok=True, consumed=_make_consumed(written=size))
        return response.SerializeToString()


def _row_bytes(row: RowChange) -> int:
    """Return the bytes that a row counts: names and values of its key and its cells."""
    return capacity.key_bytes(row.key) + capacity.cells_bytes(row.cells)


def _make_consumed(*, read: int = 0, written: int = 0) -> pb.ConsumedCapacity:
    return pb.ConsumedCapacity(
        capacity_unit=pb.CapacityUnit(read=0, write=0),
        capacity_data_size=pb.CapacityDataSize(read_size=read, write_size=written),
    )


def _whole(
    owner: ShardOwner, stored: StoredRow, wanted: Selection, now_ms: int
) -> RowAnswer | None:
    """Return a row in one piece, however wide. Raises OTSOutOfRowSizeLimit."""
    options = owner.shard.state.options
    found = answer(owner.rows, stored, wanted, options, now_ms, bytes_max=ROW_BYTES_MAX)
    if found is not None and found.token:
        raise Rejected(
            "OTSOutOfRowSizeLimit",
            f"A row in the range has more than {ROW_BYTES_MAX} bytes: BulkExport answers whole "
            f"rows only, GetRange reads it in parts.",
        )
    return found


def _apply_filter(row_filter: RowFilter, key: bytes, wire: bytes) -> bytes:
    """Return the row's part that a filter keeps; empty if the filter rejects the row."""
    row = plainbuffer.decode_row(HEADER + wire)
    kept = row_filter.choose(key, row.cells)
    return b"" if kept is None else plainbuffer.encode_row(row.key, kept)


def _export_answer(size: int, block: PlainBlock | MatrixBlock, following: bytes) -> bytes:
    response = pb.BulkExportResponse(
        consumed=_make_consumed(read=size), rows=block.finish(), data_block_type=block.type
    )
    if following:
        response.next_start_primary_key = HEADER + following
    return response.SerializeToString()
