"""Sends a source's rows of one table, in order, until they are durable.

One request is under way at a time. A shard takes only what is above its position, so a request that
overtook another would have its rows skipped. For the same reason a failed request can be sent again
unchanged.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence

from rowtide.client.endpoint import Endpoint
from rowtide.client.failures import failure_of
from rowtide.connectors.rows import SourceRow
from rowtide.connectors.runtime.source_rows import EncodedRows, SourceRequest, requests
from rowtide.connectors.sources.source import RowRefused
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.values.errors import (
    OutcomeUnknown,
    Rejected,
    StoreError,
    Unavailable,
    first_failure,
)

__all__ = ["SourceWriter"]

logger = logging.getLogger(__name__)

WAIT_S = 0.05
WAIT_S_MAX = 2.0

_ALL_DONE = b"\x12\x02\x08\x01"
"""A row's result in a response if the row is durable."""


class SourceWriter:
    """Writes rows of a named source.

    ``deadline_s`` is how long a request is retried before its failure is raised. ``on_dropped`` is
    called if the table does not exist any more.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        source: str,
        *,
        deadline_s: float,
        on_dropped: Callable[[], None] = lambda: None,
    ) -> None:
        self._endpoint = endpoint
        self._source = source
        self._deadline_s = deadline_s
        self._on_dropped = on_dropped

    async def write(self, table: str, rows: Sequence[SourceRow]) -> RowRefused | None:
        """Write one table's rows. Return the first refused row, if any. Raises ``StoreError``."""
        try:
            await self._write_requests(table, rows)
        except BaseExceptionGroup as group:
            failure = first_failure(group)
            if isinstance(failure, RowRefused):
                return failure
            raise failure from group
        return None

    async def _write_requests(self, table: str, rows: Sequence[SourceRow]) -> None:
        """Write one table's rows. Encode each request while the one before is sent."""
        async with asyncio.TaskGroup() as tasks:
            under_way: asyncio.Task[None] | None = None
            try:
                for request in self._requests(table, rows):
                    if under_way is not None:
                        await under_way
                    under_way = tasks.create_task(self._send(table, request), name=f"send[{table}]")
                    await asyncio.sleep(0)  # Send it now, before the next one is encoded.
            except RowRefused:
                if under_way is not None:
                    await under_way
                raise

    def _requests(self, table: str, rows: Sequence[SourceRow]) -> Iterator[SourceRequest]:
        if isinstance(rows, EncodedRows):
            return rows.requests()
        return requests(self._source, table, rows)

    async def _send(self, table: str, request: SourceRequest) -> None:
        """Send a request until its rows are durable, one is refused, or the deadline passes."""
        until_s = asyncio.get_running_loop().time() + self._deadline_s
        wait_s = WAIT_S
        while True:
            failed = await self._failure(request)
            if failed is None:
                return
            if failed.code == "OTSObjectNotExist":
                self._on_dropped()
            if isinstance(failed, Rejected) or asyncio.get_running_loop().time() > until_s:
                raise failed
            logger.info("source %s, table %s: %s", self._source, table, failed)
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, WAIT_S_MAX)

    async def _failure(self, request: SourceRequest) -> StoreError | None:
        """Send a request once. Return an error unless all of its rows are durable."""
        try:
            answer = await self._endpoint.ask("BulkImport", request.body)
        except Rejected as error:
            return RowRefused(request.rows[0], error) if len(request.rows) == 1 else error
        except (Unavailable, OutcomeUnknown) as error:
            return error
        if answer.endswith(_ALL_DONE * len(request.rows)):
            return None
        response = pb.BulkImportResponse.FromString(answer)
        for row, result in zip(request.rows, response.rows, strict=True):
            if not result.is_ok:
                why = failure_of(result.error.code, result.error.message)
                # The first failed row decides: a row before a refused one may still be
                # written.
                return RowRefused(row, why) if isinstance(why, Rejected) else why
        return None
