"""Where a source writes, over the protocol: tables of an instance.

Rows of one table are sent in order (``source_writer.py``), those of several tables at the same
time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

from rowtide.client.changes.leases import TableLeases
from rowtide.client.changes.own_tables import make_table
from rowtide.client.endpoint import Endpoint
from rowtide.connectors.rows import Key, SourceRow, TableShape
from rowtide.connectors.runtime.source_lease import SOURCE_TABLE, SourceLease
from rowtide.connectors.runtime.source_rows import EncodedRows
from rowtide.connectors.runtime.source_writer import SourceWriter
from rowtide.core.protocol import plainbuffer
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.values import variant
from rowtide.core.values.errors import (
    OutcomeUnknown,
    Rejected,
    StoreError,
    Unavailable,
    first_failure,
    invalid,
)
from rowtide.core.values.schema import KeyColumn

__all__ = ["TableTarget"]

WAIT_S = 0.05
RELEASE_S = 2.0


class TableTarget:
    """The tables of an instance, for a named source. See ``SourceTarget``.

    Within its context this process is the source. Entering waits while another process
    is. If another takes over, the body is cancelled and the context raises ``Rejected``.
    ``lease_s`` is how long a silent process keeps the source. ``deadline_s`` is how long
    a request is retried before its failure is raised. New tables keep ``max_versions``
    and a stream of ``stream_hours``.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        source: str,
        *,
        lease_s: float = 10.0,
        deadline_s: float = 60.0,
        max_versions: int = 1,
        stream_hours: int = 168,
    ) -> None:
        self._endpoint = endpoint
        self._source = source
        self._lease = SourceLease(
            TableLeases(endpoint, source, table=SOURCE_TABLE), lease_s=lease_s
        )
        self._deadline_s = deadline_s
        self._max_versions = max_versions
        self._stream_hours = stream_hours
        self._known: set[TableShape] = set()
        self._writer = SourceWriter(
            endpoint, source, deadline_s=deadline_s, on_dropped=self._known.clear
        )
        self._tasks = asyncio.TaskGroup()
        self._renewing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self._lease.take()
        await self._tasks.__aenter__()
        renewing = self._lease.renew_often()
        self._renewing = self._tasks.create_task(renewing, name=f"source {self._source}")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._renewing is not None, "the context was entered"
        self._renewing.cancel()
        try:
            await self._tasks.__aexit__(kind, error, trace)
        except BaseExceptionGroup as group:
            raise first_failure(group) from group
        finally:
            with suppress(StoreError, TimeoutError):
                async with asyncio.timeout(RELEASE_S):
                    await self._lease.release()

    @property
    def term(self) -> int:
        """A number that rises each time any process takes the source."""
        return self._lease.term

    async def ensure_table(self, table: TableShape) -> None:
        """Create a table with a stream if it is missing. Raises ``Rejected`` for another key."""
        if table in self._known:
            return
        known = pb.DescribeTableRequest(table_name=table.name)
        try:
            response = await self._endpoint.call("DescribeTable", known, pb.DescribeTableResponse)
        except Rejected as error:
            if error.code != "OTSObjectNotExist":
                raise
            await self._create(table)
            response = await self._endpoint.call("DescribeTable", known, pb.DescribeTableResponse)
        key = tuple(
            KeyColumn(column.name, column.type, column.HasField("option"))
            for column in response.table_meta.primary_key
        )
        if key != table.key:
            raise invalid(f"Table '{table.name}' has another primary key: {_text(key)}.")
        self._known.add(table)

    async def _create(self, table: TableShape) -> None:
        options = pb.TableOptions(time_to_live=-1, max_versions=self._max_versions)
        stream = pb.StreamSpecification(enable_stream=True, expiration_time=self._stream_hours)
        key = [(column.name, column.type) for column in table.key]
        await make_table(self._endpoint, table.name, key, options, stream)

    def prepare(self, rows: Sequence[SourceRow]) -> Sequence[SourceRow]:
        """Return rows of one table with their requests, see ``SourceTarget``."""
        return EncodedRows(self._source, rows[0].table, rows) if rows else rows

    async def write(self, rows: Sequence[SourceRow]) -> None:
        """Write the rows in order. Return when all are durable. Raises ``RowRefused``."""
        by_table = _by_table(rows)
        try:
            async with asyncio.TaskGroup() as tasks:
                writing = [
                    tasks.create_task(self._writer.write(table, of_table), name=f"write[{table}]")
                    for table, of_table in by_table.items()
                ]
        except BaseExceptionGroup as group:
            raise first_failure(group) from group
        refused = {id(r.row): r for task in writing if (r := task.result()) is not None}
        if refused:
            # Raise only now: earlier rows of other tables are durable too.
            raise next(refused[id(row)] for row in rows if id(row) in refused)

    async def keys(self, table: str, after: Key | None, *, limit: int) -> Sequence[Key]:
        """Return up to ``limit`` keys that follow ``after``, see ``SourceTarget.keys``."""
        [names] = [
            [part.name for part in shape.key] for shape in self._known if shape.name == table
        ]
        low = [(name.encode(), variant.V_INF_MIN) for name in names]
        high = [(name.encode(), variant.V_INF_MAX) for name in names]
        if after is not None:
            low = [(name.encode(), variant.encode(value)) for name, value in after]
        request = pb.GetRangeRequest(
            table_name=table,
            direction=pb.FORWARD,
            max_versions=1,
            limit=limit + 1,  # The first is ``after``, if it still exists.
            columns_to_get=names[:1],
            inclusive_start_primary_key=plainbuffer.HEADER + plainbuffer.encode_row(low, []),
            exclusive_end_primary_key=plainbuffer.HEADER + plainbuffer.encode_row(high, []),
        )
        while True:
            response = await self._read_page(request)
            rows = plainbuffer.decode_rows(response.rows) if response.rows else []
            found = [tuple((n.decode(), variant.decode(v)) for n, v in row.key) for row in rows]
            keys = [key for key in found if key != after][:limit]
            if keys or not response.next_start_primary_key:
                return keys
            request.inclusive_start_primary_key = response.next_start_primary_key

    async def _read_page(self, request: pb.GetRangeRequest) -> pb.GetRangeResponse:
        """Return a page. Retry until the deadline while a shard can't be read."""
        until_s = asyncio.get_running_loop().time() + self._deadline_s
        while True:
            try:
                return await self._endpoint.call("GetRange", request, pb.GetRangeResponse)
            except (Unavailable, OutcomeUnknown):
                if asyncio.get_running_loop().time() > until_s:
                    raise
            await asyncio.sleep(WAIT_S)

    async def checkpoint(self) -> bytes:
        """Return the last checkpoint stored by ``keep``, empty if there is none."""
        return self._lease.checkpoint

    async def keep(self, checkpoint: bytes) -> None:
        """Store up to where everything is written, see ``SourceTarget``."""
        await self._lease.keep(checkpoint)


def _by_table(rows: Sequence[SourceRow]) -> dict[str, Sequence[SourceRow]]:
    if isinstance(rows, EncodedRows):
        return {rows.table: rows}
    found: dict[str, list[SourceRow]] = {}
    for row in rows:
        found.setdefault(row[0], []).append(row)
    return {**found}


def _text(key: Sequence[KeyColumn]) -> str:
    return ", ".join(f"{column.name} ({column.type})" for column in key)
