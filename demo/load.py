"""Everything that the demo does through the official Python SDK: load, change, read back.

The SDK's client may be shared between threads. Its encoder is Python, so threads overlap waiting,
not encoding. The SDK never retries a write with an unknown outcome. While the tables are loaded and
compared, neither does this module: such a failure ends the demo.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any, TypeVar

import tablestore

from demo.source import Change, Row, Table
from rowtide.deploy.up import Ready

__all__ = ["Loader"]

BATCH_ROWS = 200
"""The protocol's maximum of rows in one BatchWriteRow."""

PAGE_ROWS = 5000
RETRY_S = 0.1
ANSWERED_S_MAX = 60.0
"""A killed worker's rows are available again after a few seconds."""

THREADS = 6

Work = TypeVar("Work")


class Loader:
    """Writes and reads whole tables; calls ``count`` with the number of acknowledged rows."""

    def __init__(self, ready: Ready, count: Callable[[int], None]) -> None:
        self._sdk = tablestore.OTSClient(
            ready.endpoint, ready.access_key_id, ready.access_key_secret, ready.instance
        )
        self._condition = tablestore.Condition(tablestore.RowExistenceExpectation.IGNORE)
        self._count = count

    def load(self, table: Table, rows: Iterable[Row]) -> None:
        """Put every row, by BatchWriteRow."""
        _in_threads(_batches(rows), lambda batch: self._put(table, batch))

    def _put(self, table: Table, rows: list[Row]) -> None:
        items = [
            tablestore.PutRowItem(
                tablestore.Row(_pairs(table, row.key), list(row.columns.items())), self._condition
            )
            for row in rows
        ]
        request = tablestore.BatchWriteRowRequest()
        request.add(tablestore.TableInBatchWriteRowItem(table.name, items))
        failed = self._sdk.batch_write_row(request).get_failed_of_put()
        if failed:
            raise RuntimeError(f"{table.name}: {failed[0].error_code}: {failed[0].error_message}")
        self._count(len(rows))

    def change(self, table: Table, changes: Iterable[Change]) -> None:
        """Correct or delete one row per call, by UpdateRow and DeleteRow."""
        _in_threads(changes, lambda change: self._change(table, change))

    def _change(self, table: Table, change: Change) -> None:
        key = _pairs(table, change.key)
        if change.puts or change.removes:
            columns = {"put": list(change.puts.items()), "delete_all": list(change.removes)}
            self._sdk.update_row(table.name, tablestore.Row(key, columns), self._condition)
        else:
            self._sdk.delete_row(table.name, tablestore.Row(key), self._condition)
        self._count(1)

    def write_step(self, table: Table, write: Row | Change) -> None:
        """Put or change one row, and repeat that until it is acknowledged.

        So a repeated write must not matter: it sets values, or deletes. The SDK repeats by itself
        only what was certainly not applied.
        """
        ends_s = time.monotonic() + ANSWERED_S_MAX
        while True:
            try:
                if isinstance(write, Row):
                    return self._put(table, [write])
                return self._change(table, write)
            except (tablestore.OTSServiceError, tablestore.OTSClientError):
                if time.monotonic() > ends_s:
                    raise
            time.sleep(RETRY_S)

    def rows(self, table: Table) -> Iterator[Row]:
        """Yield every row, by GetRange from INF_MIN to INF_MAX."""
        start: Any = [(name, tablestore.INF_MIN) for name in table.key_names]
        end = [(name, tablestore.INF_MAX) for name in table.key_names]
        while start is not None:
            _, start, found, _ = self._sdk.get_range(
                table.name, tablestore.Direction.FORWARD, start, end, limit=PAGE_ROWS, max_version=1
            )
            for row in found:
                key = tuple(value for _, value in row.primary_key)
                yield Row(key, {name: value for name, value, _ in row.attribute_columns})


def _pairs(table: Table, key: Iterable[int | str]) -> list[tuple[str, int | str]]:
    return list(zip(table.key_names, key, strict=True))


def _batches(rows: Iterable[Row]) -> Iterator[list[Row]]:
    iterator = iter(rows)
    while batch := list(islice(iterator, BATCH_ROWS)):
        yield batch


def _in_threads(work: Iterable[Work], do: Callable[[Work], None]) -> None:
    """Do the work in several threads; the first failure stops all."""
    iterator, taking, failed = iter(work), threading.Lock(), threading.Event()

    def run() -> None:
        try:
            while not failed.is_set():
                with taking:
                    piece = next(iterator, None)
                if piece is None:
                    return
                do(piece)
        except BaseException:
            failed.set()
            raise

    with ThreadPoolExecutor(THREADS) as threads:
        for outcome in [threads.submit(run) for _ in range(THREADS)]:
            outcome.result()
