"""The embedded search index as a sink. It needs no server.

    sink: {kind: tantivy, language: english}

Batches that wait at the same time become durable with one sync. Searches see them at most
``refresh_ms`` later. A thread of its own does the work, one call at a time. The files are
in the connector's own folder, and the runtime knows which machine has the filled one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from rowtide.connectors.fields import Fields
from rowtide.connectors.registry import ConnectorContext
from rowtide.connectors.rows import Refused, SinkBatch, TableShape
from rowtide.connectors.sinks.columnar.gathering import Gathering
from rowtide.connectors.sinks.sink import HeldRow
from rowtide.connectors.sinks.tantivy.folder import SearchFolder, WritableFolder
from rowtide.connectors.sinks.tantivy.text_index import LANGUAGES
from rowtide.core.values.variant import Scalar

__all__ = ["TantivySink", "make_sink"]

_T = TypeVar("_T")


def make_sink(fields: Fields, surroundings: ConnectorContext) -> TantivySink:
    """Return the sink of the settings ``language`` and ``refresh_ms``."""
    return TantivySink(
        Path(surroundings.folder),
        language=fields.choice("language", LANGUAGES, "none"),
        refresh_s=fields.integer("refresh_ms", 1000, least=0, most=60_000) / 1000,
    )


class TantivySink:
    """One table's index in ``folder``."""

    alone = True

    def __init__(self, folder: Path, *, language: str, refresh_s: float) -> None:
        self._path = folder
        self._language = language
        self._refresh_s = refresh_s
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="search index")
        self._folder: WritableFolder | None = None
        self._read: SearchFolder | None = None
        self._gathering = Gathering(self._commit)
        self._timer: asyncio.TimerHandle | None = None
        self._failure: Exception | None = None

    async def open(self, table: TableShape) -> None:
        """Lock the folder, and index the rows that a crash left out."""
        self._folder = await self._run(lambda: WritableFolder(self._path, table, self._language))

    async def open_to_read(self, _table: TableShape) -> None:
        """Read what another process writes. Raises ``Unavailable`` if there is nothing."""
        self._read = await self._run(lambda: SearchFolder(self._path))

    async def apply(self, batch: SinkBatch) -> Sequence[Refused]:
        """Apply a batch together with other waiting batches. No row is refused."""
        return await self._gathering.apply(batch)

    async def _commit(self, batches: Sequence[SinkBatch]) -> Sequence[Refused]:
        await self._run(lambda: self._apply_all(batches))
        self._refresh_later()
        return []

    async def refresh(self) -> None:
        """Return when searches see everything that was applied."""
        await self._run(self._require_folder().refresh)

    async def close(self) -> None:
        """Make everything visible to searches, and release the folder."""
        if self._timer is not None:
            self._timer.cancel()
        folder, self._folder = self._folder, None
        try:
            if folder is not None:
                await self._run(folder.close)
            if self._read is not None:
                await self._run(self._read.close)
        finally:
            self._thread.shutdown(wait=False)

    def convert_columns(self, columns: Mapping[str, Scalar]) -> Mapping[str, Scalar]:
        """Return the columns: every value is stored as it is."""
        return columns

    async def read_rows(self, begin: bytes, end: bytes, *, limit: int) -> list[HeldRow]:
        """Return stored rows that searches find."""
        folder = self._read or self._require_folder()
        rows = await self._run(lambda: folder.list_rows((begin, end), limit=limit))
        return [
            HeldRow(row.key_bytes, row.stamp, row.document.columns)
            for row in rows
            if row.document is not None
        ]

    def _require_folder(self) -> WritableFolder:
        assert self._folder is not None, "not open"
        return self._folder

    def _apply_all(self, batches: Sequence[SinkBatch]) -> None:
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        self._require_folder().apply(batches)
        if not self._refresh_s:
            self._require_folder().refresh()

    def _refresh_later(self) -> None:
        if self._refresh_s and self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._refresh_s, self._refresh_now)

    def _refresh_now(self) -> None:
        self._timer = None
        self._thread.submit(self._refresh_in_thread)

    def _refresh_in_thread(self) -> None:
        try:
            if self._folder is not None:
                self._folder.refresh()
        except Exception as error:  # noqa: BLE001 - the next batch raises it.
            self._failure = error

    async def _run(self, work: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)
