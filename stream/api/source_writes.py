"""Rows of a source: a BulkImport with a source's name, and a position and a time per row.

The rows come in the order of their positions. The rows of one shard become one group in
its log, together with the position that they reach (``core/shard/source_batch.py``). Rows
that a shard already has are skipped. So a request with an unknown outcome may be
repeated, any number of times.

Each row has its own result. A rejected row blocks the later rows of its shard, or of all
shards if its shard is unknown. Their result is ``Unavailable``: they may be written once
the source has skipped or fixed that row.

A request is taken a slice at a time: while one slice is on its way to the log, the next
is evaluated.

A request has all of a shard's rows or none. If several workers get a part each, the part
names the shards of which it has all rows. Nothing is written to any other shard in this
worker's catalog.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from operator import lt

from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.rows.mutation import ChangeRequest, Outcome
from rowtide.core.shard.source_batch import Earlier, SourceBatch, earlier_row_missing
from rowtide.core.values.errors import OutcomeUnknown, Rejected, StoreError, Unavailable, invalid
from rowtide.core.values.limits import Limits
from rowtide.core.values.schema import Table
from rowtide.stream.api.directory import Directory
from rowtide.stream.api.row_answers import field
from rowtide.stream.http.tally import UnknownWithin
from rowtide.stream.shard.owner import ShardOwner

__all__ = ["check_source_request", "write_source"]

ChangeOf = Callable[[pb.RowInBulkImportRequest], ChangeRequest]
"""Returns the change that a row wants. Raises ``Rejected`` if it cannot be written."""

RowResult = Outcome | StoreError

_OK = field(2, b"\x08\x01")


def check_source_request(request: pb.BulkImportRequest, limits: Limits) -> None:
    """Raise OTSParameterInvalid for an error that rejects the whole request."""
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
    """Write the rows of a checked request; the answer is ready once every row has a result."""
    writing = _Writing(directory, table, request, change_of, loop)
    writing.go_on()
    return writing.reply.future


class _Writing:
    """The rows of one request on their way to their shards, a slice at a time.

    A slice names the rows before it (``Earlier``). So no row overtakes another one of its
    shard, whatever became of the earlier rows, and wherever their shards are now.
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
        """Submit the next slice; later ones get their turn after other requests."""
        begin = len(self._changes)
        earlier = Earlier(self._changes[:], self._positions[:])
        parts, refused = self._slice(begin, begin + self._directory.limits.source_slice_rows)
        for owner, indexes in parts.items():
            changes = [self._changes[index] for index in indexes]
            positions = [self._positions[index] for index in indexes]
            batch = SourceBatch(self._source, changes, positions, earlier)
            try:
                owner.submit_group(batch, partial(self.reply.take_outcome, batch, indexes))
            except StoreError as error:
                self.reply.take_outcome(batch, indexes, error)
        if refused is not None:
            self.reply.reject_rest(len(self._changes), refused)
        elif len(self._changes) < len(self._rows):
            self._loop.call_soon(self._go_on_later)

    def _go_on_later(self) -> None:
        try:
            self.go_on()
        except Exception as error:  # noqa: BLE001 - the waiting caller gets it
            if not self.reply.future.done():
                self.reply.future.set_exception(error)

    def _slice(self, begin: int, end: int) -> tuple[dict[ShardOwner, list[int]], Rejected | None]:
        """Return the rows of each shard, and the error that rejects the next row, if any."""
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
                # Rows of other shards may be written although this one is not.
                self.reply.add_failure(index, error)
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
    """Raise ``Unavailable`` if rows of the shard may have gone to another worker."""
    if owner.shard.shard_id not in divided:
        raise Unavailable("The request was divided by another catalog.")


class _Reply:
    """The answer: every row's result in the request's order, once all are known."""

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
        self._results: list[RowResult | None] = [None] * rows
        self._count = partial(directory.consumption.count, table, None)
        self._left = rows

    def take_outcome(self, batch: SourceBatch, indexes: Sequence[int], outcome: RowResult) -> None:
        """Take the outcome of a shard's rows; a later one for the same rows is ignored."""
        if self._results[indexes[0]] is not None:
            return
        found: Sequence[RowResult] = batch.outcomes
        if isinstance(outcome, StoreError):
            found = [outcome] * len(indexes)
        read = write = 0
        for index, result in zip(indexes, found, strict=True):
            self._results[index] = result
            if not isinstance(result, StoreError):
                read += result.read_units
                write += result.write_units
        self._count(read, write)
        self._left -= len(indexes)
        self._finish()

    def add_failure(self, index: int, error: StoreError) -> None:
        """Take the error of a row that was not submitted."""
        self._results[index] = error
        self._left -= 1
        self._finish()

    def reject_rest(self, begin: int, error: Rejected) -> None:
        """Take the error that rejects a row, and with it all later rows."""
        count = len(self._results) - begin
        self._results[begin:] = [error, *(earlier_row_missing() for _ in range(count - 1))]
        self._left -= count
        self._finish()

    def _finish(self) -> None:
        """Answer if every row has a result."""
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
