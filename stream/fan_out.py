"""Requests on rows of several workers: batches are divided, ranges go from worker to worker.

A batch's rows go to their owners side by side, and their results come back in the request's order.
A part whose worker does not answer fails row by row, with what is known of it. A range answers the
rows of one worker's shards at a time; where more follow elsewhere, the next key is looked up there.

Where everything is one worker's, the request goes there, or to the handler here, as it came.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from itertools import chain, groupby, repeat
from operator import itemgetter
from struct import Struct
from typing import Any, TypeVar

from google.protobuf.message import DecodeError

from rowtide.core import key, plainbuffer
from rowtide.core.authentication import Identity
from rowtide.core.errors import OutcomeUnknown, StoreError, Unavailable
from rowtide.core.schema import ShardRange, Table
from rowtide.core.source_form import first_key_value
from rowtide.core.wire import ots_pb2 as pb
from rowtide.stream.directory import Directory
from rowtide.stream.http_edge import Handler
from rowtide.stream.http_tally import UnknownWithin
from rowtide.stream.range_scan import span_of, touched
from rowtide.stream.row_requests import parse

__all__ = ["HERE", "PART_OF_EXPORT", "PART_OF_RANGE", "FanOut", "part_handler"]

PART_OF_RANGE, PART_OF_EXPORT = "RowtidePartOfRange", "RowtidePartOfExport"

HERE = ""
"""The address of this worker among the parts of a request."""

_SIZE = Struct(">H")

_BATCHES: Mapping[str, Any] = {
    "BatchWriteRow": pb.BatchWriteRowRequest,
    "BatchGetRow": pb.BatchGetRowRequest,
    "BulkImport": pb.BulkImportRequest,
}
"""Messages of the operations whose answers tell row by row that there is no such table."""

_RESULTS: Mapping[Any, Any] = {
    pb.BatchWriteRowResponse: pb.RowInBatchWriteRowResponse,
    pb.BatchGetRowResponse: pb.RowInBatchGetRowResponse,
    pb.BulkImportResponse: pb.RowInBulkImportResponse,
}
"""What an answer tells of each row."""

Row = TypeVar("Row")
Told = bytes | StoreError
"""A worker's answer to its part of a batch, or what went wrong with it."""

Ask = Callable[[str, str, Identity, bytes], Awaitable[bytes] | bytes]
"""Has the worker at an address (or HERE) answer an operation. May raise what it raises."""


class FanOut:
    """``owners`` tells each slot's worker; ``ask`` reaches them, ``HERE`` included.

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
        """Say whether this worker knows every table of a batch, or it is none."""
        message = _BATCHES.get(operation)
        if message is None:
            return True
        try:
            request = message.FromString(body)
        except DecodeError:
            return True  # The handler refuses it.
        named = request.tables if hasattr(request, "tables") else [request]
        catalog = self._directory.catalog
        return all(catalog.table(identity.instance, one.table_name) for one in named)

    async def _table(self, identity: Identity, name: str) -> Table | None:
        """Return a table, None where there is none now."""
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
        """Return whose a row is, by its wire bytes."""
        shard = self._shard_of(table, plainbuffer.first_key_value(row))
        return HERE if shard is None else self._worker(shard)

    def _shard_of(self, table: Table, value: bytes | None) -> ShardRange | None:
        """Return the shard of a row by its first key column; None: it is refused wherever it is."""
        if value is None:
            return None
        return self._directory.catalog.shard_for(table, key.encode((value,)))

    # Batches.

    async def write(self, identity: Identity, body: bytes) -> bytes:
        """Answer a BatchWriteRow that was found to be in order."""
        request = pb.BatchWriteRowRequest.FromString(body)
        whose: list[list[str]] = []
        parts: dict[str, pb.BatchWriteRowRequest] = {}
        for wanted in request.tables:
            table = await self._table(identity, wanted.table_name)
            rows = list(wanted.rows)
            found = [self._worker_of(table, r.row_change) if table else HERE for r in rows]
            if request.is_atomic:
                found = found[:1] * len(found)
            whose.append(found)
            for address, its in _divided(rows, found).items():
                part = parts.get(address)
                if part is None:
                    part = parts[address] = pb.BatchWriteRowRequest(is_atomic=request.is_atomic)
                part.tables.add(table_name=wanted.table_name).rows.extend(its)
        if len(parts) == 1:
            return await self._asked(next(iter(parts)), "BatchWriteRow", identity, body)
        answers = await self._answers("BatchWriteRow", parts, identity)
        return _joined(request, whose, answers, pb.BatchWriteRowResponse())

    async def read(self, identity: Identity, body: bytes) -> bytes:
        """Answer a BatchGetRow that was found to be in order."""
        request = pb.BatchGetRowRequest.FromString(body)
        whose: list[list[str]] = []
        parts: dict[str, pb.BatchGetRowRequest] = {}
        for wanted in request.tables:
            table = await self._table(identity, wanted.table_name)
            tokens = [*wanted.token, *[b""] * len(wanted.primary_key)]
            rows = list(zip(wanted.primary_key, tokens, strict=False))
            found = [self._worker_of(table, row) if table else HERE for row, _ in rows]
            whose.append(found)
            for address, its in _divided(rows, found).items():
                part = parts.setdefault(address, pb.BatchGetRowRequest()).tables.add()
                part.CopyFrom(wanted)
                part.primary_key[:] = [row for row, _ in its]
                part.token[:] = [token for _, token in its]
        if len(parts) <= 1:
            return await self._asked(next(iter(parts), HERE), "BatchGetRow", identity, body)
        answers = await self._answers("BatchGetRow", parts, identity)
        return _joined(request, whose, answers, pb.BatchGetRowResponse())

    async def load(self, identity: Identity, body: bytes) -> bytes:
        """Answer a BulkImport that was found to be in order."""
        request = pb.BulkImportRequest.FromString(body)
        table = await self._table(identity, request.table_name)
        parts: dict[str, pb.BulkImportRequest] = {}
        whose: list[str] = []
        shards: dict[str, dict[str, None]] = {}
        forms = [*request.row_forms]  # Each look into the message would copy and hash them anew.
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
            return await self._asked(next(iter(parts), HERE), "BulkImport", identity, body)
        if request.HasField("source"):
            # A shard skips what is behind the rows it has, so it must get all or none: a worker
            # with another catalog may find rows of one shard where this one has seen two.
            for address, part in parts.items():
                part.source = request.source
                part.only_shards.extend(shards.get(address, ()))
        answers = await self._answers("BulkImport", parts, identity)
        whole = pb.BulkImportResponse(table_name=request.table_name)
        rows = _rows(answers, pb.BulkImportResponse)
        whole.rows.extend([next(rows[address]) for address in whose])
        return _marked(whole, answers)

    async def _answers(
        self, operation: str, parts: Mapping[str, Any], identity: Identity
    ) -> dict[str, Told]:
        """Return each worker's answer, or what went wrong with it."""
        async with asyncio.TaskGroup() as tasks:
            asked = {
                address: self._begun(tasks, address, operation, identity, part.SerializeToString())
                for address, part in parts.items()
            }
            return {address: await _told(answer) for address, answer in asked.items()}

    def _begun(
        self,
        tasks: asyncio.TaskGroup,
        address: str,
        operation: str,
        identity: Identity,
        body: bytes,
    ) -> Awaitable[bytes | StoreError] | StoreError:
        """Have a part answered; another worker that is connected needs no task for it."""
        if address != HERE:
            try:
                answer = self._ask(address, operation, identity, body)
            except StoreError as error:
                return error
            if isinstance(answer, asyncio.Future):
                return answer
        else:
            answer = self._here(operation, identity, body)
        return tasks.create_task(_kept(answer), name=f"part[{address}]")

    async def _here(self, operation: str, identity: Identity, body: bytes) -> bytes:
        """Answer this worker's part, once what others are asked has left."""
        await asyncio.sleep(0)
        return await self._asked(HERE, operation, identity, body)

    async def _asked(self, address: str, operation: str, identity: Identity, body: bytes) -> bytes:
        answer = self._ask(address, operation, identity, body)
        return answer if isinstance(answer, bytes) else await answer

    # Ranges.

    async def scan(self, identity: Identity, body: bytes) -> bytes:
        """Answer a GetRange."""
        request = parse(pb.GetRangeRequest, body)
        await self._table(identity, request.table_name)
        found = self._segments(identity, request, backward=request.direction == pb.BACKWARD)
        answer = pb.GetRangeResponse
        return await self._first("GetRange", PART_OF_RANGE, identity, request, found, answer)

    async def export(self, identity: Identity, body: bytes) -> bytes:
        """Answer a BulkExport."""
        request = parse(pb.BulkExportRequest, body)
        await self._table(identity, request.table_name)
        found = self._segments(identity, request, backward=False)
        answer = pb.BulkExportResponse
        return await self._first("BulkExport", PART_OF_EXPORT, identity, request, found, answer)

    def _segments(
        self, identity: Identity, request: Any, *, backward: bool
    ) -> list[tuple[str, list[str]]]:
        """Return the workers of a range in its order, each with its shards."""
        table = self._directory.table(identity.instance, request.table_name)
        start, end = request.inclusive_start_primary_key, request.exclusive_end_primary_key
        span = span_of(table, start, end, self._directory.limits, backward=backward)
        exact = getattr(request, "exact_in_shard", "")
        only = frozenset((exact,)) if exact else None
        whose = [(self._worker(shard), shard.shard_id) for shard in touched(table, span, only)]
        return [(at, [s for _, s in run]) for at, run in groupby(whose, itemgetter(0))]

    async def _first(
        self,
        operation: str,
        part: str,
        identity: Identity,
        request: Any,
        segments: Sequence[tuple[str, list[str]]],
        kind: Any,
    ) -> bytes:
        """Return the first worker's rows that there are, with the key at which the rest begins."""
        if len(segments) <= 1:
            # A shard that is not known here may be by now; otherwise that is the answer.
            address = segments[0][0] if segments else HERE
            return await self._asked(address, operation, identity, request.SerializeToString())
        for number, (address, shards) in enumerate(segments):
            body = _part_body(shards, request)
            answer = kind.FromString(await self._asked(address, part, identity, body))
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
        """Return the key of the first row that is left, as a wire row; empty: there is none."""
        probe = pb.GetRangeRequest(
            table_name=request.table_name,
            direction=getattr(request, "direction", pb.FORWARD),
            inclusive_start_primary_key=request.inclusive_start_primary_key,
            exclusive_end_primary_key=request.exclusive_end_primary_key,
            max_versions=1,
            limit=1,
        )
        for address, shards in segments:
            told = await self._asked(address, PART_OF_RANGE, identity, _part_body(shards, probe))
            answer = pb.GetRangeResponse.FromString(told)
            for row in plainbuffer.decode_rows(answer.rows) if answer.rows else ():
                return plainbuffer.HEADER + plainbuffer.encode_row(row.key, [])
            if answer.next_start_primary_key:
                return answer.next_start_primary_key
        return b""


async def _kept(answer: Awaitable[bytes] | bytes) -> bytes | StoreError:
    """Return an answer or the failure to get one, which must not end the other parts."""
    try:
        return answer if isinstance(answer, bytes) else await answer
    except StoreError as error:
        return error


async def _told(answer: Awaitable[Told] | StoreError) -> Told:
    """Return a part's answer, or what went wrong with it."""
    try:
        return answer if isinstance(answer, StoreError) else await answer
    except StoreError as error:
        return error


def part_handler(answer: Callable[[Identity, bytes, frozenset[str]], Any]) -> Handler:
    """Return what answers another worker about some of a range's shards."""

    def handle(identity: Identity, body: bytes) -> Any:
        (size,) = _SIZE.unpack_from(body)
        start = _SIZE.size + size
        shards = frozenset(body[_SIZE.size : start].decode().split(","))
        return answer(identity, body[start:], shards)

    return handle


def _part_body(shards: Sequence[str], request: Any) -> bytes:
    names = ",".join(shards).encode()
    return b"".join((_SIZE.pack(len(names)), names, request.SerializeToString()))


def _has_rows(answer: Any) -> bool:
    return bool(answer.rows)


def _divided(rows: Sequence[Row], whose: Sequence[str]) -> dict[str, list[Row]]:
    """Return each worker's rows in their order, by address."""
    found: dict[str, list[Row]] = {}
    for row, address in zip(rows, whose, strict=True):
        found.setdefault(address, []).append(row)
    return found


def _joined(
    request: Any, whose: Sequence[Sequence[str]], answers: Mapping[str, Told], whole: Any
) -> bytes:
    """Return the answer to a divided batch, its rows in the request's order."""
    rows = _rows(answers, type(whole))
    for wanted, of_table in zip(request.tables, whose, strict=True):
        of_all = whole.tables.add(table_name=wanted.table_name).rows
        of_all.extend([next(rows[address]) for address in of_table])
    return _marked(whole, answers)


def _rows(answers: Mapping[str, Told], kind: Any) -> dict[str, Iterator[Any]]:
    """Return the results of the rows of each worker's part, in the order in which it got them."""
    return {address: _results(told, kind) for address, told in answers.items()}


def _results(told: Told, kind: Any) -> Iterator[Any]:
    if isinstance(told, StoreError):
        error = pb.Error(code=told.code, message=told.message)
        return repeat(_RESULTS[kind](is_ok=False, error=error))
    answer = kind.FromString(told)
    tables = answer.tables if hasattr(answer, "tables") else [answer]
    return chain.from_iterable(table.rows for table in tables)


def _marked(whole: Any, answers: Mapping[str, Told]) -> bytes:
    """Return an answer's bytes, of a kind of their own where a row's outcome is unknown."""
    answer = bytes(whole.SerializeToString())
    unknown = any(isinstance(told, UnknownWithin | OutcomeUnknown) for told in answers.values())
    return UnknownWithin(answer) if unknown else answer
