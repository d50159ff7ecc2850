"""The plain form of the client: every call returns when the server has answered.

Any number of threads may share a client. ``operations.py`` has what both forms send and read.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Self, TypeVar

from rowtide.client import table_operations
from rowtide.client.batches import RowWrite, read_rows, write_rows
from rowtide.client.blocking_endpoint import BlockingEndpoint
from rowtide.client.operations import Expect, Operations, Steps, StoredOnce
from rowtide.client.predicates import ColumnPage, Predicate
from rowtide.client.ranges import RangeReading, RangeSpec
from rowtide.client.row_values import Input, KeyInput, RowDict, RowInput, Versioned
from rowtide.client.sync_transaction import LocalTransaction
from rowtide.client.table_requests import (
    ColumnType,
    KeyType,
    SecondaryIndex,
    TableDescription,
    create_request,
)
from rowtide.core.values.errors import StoreError
from rowtide.core.values.limits import Limits

if TYPE_CHECKING:
    # With an event loop; who reads no changes does not wait for its import.
    from rowtide.client.changes.start import Begin, ShardPlace
    from rowtide.client.changes.thread_feed import ChangeFeed
    from rowtide.client.changes.worker import FollowerSettings

__all__ = ["Client"]

_Result = TypeVar("_Result")


class Client:
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
        self._endpoint = BlockingEndpoint(
            endpoint,
            instance=instance,
            access_key_id=access_key_id,
            access_key_secret=access_key_secret,
            timeout_s=timeout_s,
            patience_s=patience_s,
        )
        self._more = staleness_header(max_staleness_ms)
        self._operations = Operations(limits or Limits(), patience_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; a later call opens new ones."""
        self._endpoint.close()

    def _run(self, steps: Steps[_Result]) -> _Result:
        """Send each request that an operation yields; return its result."""
        try:
            exchange = next(steps)
            while True:
                if exchange.after_s:
                    time.sleep(exchange.after_s)
                try:
                    answer = self._endpoint.exchange(exchange.operation, exchange.body, self._more)
                except StoreError as failure:
                    exchange = steps.throw(failure)
                else:
                    exchange = steps.send(answer)
        except StopIteration as ended:
            result: _Result = ended.value
            return result

    # ---- Rows ----

    def put(
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
        return self._run(self._operations.put(table, row, expect, condition))

    def put_once(self, table: str, row: RowInput, *, index: str) -> StoredOnce:
        """Put a row that the server numbers, unless ``index`` has one like it; return its key.

        ``index`` is a local index whose key ends with the AUTO_INCREMENT column. Rows are alike if
        the rest of that key is equal. After a lost answer the request is repeated.
        """
        return self._run(self._operations.put_once(table, row, index))

    def update(
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
        return self._run(
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

    def delete(
        self,
        table: str,
        key: KeyInput,
        *,
        expect: Expect = "anything",
        condition: Predicate | None = None,
    ) -> None:
        """Delete a row. An absent row is not an error."""
        self._run(self._operations.delete(table, key, expect, condition))

    def get(
        self,
        table: str,
        key: KeyInput,
        *,
        columns: Sequence[str] = (),
        filter: Predicate | ColumnPage | None = None,
    ) -> RowDict | None:
        """Return a row or its ``columns``; None if it is absent or the filter drops it."""
        return self._run(self._operations.get(table, key, columns, filter))

    def get_versions(
        self,
        table: str,
        key: KeyInput,
        *,
        columns: Sequence[str] = (),
        max_versions: int | None = None,
    ) -> dict[str, list[Versioned]]:
        """Return the versions of a row's columns, newest first; empty if the row is absent."""
        return self._run(self._operations.get_versions(table, key, columns, max_versions))

    def get_many(
        self,
        table: str,
        keys: Sequence[KeyInput],
        *,
        columns: Sequence[str] = (),
        filter: Predicate | ColumnPage | None = None,
    ) -> list[RowDict | None]:
        """Return a row for each key, or None; see ``get``. Sends as many requests as needed."""
        return self._run(read_rows(self._operations, table, keys, columns, filter))

    def write(self, writes: Sequence[RowWrite], *, atomic: bool = False) -> list[RowDict]:
        """Write up to 200 rows in one request; return their keys.

        Each row succeeds or fails separately. With ``atomic`` either all rows of a table are
        written or none. They must then have the same first key column. Raises ``BatchFailed`` if a
        row failed.
        """
        return self._run(write_rows(self._operations, writes, atomic=atomic))

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
    ) -> Iterator[RowDict]:
        """Yield the rows from ``start`` on and before ``end``, or those that begin with ``prefix``.

        A bound may omit the last key columns, and may contain INF_MIN and INF_MAX. ``reverse``
        reads from a high ``start`` down. Yields at most ``limit`` rows, and fetches at most
        ``page_rows`` at a time.
        """
        spec = RangeSpec(
            table, start, end, prefix, reverse, columns, filter, limit, page_rows=page_rows
        )
        return self._rows_of(RangeReading(self._operations, spec))

    def _rows_of(self, reading: RangeReading) -> Iterator[RowDict]:
        while reading.has_more:
            yield from self._run(reading.next_page())

    def transaction(self, table: str, partition: Input) -> LocalTransaction:
        """Return a transaction on the rows whose first key column is ``partition``.

        Use it in a ``with`` block: the end of the block commits, an exception aborts.
        """
        return LocalTransaction(self._run, self._operations, table, partition)

    # ---- Tables ----

    def create_table(
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
        return self._run(
            table_operations.create_table(self._operations, request, if_missing=if_missing)
        )

    def list_tables(self) -> list[str]:
        """Return the names of the instance's tables."""
        return self._run(table_operations.list_tables())

    def describe_table(self, table: str) -> TableDescription:
        """Return a table's key, columns, indexes and options."""
        return self._run(table_operations.describe_table(table))

    def update_table(
        self,
        table: str,
        *,
        max_versions: int | None = None,
        time_to_live_s: int | None = None,
        stream_hours: int | None = None,
    ) -> None:
        """Change the given options. A life of -1 s means forever; 0 stream hours end the stream."""
        self._run(
            table_operations.update_table(
                table,
                max_versions=max_versions,
                time_to_live_s=time_to_live_s,
                stream_hours=stream_hours,
            )
        )

    def delete_table(self, table: str) -> None:
        """Delete a table with its rows, its indexes and its stream."""
        self._run(table_operations.delete_table(self._operations, table))

    def create_index(
        self, table: str, index: SecondaryIndex, *, with_existing_rows: bool = True
    ) -> None:
        """Create an index of a table. Read it by its name, like a table."""
        self._run(
            table_operations.create_index(table, index, with_existing_rows=with_existing_rows)
        )

    def drop_index(self, table: str, name: str) -> None:
        """Drop an index; the table's rows stay."""
        self._run(table_operations.drop_index(self._operations, table, name))

    def add_columns(self, table: str, columns: Mapping[str, ColumnType]) -> None:
        """Define columns. An index can only use defined columns."""
        self._run(table_operations.add_columns(table, columns))

    def delete_columns(self, table: str, names: Sequence[str]) -> None:
        """Make defined columns ordinary columns again; their values stay."""
        self._run(table_operations.delete_columns(table, names))

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
    ) -> ChangeFeed:
        """Return an iterator over the changes of a table that has a stream. It does not end.

        Readers of one ``consumer``, in any number of processes, share the shards. Each continues
        where the last reader stopped. Without a consumer no position is kept.
        """
        from rowtide.client.changes.feed import FeedSpec
        from rowtide.client.changes.thread_feed import ChangeFeed

        filter_bytes = b"" if filter is None else filter.encode()
        spec = FeedSpec(table, consumer, begin, tuple(columns), filter_bytes, settings)
        return ChangeFeed(self._endpoint.for_a_loop, spec)

    def rewind(self, table: str, *, consumer: str, to: Begin | ShardPlace) -> None:
        """Make a consumer start again from another position, whether its readers run or not."""
        from rowtide.client.changes.feed import rewind_consumer
        from rowtide.client.changes.thread_feed import run_in_thread

        async def rewind_once() -> None:
            async with self._endpoint.for_a_loop() as endpoint:
                await rewind_consumer(endpoint, table, consumer, to)

        run_in_thread(rewind_once)


def staleness_header(max_staleness_ms: int | None) -> Mapping[bytes, bytes]:
    """Return the header that allows a copy to answer reads."""
    if max_staleness_ms is None:
        return {}
    return {b"x-ots-max-staleness-ms": b"%d" % max_staleness_ms}
