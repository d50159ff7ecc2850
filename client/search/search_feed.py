"""Feeds an index from the stream of its table.

A new index begins with the rows of the table, and goes on with their changes. Of an update the
stream has only the cells that were set, so the whole row is read from the table. It may be ahead of
the stream: then later changes find a newer row, and are skipped.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping

from rowtide.client.changes.api import ApiSource, CurrentRow
from rowtide.client.changes.current_rows import newest, rows_since
from rowtide.client.changes.leases import ReaderLease
from rowtide.client.changes.worker import Batch, ChangeWorker, FollowerSettings
from rowtide.client.search.search_file import IndexReset, SearchFile, SearchRow
from rowtide.client.search.search_leases import InThread, SearchLeases
from rowtide.core.records.change import DELETE, UPDATE, Change
from rowtide.core.values.cell import Cell
from rowtide.core.values.errors import LogTrimmed, Rejected, first_failure

__all__ = ["SearchFeed"]

logger = logging.getLogger(__name__)

SETTINGS = FollowerSettings(lease_s=10.0, checkpoint_s=0.0)
"""A position is stored after each batch, with its rows."""

EPOCH_LOOK_S = 0.25
"""How often an idle process looks if another one has removed the rows, for a rebuild."""


class SearchFeed:
    """Feeds ``file`` from ``source``. ``in_thread`` runs calls of the file."""

    def __init__(
        self,
        source: ApiSource,
        file: SearchFile,
        in_thread: InThread,
        on_move: Callable[[], None],
    ) -> None:
        self._source = source
        self._file = file
        self._in_thread = in_thread
        self._on_move = on_move
        self._leases: SearchLeases | None = None
        self._is_stopped = False

    @property
    def positions(self) -> Mapping[str, ReaderLease]:
        """How far each shard is read; nothing before they are loaded."""
        return {} if self._leases is None else self._leases.positions

    def stop(self) -> None:
        """Do not begin again: a cancellation may meet the failure of another task."""
        self._is_stopped = True

    async def run(self) -> None:
        """Follow the stream until stopped and cancelled. Raises ``StoreError``."""
        while not self._is_stopped:
            try:
                await self._follow()
            except LogTrimmed as failure:
                # Pages of rows also remove the rows that were deleted meanwhile.
                logger.info("search index: reads the table again: %s", failure)
                await self._in_thread(lambda: self._file.begin_again(empty=False))
            except IndexReset:
                logger.info("search index: begins again")

    async def _follow(self) -> None:
        found: dict[str, ReaderLease] = {}
        await self._in_thread(lambda: found.update(self._file.positions()))
        self._leases = leases = SearchLeases(self._file, found, self._in_thread, self._on_move)
        self._on_move()  # Searches may have waited for the stored positions alone.

        async def handle(batch: Batch) -> None:
            rows = await self._rows_of(batch.changes)
            leases.stage(batch.shard_id, (rows, batch.covers, batch.stamp))

        worker = ChangeWorker(self._source, leases, handle, begin="rows", settings=SETTINGS)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(worker.run(), name="search index changes")
                tasks.create_task(self._watch_epoch(), name="search index epoch")
        except BaseExceptionGroup as group:
            raise first_failure(group) from group

    async def _watch_epoch(self) -> None:
        """Raise ``IndexReset`` when another process has made the index begin again."""
        while True:
            await asyncio.sleep(EPOCH_LOOK_S)
            await self._in_thread(self._file.require_epoch)

    async def _rows_of(self, changes: Iterable[Change]) -> list[SearchRow]:
        """Return the row of each key after its last change."""
        last = {change.key_bytes: change for change in changes}
        updated = {key: change.stamp for key, change in last.items() if change.kind == UPDATE}
        current = await rows_since(self._source, updated)
        return [
            _current_row(change, key, current[key])
            if key in current
            else _row(change, key, change.stamp, None if change.kind == DELETE else change.cells)
            for key, change in last.items()
        ]


def _current_row(change: Change, key: bytes, now: CurrentRow) -> SearchRow:
    if now.too_large:
        raise Rejected(
            "OTSOutOfRowSizeLimit",
            f"The row {dict(change.key)} of table '{change.table.name}' cannot be searched: it "
            f"does not fit one answer of the server.",
        )
    return _row(change, key, now.stamp, now.cells)


def _row(change: Change, key: bytes, stamp: int, cells: Iterable[Cell] | None) -> SearchRow:
    if cells is None:
        return SearchRow(key, stamp, 0, None)
    kept = list(cells)
    newest_ms = max((cell.version_ms or 0 for cell in kept), default=stamp // 1000)
    return SearchRow(key, stamp, newest_ms, dict(change.key) | newest(kept))
