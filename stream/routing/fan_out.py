"""Requests on rows of several workers: batches are divided, ranges go from worker to worker.

A batch's rows go to their owners in parallel, and their results return in the request's
order. If a worker does not answer its part, every row of the part gets the error. A range
returns the rows of one worker's shards at a time. If more rows follow on other workers,
the next key is looked up there.

If one worker has all rows, the request goes there, or to the handler here, unchanged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, groupby, islice, repeat
from operator import itemgetter
from typing import Any, TypeVar

from google.protobuf.message import DecodeError

from rowtide.core.protocol import plainbuffer
from rowtide.core.protocol.authentication import Identity
from rowtide.core.protocol.operations import OPERATIONS, RequestDivision
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.protocol.worker_messages import ExportPartRequest, PartRequest, RangePartRequest
from rowtide.core.rows.source_form import first_key_value
from rowtide.core.values import key
from rowtide.core.values.errors import StoreError, Unavailable
from rowtide.core.values.schema import ShardRange, Table
from rowtide.stream.api.batch_parts import (
    CheckedBatch,
    Part,
    PartResult,
    divide,
    join_answers,
    mark_unknown,
    part_bodies,
)
from rowtide.stream.api.directory import Directory
from rowtide.stream.api.range_scan import find_touched_shards, span_of
from rowtide.stream.http.handlers import divides

__all__ = ["HERE", "FanOut"]

HERE = ""
"""The address of this worker among the parts of a request."""

_RESULTS: Mapping[Any, Any] = {
    pb.BatchGetRowResponse: pb.RowInBatchGetRowResponse,
    pb.BulkImportResponse: pb.RowInBulkImportResponse,
}
"""The message of one row's result in each answer."""

Row = TypeVar("Row")
Ask = Callable[[str, str, Identity, bytes], Awaitable[bytes] | bytes]
"""Sends an operation to the worker at an address (or HERE). May raise the error of its answer."""


class FanOut:
    """Divides requests among workers.

    ``owners`` returns each slot's worker. ``ask`` reaches workers, ``HERE`` included.
    ``refresh`` reads the catalog to its present end.
    """

    def __init__(
        self,
        directory: Directory,
        owners: Callable[[], Mapping[int, str]],
        ask: Ask,
        refresh: Callable[[], Awaitable[None]],
        *,
        address: str,
    ) -> None:
        self._refresh = refresh
        self._directory = directory
        self._owners = owners
        self._ask = ask
        self._address = address

    def knows(self, identity: Identity, operation: str, body: bytes) -> bool:
        """True if this worker knows every table of a batch, or the request is no batch."""
        spec = OPERATIONS[operation]
        if spec.division is not RequestDivision.BATCH:
            return True
        try:
            request = spec.request.FromString(body)
        except DecodeError:
            return True  # The handler rejects it.
        named = request.tables if hasattr(request, "tables") else [request]
        catalog = self._directory.catalog
        return all(catalog.table(identity.instance, one.table_name) for one in named)

    async def _table(self, identity: Identity, name: str) -> Table | None:
        """Return a table; None if it does not exist now."""
        catalog = self._directory.catalog
        found = catalog.table(identity.instance, name)
        if found is None:
            await self._refresh()
            found = catalog.table(identity.instance, name)
        return found

    def _worker(self, shard: ShardRange) -> str:
        address = self._owners().get(shard.slot, "")
        return HERE if address == self._address else address

    def _worker_of(self, table: Table, row: bytes) -> str:
        """Return the worker of a row, by its wire bytes."""
        shard = self._shard_of(table, plainbuffer.first_key_value(row))
        return HERE if shard is None else self._worker(shard)

    def _shard_of(self, table: Table, value: bytes | None) -> ShardRange | None:
        """Return the shard of a row by its first key column; None: any worker rejects it."""
        if value is None:
            return None
        return self._directory.catalog.shard_for(table, key.encode((value,)))

    # Batches.

    @divides("BatchWriteRow")
    async def write(self, identity: Identity, body: bytes, batch: CheckedBatch) -> bytes:
        """Answer a BatchWriteRow that was checked."""
        request, values = batch.request, iter(batch.first_values)
        whose: list[list[str]] = []
        for wanted in request.tables:
            table = await self._table(identity, wanted.table_name)
            found = self._writers(table, [*islice(values, len(wanted.rows))])
            if request.is_atomic:
                found = found[:1] * len(found)
            whose.append(found)
        divided = divide(request, whose)
        if len(divided) > 1:
            bodies = part_bodies(request, batch.fields, divided)
            here = partial(self._write_here, identity, batch, divided.get(HERE, []))
            answers = await self._answers("BatchWriteRow", bodies, identity, here)
            return join_answers(request, whose, answers)
        ((address, part),) = divided.items()
        if address == HERE:
            return await self._write_here(identity, batch, part, body)
        return await self._ask_worker(address, "BatchWriteRow", identity, body)

    async def _write_here(
        self, identity: Identity, batch: CheckedBatch, part: Part, body: bytes
    ) -> bytes:
        """Write this worker's part of a batch; ``body`` is the same part as a request."""
        writing = batch.write(part)
        if writing is None:
            return await self._ask_worker(HERE, "BatchWriteRow", identity, body)
        return await writing

    def _writers(self, table: Table | None, values: Sequence[bytes | None]) -> list[str]:
        """Return the worker of each row, by its first key column's variant."""
        if table is None:
            return [HERE] * len(values)
        shard_for = self._directory.catalog.shard_for
        own = self._address
        whose = {slot: HERE if at == own else at for slot, at in self._owners().items()}
        return [
            HERE if value is None else whose.get(shard_for(table, key.encode((value,))).slot, HERE)
            for value in values
        ]

    @divides("BatchGetRow")
    async def read(self, identity: Identity, body: bytes, request: pb.BatchGetRowRequest) -> bytes:
        """Answer a BatchGetRow that was checked."""
        whose: list[list[str]] = []
        parts: dict[str, pb.BatchGetRowRequest] = {}
        for wanted in request.tables:
            table = await self._table(identity, wanted.table_name)
            tokens = [*wanted.token, *[b""] * len(wanted.primary_key)]
            rows = list(zip(wanted.primary_key, tokens, strict=False))
            found = [self._worker_of(table, row) if table else HERE for row, _ in rows]
            whose.append(found)
            for address, its in _group_by_worker(rows, found).items():
                part = parts.setdefault(address, pb.BatchGetRowRequest()).tables.add()
                part.CopyFrom(wanted)
                part.primary_key[:] = [row for row, _ in its]
                part.token[:] = [token for _, token in its]
        if len(parts) <= 1:
            return await self._ask_worker(next(iter(parts), HERE), "BatchGetRow", identity, body)
        bodies = {address: part.SerializeToString() for address, part in parts.items()}
        answers = await self._answers("BatchGetRow", bodies, identity)
        whole = pb.BatchGetRowResponse()
        results = _rows(answers, pb.BatchGetRowResponse)
        for wanted, of_table in zip(request.tables, whose, strict=True):
            of_all = whole.tables.add(table_name=wanted.table_name).rows
            of_all.extend([next(results[address]) for address in of_table])
        return mark_unknown(bytes(whole.SerializeToString()), answers)

    @divides("BulkImport")
    async def load(self, identity: Identity, body: bytes, request: pb.BulkImportRequest) -> bytes:
        """Answer a BulkImport that was checked."""
        table = await self._table(identity, request.table_name)
        parts: dict[str, pb.BulkImportRequest] = {}
        whose: list[str] = []
        shards: dict[str, dict[str, None]] = {}
        forms = [*request.row_forms]  # Each access to the message would copy and hash them again.
        for row in request.rows:
            shard = None
            if table:
                value = first_key_value(row.row_change, row.row_form, forms)
                shard = self._shard_of(table, value)
            address = HERE if shard is None else self._worker(shard)
            part = parts.get(address)
            if part is None:
                part = parts[address] = pb.BulkImportRequest(table_name=request.table_name)
                part.row_forms.extend(forms)
            if shard is not None:
                shards.setdefault(address, {})[shard.shard_id] = None
            whose.append(address)
            part.rows.append(row)
        if len(parts) <= 1:
            return await self._ask_worker(next(iter(parts), HERE), "BulkImport", identity, body)
        if request.HasField("source"):
            # A shard skips rows up to the last position that it has, so it must get all
            # or none. A worker with another catalog may find one shard where this one has
            # found two.
            for address, part in parts.items():
                part.source = request.source
                part.only_shards.extend(shards.get(address, ()))
        bodies = {address: part.SerializeToString() for address, part in parts.items()}
        answers = await self._answers("BulkImport", bodies, identity)
        whole = pb.BulkImportResponse(table_name=request.table_name)
        rows = _rows(answers, pb.BulkImportResponse)
        whole.rows.extend([next(rows[address]) for address in whose])
        return mark_unknown(bytes(whole.SerializeToString()), answers)

    async def _answers(
        self,
        operation: str,
        bodies: Mapping[str, bytes],
        identity: Identity,
        here: Callable[[bytes], Awaitable[bytes]] | None = None,
    ) -> dict[str, PartResult]:
        """Return each worker's answer to its part, or the error of its part.

        This worker's answer comes from ``here``, if given.
        """
        if here is None:
            here = partial(self._ask_worker, HERE, operation, identity)
        async with asyncio.TaskGroup() as tasks:
            asked = {
                address: self._begin_part(tasks, address, operation, identity, body)
                if address != HERE
                else tasks.create_task(_catch_error(_last(here, body)), name="part[here]")
                for address, body in bodies.items()
            }
            return {address: await _wait_for_part(answer) for address, answer in asked.items()}

    def _begin_part(
        self,
        tasks: asyncio.TaskGroup,
        address: str,
        operation: str,
        identity: Identity,
        body: bytes,
    ) -> Awaitable[bytes | StoreError] | StoreError:
        """Send a part to its worker; a connected worker needs no task for it."""
        try:
            answer = self._ask(address, operation, identity, body)
        except StoreError as error:
            return error
        if isinstance(answer, asyncio.Future):
            return answer
        return tasks.create_task(_catch_error(answer), name=f"part[{address}]")

    async def _ask_worker(
        self, address: str, operation: str, identity: Identity, body: bytes
    ) -> bytes:
        answer = self._ask(address, operation, identity, body)
        return answer if isinstance(answer, bytes) else await answer

    # Ranges.

    @divides("GetRange")
    async def scan(self, identity: Identity, _body: bytes, request: pb.GetRangeRequest) -> bytes:
        """Answer a GetRange."""
        await self._table(identity, request.table_name)
        found = self._segments(identity, request, backward=request.direction == pb.BACKWARD)
        answer = pb.GetRangeResponse
        return await self._first("GetRange", RangePartRequest, identity, request, found, answer)

    @divides("BulkExport")
    async def export(
        self, identity: Identity, _body: bytes, request: pb.BulkExportRequest
    ) -> bytes:
        """Answer a BulkExport."""
        await self._table(identity, request.table_name)
        found = self._segments(identity, request, backward=False)
        answer = pb.BulkExportResponse
        return await self._first("BulkExport", ExportPartRequest, identity, request, found, answer)

    def _segments(
        self, identity: Identity, request: Any, *, backward: bool
    ) -> list[tuple[str, list[str]]]:
        """Return the workers of a range in its order, each with its shards."""
        table = self._directory.table(identity.instance, request.table_name)
        start, end = request.inclusive_start_primary_key, request.exclusive_end_primary_key
        span = span_of(table, start, end, self._directory.limits, backward=backward)
        exact = getattr(request, "exact_in_shard", "")
        only = frozenset((exact,)) if exact else None
        whose = [
            (self._worker(shard), shard.shard_id)
            for shard in find_touched_shards(table, span, only)
        ]
        return [(at, [s for _, s in run]) for at, run in groupby(whose, itemgetter(0))]

    async def _first(
        self,
        operation: str,
        part: type[PartRequest],
        identity: Identity,
        request: Any,
        segments: Sequence[tuple[str, list[str]]],
        kind: Any,
    ) -> bytes:
        """Return the first worker's rows, with the key at which the rest begins."""
        if len(segments) <= 1:
            # A shard that is not known here may exist by now; otherwise the error is the
            # answer.
            address = segments[0][0] if segments else HERE
            return await self._ask_worker(address, operation, identity, request.SerializeToString())
        for number, (address, shards) in enumerate(segments):
            body = part(shards, request.SerializeToString()).encode()
            answer = kind.FromString(
                await self._ask_worker(address, part.operation, identity, body)
            )
            if answer.next_start_primary_key or number == len(segments) - 1:
                return bytes(answer.SerializeToString())
            if _has_rows(answer):
                following = await self._next_key(identity, request, segments[number + 1 :])
                if following:
                    answer.next_start_primary_key = following
                return bytes(answer.SerializeToString())
        raise Unavailable

    async def _next_key(
        self, identity: Identity, request: Any, segments: Sequence[tuple[str, list[str]]]
    ) -> bytes:
        """Return the key of the first remaining row, as a wire row; empty if there is none."""
        probe = pb.GetRangeRequest(
            table_name=request.table_name,
            direction=getattr(request, "direction", pb.FORWARD),
            inclusive_start_primary_key=request.inclusive_start_primary_key,
            exclusive_end_primary_key=request.exclusive_end_primary_key,
            max_versions=1,
            limit=1,
        )
        for address, shards in segments:
            part = RangePartRequest(shards, probe.SerializeToString())
            part_answer = await self._ask_worker(address, part.operation, identity, part.encode())
            answer = pb.GetRangeResponse.FromString(part_answer)
            for row in plainbuffer.decode_rows(answer.rows) if answer.rows else ():
                return plainbuffer.HEADER + plainbuffer.encode_row(row.key, [])
            if answer.next_start_primary_key:
                return answer.next_start_primary_key
        return b""


async def _last(here: Callable[[bytes], Awaitable[bytes]], body: bytes) -> bytes:
    """Answer this worker's part, after the requests to other workers have been sent."""
    await asyncio.sleep(0)
    return await here(body)


async def _catch_error(answer: Awaitable[bytes] | bytes) -> bytes | StoreError:
    """Return an answer or its error, which must not end the other parts."""
    try:
        return answer if isinstance(answer, bytes) else await answer
    except StoreError as error:
        return error


async def _wait_for_part(answer: Awaitable[PartResult] | StoreError) -> PartResult:
    """Return a part's answer, or its error."""
    try:
        return answer if isinstance(answer, StoreError) else await answer
    except StoreError as error:
        return error


def _has_rows(answer: Any) -> bool:
    return bool(answer.rows)


def _group_by_worker(rows: Sequence[Row], whose: Sequence[str]) -> dict[str, list[Row]]:
    """Return each worker's rows in their order, by address."""
    found: dict[str, list[Row]] = {}
    for row, address in zip(rows, whose, strict=True):
        found.setdefault(address, []).append(row)
    return found


def _rows(answers: Mapping[str, PartResult], kind: Any) -> dict[str, Iterator[Any]]:
    """Return the results of the rows of each worker's part, in the order in which it got them."""
    return {address: _results(result, kind) for address, result in answers.items()}


def _results(result: PartResult, kind: Any) -> Iterator[Any]:
    if isinstance(result, StoreError):
        error = pb.Error(code=result.code, message=result.message)
        return repeat(_RESULTS[kind](is_ok=False, error=error))
    answer = kind.FromString(result)
    tables = answer.tables if hasattr(answer, "tables") else [answer]
    return chain.from_iterable(table.rows for table in tables)
