"""The asyncio form of the client: every call is awaited.

Any number of tasks of one loop may share a client. The plain form in ``sync_client.py`` has the
same signatures. ``operations.py`` has what both forms send and read.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from types import TracebackType
from typing import Protocol, Self, TypeVar
from weakref import WeakSet

from rowtide.client import table_operations
from rowtide.client.async_transaction import AsyncLocalTransaction
from rowtide.client.batches import RowWrite, read_rows, write_rows
from rowtide.client.changes.feed import AsyncChangeFeed, FeedSpec, rewind_consumer
from rowtide.client.changes.start import Begin, ShardPlace
from rowtide.client.changes.worker import FollowerSettings
from rowtide.client.endpoint import Endpoint
from rowtide.client.operations import Expect, Operations, Steps, StoredOnce
from rowtide.client.predicates import ColumnPage, Predicate
from rowtide.client.ranges import RangeReading, RangeSpec
from rowtide.client.row_values import Input, KeyInput, RowDict, RowInput, Versioned
from rowtide.client.sync_client import staleness_header
from rowtide.client.table_requests import (
    ColumnType,
    KeyType,
    SecondaryIndex,
    TableDescription,
    create_request,
)
from rowtide.core.values.errors import StoreError
from rowtide.core.values.limits import Limits

__all__ = ["AsyncClient"]

_Result = TypeVar("_Result")


class Leaves(Protocol):
    """Reads changes until it leaves."""

    def leave(self) -> None:
        """Stop reading, without waiting."""
        ...


class AsyncClient:
    """An instance of a server, called with a key pair.

    ``timeout_s`` bounds the wait for one answer. ``patience_s`` bounds the retries of a call that
    the server reports as not applied. ``limits`` are the server's, if its operator changed them.
    With ``max_staleness_ms`` a copy that lags by at most that time may answer reads. Calls raise
    ``Rejected``, ``Unavailable`` or ``OutcomeUnknown`` (docs/guides/client.md).
    """

    def __init__(
        self,
        endpoint: str,
        *,
        instance: str,
        access_key_id: str,
        access_key_secret: str,
        timeout_s: float = 30.0,
        patience_s: float = 10.0,
        max_staleness_ms: int | None = None,
        limits: Limits | None = None,
    ) -> None:
        self._endpoint = Endpoint(
            endpoint,
            instance=instance,
            access_key_id=access_key_id,
            access_key_secret=access_key_secret,
            timeout_s=timeout_s,
            patience_s=patience_s,
        )
        self._more = staleness_header(max_staleness_ms)
        self._operations = Operations(limits or Limits(), patience_s)
        self._tasks: asyncio.TaskGroup | None = None
        """The tasks that read changes, while the client's block is open."""
        self.feeds = WeakSet[Leaves]()
        """What reads changes in the client's block. It is stopped when the block ends."""

    async def __aenter__(self) -> Self:
        self._tasks = await asyncio.TaskGroup().__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Hand over the shards that are being read, then close the connections."""
        tasks, self._tasks = self._tasks, None
        assert tasks is not None, "the client's block was entered"
        try:
            for feed in self.feeds:
                feed.leave()
            if isinstance(error, asyncio.CancelledError):
                await tasks.__aexit__(kind, error, trace)
            else:
                # The readers stop themselves. With an error the group would cancel them.
                await tasks.__aexit__(None, None, None)
        finally:
            await self.close()

    async def close(self) -> None:
        """Close the connections; a later call opens new ones."""
        self._endpoint.close()

    @property
    def endpoint(self) -> Endpoint:
        """The client's connections, for calls that it has no method for."""
        return self._endpoint

    @property
    def tasks(self) -> asyncio.TaskGroup:
        """The tasks that read changes. They end with the client's block."""
        if self._tasks is None:
            raise RuntimeError("changes are read within `async with client:`")
        return self._tasks

    @property
    def limits(self) -> Limits:
        """The limits that are checked before a request is sent."""
        return self._operations.limits

    async def _run(self, steps: Steps[_Result]) -> _Result:
        """Send each request that an operation yields; return its result."""
        try:
            exchange = next(steps)
            while True:
                if exchange.after_s:
                    await asyncio.sleep(exchange.after_s)
                try:
                    answer = await self._endpoint.exchange(
                        exchange.operation, exchange.body, self._more
                    )
                except StoreError as failure:
                    exchange = steps.throw(failure)
                else:
                    exchange = steps.send(answer)
        except StopIteration as ended:
            result: _Result = ended.value
            return result

    # ---- Rows ----

    async def put(
        self,
        table: str,
        row: RowInput,
        *,
        expect: Expect = "anything",
        condition: Predicate | None = None,
    ) -> RowDict:
        """Replace a row with all of its columns; return its key.

        The server assigns an AUTO_INCREMENT key column that the row lacks.
        """
        return await self._run(self._operations.put(table, row, expect, condition))

    async def put_once(self, table: str, row: RowInput, *, index: str) -> StoredOnce:
        """Put a row that the server numbers, unless ``index`` has one like it; return its key.

        ``index`` is a local index whose key ends with the AUTO_INCREMENT column. Rows are alike if
        the rest of that key is equal. After a lost answer the request is repeated.
        """
        return await self._run(self._operations.put_once(table, row, index))

    async def update(
        self,
        table: str,
        row: RowInput,
        *,
        delete: Sequence[str] = (),
        increment: Mapping[str, int] | None = None,
        returning: Sequence[str] = (),
        expect: Expect = "anything",
        condition: Predicate | None = None,
    ) -> RowDict:
        """Set the columns in ``row``, delete and increment others; keep the rest.

        The row is created if it is absent. Return the new values of the columns ``returning``.
        """
        return await self._run(
            self._operations.update(
                table,
                row,
                delete=delete,
                increment=increment or {},
                returning=returning,
                expect=expect,
                condition=condition,
            )
        )

    async def delete(
        self,
        table: str,
        key: KeyInput,
        *,
        expect: Expect = "anything",
        condition: Predicate | None = None,
    ) -> None:
        """Delete a row. An absent row is not an error."""
        await self._run(self._operations.delete(table, key, expect, condition))

    async def get(
        self,
        table: str,
        key: KeyInput,
        *,
        columns: Sequence[str] = (),
        filter: Predicate | ColumnPage | None = None,
    ) -> RowDict | None:
        """Return a row or its ``columns``; None if it is absent or the filter drops it."""
        return await self._run(self._operations.get(table, key, columns, filter))

    async def get_versions(
        self,
        table: str,
        key: KeyInput,
        *,
        columns: Sequence[str] = (),
        max_versions: int | None = None,
    ) -> dict[str, list[Versioned]]:
        """Return the versions of a row's columns, newest first; empty if the row is absent."""
        return await self._run(self._operations.get_versions(table, key, columns, max_versions))

    async def get_many(
        self,
        table: str,
        keys: Sequence[KeyInput],
        *,
        columns: Sequence[str] = (),
        filter: Predicate | ColumnPage | None = None,
    ) -> list[RowDict | None]:
        """Return a row for each key, or None; see ``get``. Sends as many requests as needed."""
        return await self._run(read_rows(self._operations, table, keys, columns, filter))

    async def write(self, writes: Sequence[RowWrite], *, atomic: bool = False) -> list[RowDict]:
        """Write up to 200 rows in one request; return their keys.

        Each row succeeds or fails separately. With ``atomic`` either all rows of a table are
        written or none. They must then have the same first key column. Raises ``BatchFailed`` if a
        row failed.
        """
        return await self._run(write_rows(self._operations, writes, atomic=atomic))

    def range(
        self,
        table: str,
        start: KeyInput | None = None,
        end: KeyInput | None = None,
        *,
        prefix: KeyInput | None = None,
        reverse: bool = False,
        columns: Sequence[str] = (),
        filter: Predicate | ColumnPage | None = None,
        limit: int | None = None,
        page_rows: int | None = None,
    ) -> AsyncIterator[RowDict]:
        """Yield the rows from ``start`` on and before ``end``, or those that begin with ``prefix``.

        A bound may omit the last key columns, and may contain INF_MIN and INF_MAX. ``reverse``
        reads from a high ``start`` down. Yields at most ``limit`` rows, and fetches at most
        ``page_rows`` at a time.
        """
        spec = RangeSpec(
            table, start, end, prefix, reverse, columns, filter, limit, page_rows=page_rows
        )
        return self._rows_of(RangeReading(self._operations, spec))

    async def _rows_of(self, reading: RangeReading) -> AsyncIterator[RowDict]:
        while reading.has_more:
            for row in await self._run(reading.next_page()):
                yield row

    def transaction(self, table: str, partition: Input) -> AsyncLocalTransaction:
        """Return a transaction on the rows whose first key column is ``partition``.

        Use it in an ``async with`` block: the end of the block commits, an exception aborts.
        """
        return AsyncLocalTransaction(self._run, self._operations, table, partition)

    # ---- Tables ----

    async def create_table(
        self,
        table: str,
        key: Mapping[str, KeyType],
        *,
        defined_columns: Mapping[str, ColumnType] | None = None,
        indexes: Sequence[SecondaryIndex] = (),
        max_versions: int = 1,
        time_to_live_s: int | None = None,
        version_deviation_s: int | None = None,
        stream_hours: int = 0,
        if_missing: bool = False,
    ) -> bool:
        """Create a table; return True if it was created.

        ``key`` has 1 to 4 columns with ``int``, ``str``, ``bytes`` or ``AUTO_INCREMENT``. Changes
        are kept for ``stream_hours``. With ``if_missing`` an existing table stays as it is. A
        writer's version may be up to ``version_deviation_s`` from the server's clock.
        """
        request = create_request(
            table,
            key,
            defined=defined_columns or {},
            indexes=indexes,
            max_versions=max_versions,
            time_to_live_s=time_to_live_s,
            version_deviation_s=version_deviation_s,
            stream_hours=stream_hours,
        )
        return await self._run(
            table_operations.create_table(self._operations, request, if_missing=if_missing)
        )

    async def list_tables(self) -> list[str]:
        """Return the names of the instance's tables."""
        return await self._run(table_operations.list_tables())

    async def describe_table(self, table: str) -> TableDescription:
        """Return a table's key, columns, indexes and options."""
        return await self._run(table_operations.describe_table(table))

    async def update_table(
        self,
        table: str,
        *,
        max_versions: int | None = None,
        time_to_live_s: int | None = None,
        stream_hours: int | None = None,
    ) -> None:
        """Change the given options. A life of -1 s means forever; 0 stream hours end the stream."""
        await self._run(
            table_operations.update_table(
                table,
                max_versions=max_versions,
                time_to_live_s=time_to_live_s,
                stream_hours=stream_hours,
            )
        )

    async def delete_table(self, table: str) -> None:
        """Delete a table with its rows, its indexes and its stream."""
        await self._run(table_operations.delete_table(self._operations, table))

    async def create_index(
        self, table: str, index: SecondaryIndex, *, with_existing_rows: bool = True
    ) -> None:
        """Create an index of a table. Read it by its name, like a table."""
        await self._run(
            table_operations.create_index(table, index, with_existing_rows=with_existing_rows)
        )

    async def drop_index(self, table: str, name: str) -> None:
        """Drop an index; the table's rows stay."""
        await self._run(table_operations.drop_index(self._operations, table, name))

    async def add_columns(self, table: str, columns: Mapping[str, ColumnType]) -> None:
        """Define columns. An index can only use defined columns."""
        await self._run(table_operations.add_columns(table, columns))

    async def delete_columns(self, table: str, names: Sequence[str]) -> None:
        """Make defined columns ordinary columns again; their values stay."""
        await self._run(table_operations.delete_columns(table, names))

    # ---- Changes ----

    def changes(
        self,
        table: str,
        *,
        consumer: str | None = None,
        begin: Begin = "oldest",
        columns: Sequence[str] = (),
        filter: Predicate | None = None,
        settings: FollowerSettings | None = None,
    ) -> AsyncChangeFeed:
        """Return an iterator over the changes of a table that has a stream. It does not end.

        Readers of one ``consumer``, in any number of processes, share the shards. Each continues
        where the last reader stopped. Without a consumer no position is kept.
        """
        filter_bytes = b"" if filter is None else filter.encode()
        spec = FeedSpec(table, consumer, begin, tuple(columns), filter_bytes, settings)
        feed = AsyncChangeFeed(self._endpoint, spec, self.tasks)
        self.feeds.add(feed)
        return feed

    async def rewind(self, table: str, *, consumer: str, to: Begin | ShardPlace) -> None:
        """Make a consumer start again from another position, whether its readers run or not."""
        await rewind_consumer(self._endpoint, table, consumer, to)
