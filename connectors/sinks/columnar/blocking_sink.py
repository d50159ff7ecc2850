"""A sink whose target is a blocking library: all calls are made in one thread.

A kind of sink adds how rows are stored (``BlockingRows``), and what to do after commits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

from rowtide.connectors.declared_types import (
    DeclaredTypes,
    normal_columns,
    refuse_key_columns,
)
from rowtide.connectors.rows import Refused, SinkBatch, TableShape
from rowtide.connectors.sinks.columnar.gathering import Gathering, Pace
from rowtide.connectors.sinks.columnar.layout import NO_TYPES
from rowtide.connectors.sinks.sink import HeldRow
from rowtide.core.values.variant import Scalar

__all__ = ["BlockingRows", "BlockingSink"]

_T = TypeVar("_T")


class BlockingRows(Protocol):
    """One table's rows at one place. All methods run in one thread and may be repeated."""

    def open(self) -> None: ...

    def commit(self, batches: Sequence[SinkBatch]) -> list[Refused]: ...

    def read_rows(self, begin: bytes, end: bytes, limit: int) -> list[HeldRow]: ...

    def close(self) -> None: ...


class BlockingSink:
    """The sink of the rows that ``make`` returns for a table.

    ``after`` runs in the thread after each commit, before the callers get the result.
    ``types`` are the declared types to which ``make``'s rows convert attributes.
    """

    def __init__(
        self,
        make: Callable[[TableShape], BlockingRows],
        pace: Pace,
        after: Callable[[], None] = lambda: None,
        *,
        types: DeclaredTypes = NO_TYPES,
    ) -> None:
        self._make = make
        self._after = after
        self._types = types
        self._gathering = Gathering(self._commit, pace)
        self._rows: BlockingRows | None = None
        self._thread: ThreadPoolExecutor | None = None

    async def open(self, table: TableShape) -> None:
        """Create what is missing at the target."""
        await self.close()
        refuse_key_columns(self._types, table)
        rows = self._rows = self._make(table)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=type(rows).__name__)
        await self._in_thread(rows.open)

    async def apply(self, batch: SinkBatch) -> Sequence[Refused]:
        """Commit a batch together with other waiting batches."""
        return await self._gathering.apply(batch)

    def convert_columns(self, columns: Mapping[str, Scalar]) -> Mapping[str, Scalar]:
        """Return the columns, with values of declared types in their normal form."""
        return normal_columns(self._types, columns)

    async def read_rows(self, begin: bytes, end: bytes, *, limit: int) -> list[HeldRow]:
        """Return living rows in key order."""
        rows = self._require_rows()
        found = await self._in_thread(lambda: rows.read_rows(begin, end, limit))
        # Values older than the setting may have other kinds and any form.
        return [row._replace(columns=normal_columns(self._types, row.columns)) for row in found]

    async def close(self) -> None:
        """Finish the running commit and release the target."""
        thread, self._thread = self._thread, None
        if thread is not None:
            try:
                await asyncio.get_running_loop().run_in_executor(thread, self._require_rows().close)
            finally:
                thread.shutdown(wait=False)

    async def _commit(self, batches: Sequence[SinkBatch]) -> Sequence[Refused]:
        rows = self._require_rows()

        def commit() -> list[Refused]:
            refused = rows.commit(batches)
            self._after()
            return refused

        return await self._in_thread(commit)

    async def _in_thread(self, call: Callable[[], _T]) -> _T:
        assert self._thread is not None, "open comes first"
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)

    def _submit(self, call: Callable[[], None]) -> None:
        """Call something in the thread without waiting, unless the thread is closed."""
        if self._thread is not None:
            self._thread.submit(call)

    def _require_rows(self) -> BlockingRows:
        assert self._rows is not None, "open comes first"
        return self._rows
