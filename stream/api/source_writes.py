"""Rows that a source gives: a BulkImport with a source's name, and a position and a time per row.

They come in the order of their positions. The rows of a shard become one group of its log, together
with the position they reach (``core/shard/source_batch.py``); what a shard has already is skipped.
So a request whose outcome is unknown may be made again, and again.

Each row has its own result. A row that is refused holds up those behind it, in its shard or, where
its shard can't be told, in all: they are told ``Unavailable``, for they may be written once the
source has left that row out, or mended it.

A request is taken a slice at a time: while one is on its way to the log the next is decided.

Of the rows of a shard a request has all or none. Where several workers have a part each, the part
names the shards of which it has all: of any other shard, by this worker's catalog, nothing is
written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from operator import lt

from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.rows.mutation import ChangeRequest, Outcome
from rowtide.core.shard.source_batch import Earlier, SourceBatch, not_reached
from rowtide.core.values.errors import OutcomeUnknown, Rejected, StoreError, Unavailable, invalid
from rowtide.core.values.limits import Limits
from rowtide.core.values.schema import Table
from rowtide.stream.api.directory import Directory
from rowtide.stream.api.row_answers import field
from rowtide.stream.http.tally import UnknownWithin
from rowtide.stream.shard.owner import ShardOwner

__all__ = ["check_source_request", "write_source"]

ChangeOf = Callable[[pb.RowInBulkImportRequest], ChangeRequest]
"""Returns what a row asks for. Raises ``Rejected`` where it can't be written."""

Told = Outcome | StoreError

_OK = field(2, b"\x08\x01")


def check_source_request(request: pb.BulkImportRequest, limits: Limits) -> None:
    """Raise OTSParameterInvalid for what refuses a request whole, whatever its rows are."""
    size = len(request.source.encode())
    if not 0 < size <= limits.name_bytes_max:
        raise invalid(
            f"The source's name must have 1 to {limits.name_bytes_max} bytes, not {size}."
        )
    if len(request.rows) > limits.source_write_rows_max:
        raise invalid(f"Rows count exceeds the upper limit: {limits.source_write_rows_max}.")
    if request.ByteSize() > limits.source_write_bytes_max and len(request.rows) > 1:
        _check_bytes(request, limits)
    positions = [row.position for row in request.rows]
    longest = max(map(len, positions))
    if not positions[0] or longest > limits.source_position_bytes_max:
        raise invalid(
            f"A row's position must have 1 to {limits.source_position_bytes_max} bytes, "
            f"not {len(positions[0]) and longest}."
        )
    if not all(map(lt, positions, islice(positions, 1, None))):
        raise invalid("The positions of a source's rows must rise from row to row.")


def _check_bytes(request: pb.BulkImportRequest, limits: Limits) -> None:
    size = sum(len(row.row_change) for row in request.rows)
    if size > limits.source_write_bytes_max:
        raise invalid(
            f"The total data size of BulkImport request exceeds the limit, "
            f"limit size: {limits.source_write_bytes_max}, data size: {size}."
        )


def write_source(
    directory: Directory,
    table: Table,
    request: pb.BulkImportRequest,
    change_of: ChangeOf,
    loop: asyncio.AbstractEventLoop,
) -> asyncio.Future[bytes]:
    """Write the rows of a request that was checked; the answer is there when every one is told."""
    writing = _Writing(directory, table, request, change_of, loop)
    writing.go_on()
    return writing.reply.future


class _Writing:
    """The rows of one request on their way to their shards, a slice of them at a time.

    A slice has what was before it by name (``Earlier``): whatever became of that meanwhile, and
    wherever its shards are now, no row overtakes another one of its shard.
    """

    def __init__(
        self,
        directory: Directory,
        table: Table,
        request: pb.BulkImportRequest,
        change_of: ChangeOf,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._directory = directory
        self._table = table
        self._source = request.source
        self._rows = request.rows
        self._change_of = change_of
        self._loop = loop
        self._divided = frozenset(request.only_shards)
        self._changes: list[ChangeRequest] = []
        self._positions: list[bytes] = []
        self.reply = _Reply(request.table_name, len(self._rows), loop, directory, table)

    def go_on(self) -> None:
        """Submit the next slice; those that follow have their turn once others had theirs."""
        begin = len(self._changes)
        earlier = Earlier(self._changes[:], self._positions[:])
        parts, refused = self._slice(begin, begin + self._directory.limits.source_slice_rows)
        for owner, indexes in parts.items():
            changes = [self._changes[index] for index in indexes]
            positions = [self._positions[index] for index in indexes]
            batch = SourceBatch(self._source, changes, positions, earlier)
            try:
                owner.submit_group(batch, partial(self.reply.told, batch, indexes))
            except StoreError as error:
                self.reply.told(batch, indexes, error)
        if refused is not None:
            self.reply.left(len(self._changes), refused)
        elif len(self._changes) < len(self._rows):
            self._loop.call_soon(self._go_on_later)

    def _go_on_later(self) -> None:
        try:
            self.go_on()
        except Exception as error:  # noqa: BLE001 - told to whoever waits for the answer
            if not self.reply.future.done():
                self.reply.future.set_exception(error)

    def _slice(self, begin: int, end: int) -> tuple[dict[ShardOwner, list[int]], Rejected | None]:
        """Return which rows go where, and what refuses the row behind them, if anything does."""
        parts: dict[ShardOwner, list[int]] = {}
        several = len(self._table.shards) > 1
        owner: ShardOwner | None = None
        for index, item in enumerate(self._rows[begin:end], begin):
            try:
                change = self._change_of(item)
            except Rejected as error:
                return parts, error
            self._changes.append(change)
            self._positions.append(item.position)
            try:
                if owner is None or several:
                    owner = self._owner(change)
            except StoreError as error:
                # Rows of other shards may be written though this one is not.
                self.reply.failed(index, error)
            else:
                parts.setdefault(owner, []).append(index)
        return parts, None

    def _owner(self, change: ChangeRequest) -> ShardOwner:
        """Return the shard that takes a row. Raises ``Unavailable``."""
        self._directory.require_space()
        owner = self._directory.owner(self._table, change.key)
        if self._divided:
            _require_all(owner, self._divided)
        return owner


def _require_all(owner: ShardOwner, divided: frozenset[str]) -> None:
    """Raise ``Unavailable`` where rows of the shard may have gone elsewhere."""
    if owner.shard.shard_id not in divided:
        raise Unavailable("The request was divided by another catalog.")


class _Reply:
    """The answer: every row's result in the request's order, once all are there."""

    def __init__(
        self,
        table_name: str,
        rows: int,
        loop: asyncio.AbstractEventLoop,
        directory: Directory,
        table: Table,
    ) -> None:
        self.future: asyncio.Future[bytes] = loop.create_future()
        self._table_name = table_name
        self._results: list[Told | None] = [None] * rows
        self._count = partial(directory.consumption.count, table, None)
        self._left = rows

    def told(self, batch: SourceBatch, indexes: Sequence[int], told: Told) -> None:
        """Take what became of the rows of a shard; of them, whoever is late is not listened to."""
        if self._results[indexes[0]] is not None:
            return
        found: Sequence[Told] = batch.outcomes
        if isinstance(told, StoreError):
            found = [told] * len(indexes)
        read = write = 0
        for index, result in zip(indexes, found, strict=True):
            self._results[index] = result
            if not isinstance(result, StoreError):
                read += result.read_units
                write += result.write_units
        self._count(read, write)
        self._left -= len(indexes)
        self._finish()

    def failed(self, index: int, error: StoreError) -> None:
        """Take why a row was not submitted."""
        self._results[index] = error
        self._left -= 1
        self._finish()

    def left(self, begin: int, error: Rejected) -> None:
        """Take what refuses a row, and with it all that follow."""
        count = len(self._results) - begin
        self._results[begin:] = [error, *(not_reached() for _ in range(count - 1))]
        self._left -= count
        self._finish()

    def _finish(self) -> None:
        """Answer if everything is told."""
        if self._left or self.future.done():
            return
        unknown = any(isinstance(result, OutcomeUnknown) for result in self._results)
        answer = self._answer()
        self.future.set_result(UnknownWithin(answer) if unknown else answer)

    def _answer(self) -> bytes:
        parts = [field(1, self._table_name.encode())]
        for result in self._results:
            if isinstance(result, StoreError):
                error = pb.Error(code=result.code, message=result.message)
                row = pb.RowInBulkImportResponse(is_ok=False, error=error)
                parts.append(field(2, row.SerializeToString()))
            else:
                parts.append(_OK)
        return b"".join(parts)
