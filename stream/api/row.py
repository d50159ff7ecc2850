"""The operations on rows: PutRow, UpdateRow, DeleteRow, GetRow, their batches, GetRange, and ours.

Reads answer at once from the local rows, under the lease. Writes answer through a future.
It is done once the record is in the log and the rows contain it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator, Sequence
from functools import partial
from itertools import zip_longest
from typing import NamedTuple

from rowtide.core.protocol.authentication import Identity
from rowtide.core.protocol.operations import PUT_ONCE
from rowtide.core.protocol.plainbuffer import HEADER
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.protocol.worker_messages import RangePartRequest
from rowtide.core.rows import capacity
from rowtide.core.rows.chunk import row_key
from rowtide.core.rows.mutation import DELETE, PUT, UPDATE
from rowtide.core.rows.overlay import RangeReader
from rowtide.core.rows.read import RowAnswer, Selection, StoredRow, read_row
from rowtide.core.values import key
from rowtide.core.values.errors import Rejected, StoreError, invalid
from rowtide.core.values.schema import Table, check_table_name
from rowtide.stream.api.batch_parts import CheckedBatch, Part
from rowtide.stream.api.batch_reading import BatchReader, ReadBatch
from rowtide.stream.api.batch_reply import BatchReply, BatchUse, row_done, row_error
from rowtide.stream.api.batch_write import BatchRow, write_atomically, write_within
from rowtide.stream.api.directory import Directory
from rowtide.stream.api.index_requests import check_write
from rowtide.stream.api.plain_change import submit_plain
from rowtide.stream.api.plain_read import answer_plain
from rowtide.stream.api.plain_write import write_plain
from rowtide.stream.api.range_page import PageMaker, PageSource, Scan
from rowtide.stream.api.range_scan import (
    RangePage,
    Span,
    find_touched_shards,
    require_known,
    select_stored,
    span_of,
)
from rowtide.stream.api.row_answers import field, range_answer, row_answer
from rowtide.stream.api.row_blocks import range_matrix
from rowtide.stream.api.row_requests import (
    change_of,
    check_key_alone,
    check_table_names,
    note_named_key,
    parse,
    parse_write,
    read_key,
    row_change,
    selection_of,
)
from rowtide.stream.api.transaction import Session, find_session
from rowtide.stream.api.unique_write import submit_unique
from rowtide.stream.api.write_reply import WriteReply
from rowtide.stream.http.handlers import answers, checks
from rowtide.stream.shard.lapsed_lease import LeaseLapsed
from rowtide.stream.shard.waiting import Tell

__all__ = ["RowOperations"]

BATCH_ROWS = 2
"""Bytes that the rows of one BatchGetRow may take before wide ones come in parts. The
unit is the largest row that comes whole.
"""

NO_VERSIONS = "No version condition is specified while querying row."


class RowOperations:
    """Handlers by operation; each takes the caller's identity and the request's body."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._limits = directory.limits
        self._consumption = directory.consumption
        self._reader = BatchReader(directory)
        self._loop = asyncio.get_running_loop()

    # Writes.

    @answers("PutRow")
    def put_row(self, identity: Identity, body: bytes) -> Awaitable[bytes] | bytes:
        """Replace a row."""
        return self._write(identity, PUT, body)

    @answers("UpdateRow")
    def update_row(self, identity: Identity, body: bytes) -> Awaitable[bytes] | bytes:
        """Change cells of a row."""
        return self._write(identity, UPDATE, body)

    @answers("DeleteRow")
    def delete_row(self, identity: Identity, body: bytes) -> Awaitable[bytes] | bytes:
        """Remove a row."""
        return self._write(identity, DELETE, body)

    @answers(PUT_ONCE)
    def put_once(self, identity: Identity, body: bytes) -> Awaitable[bytes]:
        """Put a row that the server numbers, unless a local index has one like it."""
        return submit_unique(self._directory, identity, body, self._loop)

    def _write(self, identity: Identity, kind: int, body: bytes) -> Awaitable[bytes] | bytes:
        answer = submit_plain(self._directory, identity, kind, body, self._loop)
        if answer is not None:
            return answer
        request, buffer = parse_write(kind, body)
        check_table_name(request.table_name, self._limits)
        row = row_change(buffer, kind, self._limits)
        table = self._directory.find_table_for_rows(identity.instance, request.table_name, write=1)
        change = change_of(row, kind, table, request, self._limits)
        check_write(table, kind)
        self._directory.require_space()
        partition_key = row.key[0][1]
        self._consumption.require(table, partition_key)
        reply = WriteReply(self._loop, self._consumption, table, partition_key)
        if request.transaction_id:
            session = find_session(self._directory, identity, request.transaction_id)
            reply(session.apply(table, change))
            return reply.future.result()
        self._directory.owner(table, row.key).submit(change, reply)
        return reply.future

    @checks("BatchWriteRow")
    def check_batch_write(self, identity: Identity, body: bytes) -> CheckedBatch | None:
        """Return a BatchWriteRow that may be divided; None: it may not. Raises what
        rejects it whole.
        """
        batch = self._reader.read(identity, body)
        if batch.request.transaction_id:
            return None
        write = partial(self._write_part, identity, batch)
        return CheckedBatch(batch.request, batch.fields, batch.first_values(), write)

    @answers("BatchWriteRow")
    def batch_write_row(self, identity: Identity, body: bytes) -> Awaitable[bytes]:
        """Write rows of several tables; each succeeds or fails independently, unless atomic."""
        batch = self._reader.read(identity, body)
        request = batch.request
        session = self._session(identity, request.transaction_id)
        tables = [(table.table_name, len(table.rows)) for table in request.tables]
        if batch.plain and session is None and not request.is_atomic:
            answer = write_plain(self._directory, batch.plain, self._loop)
            if answer is not None:
                return answer
        return self._write_rows(identity, tables, batch.rows(), session, atomic=request.is_atomic)

    def _write_part(
        self, identity: Identity, batch: ReadBatch, part: Part
    ) -> Awaitable[bytes] | None:
        """Write rows that were checked; None if a table has changed since, or is missing."""
        find = self._directory.catalog.table
        rows: list[BatchRow] = []
        for name, places in part:
            its = batch.rows(places)
            table = its[0].table
            if table is None or find(identity.instance, name) is not table:
                return None
            rows += its
        tables = [(name, len(places)) for name, places in part]
        return self._write_rows(identity, tables, rows, None, atomic=batch.request.is_atomic)

    def _write_rows(
        self,
        identity: Identity,
        tables: Sequence[tuple[str, int]],
        rows: Sequence[BatchRow],
        session: Session | None,
        *,
        atomic: bool,
    ) -> Awaitable[bytes]:
        """Write the rows of ``tables``; the answer follows once every row has a result."""
        reply = BatchReply(tables, BatchUse(self._consumption, identity.instance, rows), self._loop)
        tells = [reply.row(index) for index in range(len(rows))]
        if session is not None:
            write_within(session, rows, tells, atomic=atomic)
        elif atomic:
            write_atomically(self._directory, rows, tells)
        else:
            self._submit_each(rows, tells)
        return reply.future

    def _session(self, identity: Identity, transaction_id: str) -> Session | None:
        """Return the transaction that a request names; None if it names none."""
        if not transaction_id:
            return None
        return find_session(self._directory, identity, transaction_id)

    def _find(self, identity: Identity, name: str) -> tuple[Table | None, StoreError | None]:
        try:
            return self._directory.table(identity.instance, name), None
        except Rejected as error:
            return None, error

    def _submit_each(self, rows: Sequence[BatchRow], tells: Sequence[Tell]) -> None:
        directory, require = self._directory, self._consumption.require
        for (_, table, change, failure), tell in zip(rows, tells, strict=True):
            if table is None or change is None:
                assert failure is not None, "a row has a change or the reason it has none"
                tell(failure)
                continue
            try:
                directory.require_space()
                require(table, change.key[0][1])
                directory.owner(table, change.key).submit(change, tell)
            except StoreError as error:
                tell(error)

    # Reads.

    @answers("GetRow")
    def get_row(self, identity: Identity, body: bytes) -> bytes:
        """Return one row."""
        answer = answer_plain(self._directory, identity, body)
        if answer is not None:
            return answer
        request = parse(pb.GetRowRequest, body)
        table = self._directory.read_table(
            identity.instance, request.table_name, request.primary_key
        )
        selection = note_named_key(selection_of(request, self._limits), table)
        session = self._session(identity, request.transaction_id)
        self._directory.check_index_read(table, within_transaction=session is not None)
        asked = Asked(request.primary_key, request.token, self._limits.row_bytes_max)
        found, units = self._read(table, asked, selection, session)
        if found is None:
            return row_answer(units, 0, b"")
        return row_answer(units, 0, found.wire) + _token(3, found.token)

    def _read(
        self, table: Table, asked: Asked, selection: Selection, session: Session | None = None
    ) -> tuple[RowAnswer | None, int]:
        """Return a row and the read units that it costs, which are counted."""
        buffer, token, bytes_max = asked
        row = read_key(buffer, table, self._limits)
        partition_key = row[0][1]
        self._consumption.require(table, partition_key)
        owner = self._directory.owner(table, row)
        owner.require_readable()
        encoded = key.encode([value for _, value in row])
        found = read_row(
            owner.rows if session is None else session.reading(table, partition_key).view,
            row_key(table.table_id, encoded),
            selection,
            owner.shard.state.options,
            self._directory.clock_us() // 1000,
            token=token,
            bytes_max=bytes_max,
        )
        units = 1 if found is None else capacity.units(found.size - table.key_overhead)
        self._consumption.count(table, partition_key, units, 0)
        return found, units

    @checks("BatchGetRow")
    def check_batch_get(self, identity: Identity, body: bytes) -> pb.BatchGetRowRequest:
        """Return a checked BatchGetRow, which may always be divided. Raises what rejects
        it whole.
        """
        request = parse(pb.BatchGetRowRequest, body)
        self._check_batch_get(request)
        for wanted in request.tables:
            selection_of(wanted, self._limits, missing=NO_VERSIONS)
            table, _ = self._find(identity, wanted.table_name)
            for buffer in wanted.primary_key:
                self._check_key(table, buffer)
        return request

    def _check_key(self, table: Table | None, buffer: bytes) -> None:
        """Raise an error of a key if it rejects the whole batch."""
        try:
            if table is None:
                check_key_alone(buffer, self._limits)
            else:
                read_key(buffer, table, self._limits)
        except StoreError as error:
            if error.code == "OTSParameterInvalid":
                raise

    @checks("GetRange")
    def check_range(self, _identity: Identity, body: bytes) -> pb.GetRangeRequest | None:
        """Return a GetRange; None within a transaction, which only one worker answers."""
        request = parse(pb.GetRangeRequest, body)
        return None if request.transaction_id else request

    def _check_batch_get(self, request: pb.BatchGetRowRequest) -> None:
        if not request.tables:
            raise invalid("No row specified in the request of BatchGetRow.")
        count = sum(len(table.primary_key) for table in request.tables)
        most = self._limits.batch_get_rows_max
        if count > most:
            raise invalid(f"Rows count exceeds the upper limit: {most}.")
        if len(request.tables) > most:  # A table may come without a row.
            raise invalid(f"Tables count exceeds the upper limit: {most}.")
        check_table_names((wanted.table_name for wanted in request.tables), self._limits)

    @answers("BatchGetRow")
    def batch_get_row(self, identity: Identity, body: bytes) -> bytes:
        """Return rows of several tables, each with its own result, in request order."""
        request = parse(pb.BatchGetRowRequest, body)
        self._check_batch_get(request)
        response = b""
        left = BATCH_ROWS * self._limits.row_bytes_max
        for wanted in request.tables:
            selection = selection_of(wanted, self._limits, missing=NO_VERSIONS)
            table, missing = self._find(identity, wanted.table_name)
            if table is not None:
                self._directory.check_index_read(table)
            else:
                self._consumption.count_missing(identity.instance, read=len(wanted.primary_key))
            items = b""
            for buffer, token in zip_longest(wanted.primary_key, wanted.token, fillvalue=b""):
                asked = Asked(buffer, token, max(1, min(left, self._limits.row_bytes_max)))
                item = self._batch_item(table, missing, asked, selection)
                left -= len(item)
                items += field(2, item)
            response += field(1, field(1, wanted.table_name.encode()) + items)
        return response

    def _batch_item(
        self,
        table: Table | None,
        missing: StoreError | None,
        asked: Asked,
        selection: Selection,
    ) -> bytes:
        if table is None:
            assert missing is not None, "a table is there or the reason it is not"
            check_key_alone(asked.key, self._limits)
            return row_error(missing)
        try:
            found, units = self._read(table, asked, note_named_key(selection, table))
        except LeaseLapsed:
            raise  # All rows are read again once the lease holds, or they get their errors.
        except StoreError as error:
            if error.code == "OTSParameterInvalid":
                raise
            return row_error(error)
        if found is None:
            return row_done(units, 0) + field(4, b"")
        wire = HEADER + found.wire if found.wire else b""
        return row_done(units, 0) + field(4, wire) + _token(5, found.token)

    @answers(RangePartRequest.operation)
    def get_range_part(self, identity: Identity, body: bytes) -> bytes | Awaitable[bytes]:
        """Return the rows of some of a range's shards, for the worker that the client called."""
        part = RangePartRequest.decode(body)
        return self.get_range(identity, part.request, frozenset(part.shards))

    @answers("GetRange")
    def get_range(
        self, identity: Identity, body: bytes, only: frozenset[str] | None = None
    ) -> bytes | Awaitable[bytes]:
        """Return rows in key order, forward or backward, up to the limits of one answer.

        With ``only``, return the rows of these shards. Raises ``Unavailable`` if one is
        not here.
        """
        request = parse(pb.GetRangeRequest, body)
        start, end = request.inclusive_start_primary_key, request.exclusive_end_primary_key
        table = self._directory.read_table(identity.instance, request.table_name, start, end)
        if only is not None:
            require_known(table, only)
        selection = note_named_key(selection_of(request, self._limits), table)
        limit = request.limit if request.HasField("limit") else None
        if limit is not None and limit <= 0:
            raise invalid("The limit must be greater than 0.")
        if not request.HasField("direction"):
            raise invalid("Invalid range: its direction is missing or unknown.")
        span = span_of(table, start, end, self._limits, backward=request.direction == pb.BACKWARD)
        session = self._session(identity, request.transaction_id)
        self._directory.check_index_read(table, within_transaction=session is not None)
        view = session.reading(table, *span.partition_keys).view if session is not None else None
        exact, only = self._exact(table, request, only)
        started = row_key(table.table_id, span.start)
        scan = Scan(selection, limit, request.token, started)
        maker = PageMaker(scan, self._limits, self._directory.clock_us() // 1000)
        sources = self._sources(table, span, view, only)
        page = maker.begin(sources)
        if page is not None:
            return self._range_answer(table, request, page) + exact
        return self._long_range(table, request, maker, exact, maker.hold(sources))

    def _exact(
        self, table: Table, request: pb.GetRangeRequest, only: frozenset[str] | None
    ) -> tuple[bytes, frozenset[str] | None]:
        """Return the encoded stamp at which the rows are exact, and their shards.

        The stamp is taken in the turn in which the rows are read from the store.
        """
        if not request.HasField("exact_in_shard"):
            return b"", only
        name = request.exact_in_shard
        shard = next((shard for shard in table.shards if shard.shard_id == name), None)
        if shard is None:
            raise Rejected("OTSObjectNotExist", f"Table '{table.name}' has no open shard '{name}'.")
        stamp = self._directory.shard(shard).shard.state.stamp
        # The field follows the other fields: parts of a message add up.
        return pb.GetRangeResponse(commit_stamp=stamp).SerializePartialToString(), frozenset(
            (name,)
        )

    async def _long_range(
        self,
        table: Table,
        request: pb.GetRangeRequest,
        maker: PageMaker,
        exact: bytes,
        held: tuple[list[PageSource], StoredRow | None],
    ) -> bytes:
        return self._range_answer(table, request, await maker.finish(*held)) + exact

    def _range_answer(self, table: Table, request: pb.GetRangeRequest, page: RangePage) -> bytes:
        rows, size, following, token = page
        units = capacity.units(size - table.key_overhead * len(rows))
        # Not of one partition key: their shares would have to be counted row by row.
        self._consumption.count(table, None, units, 0)
        if request.data_block_type_hint == pb.DBT_SIMPLE_ROW_MATRIX and request.columns_to_get:
            return range_matrix(table, request, page, self._limits)
        return range_answer(units, rows, following) + _token(4, token)

    def _sources(
        self, table: Table, span: Span, view: RangeReader | None, only: frozenset[str] | None
    ) -> Iterator[PageSource]:
        for shard in find_touched_shards(table, span, only):
            owner = self._directory.shard(shard)
            owner.require_readable()
            options = owner.shard.state.options
            reader = owner.rows if view is None else view
            rows, chunks = select_stored(reader, table, shard, span)
            yield PageSource(rows, reader, options, chunks)


class Asked(NamedTuple):
    """A row to read: its encoded key, its continuation, and the limit of bytes per answer."""

    key: bytes
    token: bytes
    bytes_max: int


def _token(number: int, token: bytes) -> bytes:
    """Return the field ``next_token``; empty if the row is read to its end."""
    return field(number, token) if token else b""
