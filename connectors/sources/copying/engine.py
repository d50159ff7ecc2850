"""Copies tables in chunks while it follows the log, in one order for every kind of
source.

Chunks and the log become one order. A chunk has a moment M:

1. Read a chunk and its M, which includes all that was written so far.
2. Write all changes of the log that M includes, and none after them.
3. Write the chunk's rows. Continue with the next chunk.

So rowtide never gets an older state of a row after a newer one, and no change between two
chunks is lost. Nothing after M may be written before the chunk, because the chunk lacks
it. Positions rise over everything that is written. The checkpoint is stored after what it
names is durable. So a crash repeats nothing that a shard has, except the rows of one
chunk, which are read again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic

from rowtide.connectors.rows import Key, SourceRow
from rowtide.connectors.sources.copying.backlog import Backlog
from rowtide.connectors.sources.copying.checkpoint_keeper import CheckpointKeeper
from rowtide.connectors.sources.copying.seam import (
    CopyChunk,
    KeysPresent,
    M,
    Piece,
    Row,
    Seam,
    Server,
    Table,
    TableUnread,
)
from rowtide.connectors.sources.errands import Errand, Errands
from rowtide.connectors.sources.progress import find_incomplete
from rowtide.connectors.sources.source import Behind, SourceTarget

__all__ = ["CopyEngine"]

logger = logging.getLogger(__name__)

BATCH_ROWS = 4000
FILL_S = 1.0
RETRY_S = 0.05
"""Pause before a read is repeated that came too early."""
KEYS = 1000
"""Keys of rowtide that are searched at the source at once."""


@dataclass(slots=True)
class _Ahead(Generic[M, Row]):
    """A chunk that is read while the one before it is written."""

    table: str
    version: int
    reading: asyncio.Task[CopyChunk[M, Row] | TableUnread | None]


class CopyEngine(Generic[Table, Piece, M, Row, Server]):
    """One life of a source, from a checkpoint on, over open connections.

    ``tables`` are the followed ones, by full name. The seam's ``log`` changes them. One
    task runs the engine, decides, and writes everything.
    """

    def __init__(
        self,
        target: SourceTarget,
        tables: Mapping[str, Table],
        seam: Seam[Table, Piece, M, Row, Server],
        *,
        backlog: Backlog[Piece],
        keeper: CheckpointKeeper,
    ) -> None:
        self._target = target
        self._tables = tables
        self._log, self._reader, self._rows = seam.log, seam.reader, seam.rows
        self._backlog = backlog
        self._keeper = keeper
        self._ahead: _Ahead[M, Row] | None = None
        self._stopping = False
        self.errands = Errands(backlog.wake)

    def stop(self) -> None:
        """Make ``run`` end soon."""
        self._stopping = True
        self._backlog.wake()

    async def behind(self, server: Server) -> Behind:
        """Return how far rowtide is behind. ``server`` is a session for this call only."""
        distance = await self._log.measure(server)
        seconds = self._log.lag.seconds(distance.at, distance.end, distance.now_ms)
        copying = sum(not table.whole for table in self._keeper.progress.values())
        return Behind(seconds, distance.bytes, copying)

    async def run(self) -> None:
        """Copy and follow until ``stop``, or until the log ends this life."""
        try:
            await self._copy_and_follow()
        finally:
            self.errands.end()
        await self._keeper.keep(at_once=True)

    async def _copy_and_follow(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            while not self._stopping and await self._log.look_around():
                await self._advance(tasks)
                await self._keeper.keep(at_once=False)
            if self._ahead is not None:
                self._ahead.reading.cancel()

    async def _advance(self, tasks: asyncio.TaskGroup) -> None:
        name = find_incomplete(self._keeper.progress, self._tables)
        if not self._log.is_ready:
            await self._follow_freely(FILL_S)
        elif (errand := self.errands.first) is not None:
            await self._run(errand)
        elif name is not None:
            await self._approach(self._tables[name], tasks)
        else:
            self._reader.end_copying()
            await self._follow_freely(FILL_S)

    async def _run(self, errand: Errand) -> None:
        """Copy one row again, after what its moment includes."""
        table = next((it for it in self._tables.values() if it.target == errand.table), None)
        key = errand.key_of(table.key_names) if table is not None else None
        if table is None or key is None:
            self.errands.refuse()
            return
        await self._drop_ahead()
        version = self._log.version(table.full_name)
        try:
            await self._reader.begin_copying()
            chunk = await self._reader.read_row(table, key)
        except TableUnread as error:
            await self._log.resolve(table, error, self._follow)
            return
        if chunk is None:
            await self._wait()
        elif await self._is_due(table, chunk.moment, version):
            row = self._rows.row_of(table, key, chunk)
            if row is not None:  # Otherwise it is read again.
                await errand.write(row)
                self.errands.finish()

    async def _approach(self, table: Table, tasks: asyncio.TaskGroup) -> None:
        """Do the next step of a table's copy."""
        progress = self._keeper.progress[table.full_name]
        try:
            await self._reader.begin_copying()
            if progress.sweep and (progress.copied or self._reader.sweeps_first):
                await self._sweep(table)
            else:
                await self._copy(table, tasks)
        except TableUnread as error:
            await self._log.resolve(table, error, self._follow)

    async def _copy(self, table: Table, tasks: asyncio.TaskGroup) -> None:
        """Write the next chunk of a table. The one after it is read meanwhile."""
        name = table.full_name
        progress, version = self._keeper.progress[name], self._log.version(name)
        chunk = await self._next_chunk(table, progress.cursor)
        if chunk is None:
            await self._wait()
            return
        if not await self._is_due(table, chunk.moment, version):
            return
        if chunk.cursor is not None:
            later = self._read_next(table, chunk.cursor, len(chunk.rows))
            reading = tasks.create_task(later, name=f"read[{name}]")
            self._ahead = _Ahead(name, version, reading)
        await self._write(self._rows.rows_of(table, chunk))
        self._reader.note_chunk(table, chunk, is_first=progress.cursor is None)
        progress.cursor = chunk.cursor
        if chunk.cursor is None:
            progress.copied = True
            if progress.whole:
                self._reader.note_whole(table)
        self._keeper.note_change()
        await self._keeper.keep(at_once=chunk.cursor is None)

    async def _next_chunk(self, table: Table, cursor: list[str] | None) -> CopyChunk[M, Row] | None:
        """Return the chunk that was read ahead, or read one. Raises TableUnread."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            chunk = await ahead.reading
            name = table.full_name
            if (ahead.table, ahead.version) == (name, self._log.version(name)):
                if isinstance(chunk, TableUnread):
                    raise chunk
                return chunk
        return await self._reader.read_chunk(table, cursor)

    async def _read_next(
        self, table: Table, cursor: list[str], rows: int
    ) -> CopyChunk[M, Row] | TableUnread | None:
        try:
            return await self._reader.read_next(table, cursor, rows)
        except TableUnread as error:
            return error  # If it were raised here, it would end the other tasks.

    async def _drop_ahead(self) -> None:
        """Drop the chunk that was read ahead: it would be older than what is written next."""
        if self._ahead is not None:
            await asyncio.wait([self._ahead.reading])
            self._ahead = None

    async def _sweep(self, table: Table) -> None:
        """Delete the rows of a table that the source lacks, one page of keys at a time."""
        name = table.full_name
        progress, version = self._keeper.progress[name], self._log.version(name)
        after: Key | None = None
        removed = 0
        while keys := await self._target.keys(table.target, after, limit=KEYS):
            present = await self._present(table, keys, version)
            if present is None:
                return
            gone = [key for key in keys if key not in present.keys]
            deletes = self._rows.deletes_of(table, gone, present.moment)
            await self._write(deletes)
            removed += len(deletes)
            after = keys[-1]
        progress.sweep = False
        if progress.whole:
            self._reader.note_whole(table)
        self._keeper.note_change()
        logger.info("deleted %s rows of %s that the source no longer has", removed, name)
        await self._keeper.keep(at_once=True)

    async def _present(
        self, table: Table, keys: Sequence[Key], version: int
    ) -> KeysPresent[M] | None:
        """Return which keys exist, once it is their turn. None if the sweep must stop."""
        while not self._stopping and self._log.version(table.full_name) == version:
            present = await self._reader.read_keys(table, keys)
            if present is None:
                await self._wait()
            elif await self._is_due(table, present.moment, version):
                return present
        return None

    async def _is_due(self, table: Table, moment: M, version: int) -> bool:
        """Follow the log up to a moment. True if what was read at it can be written now."""
        self._reader.note_read()
        is_reached = await self._follow(moment)
        return is_reached and moment.is_exact and self._log.version(table.full_name) == version

    async def _follow(self, moment: M) -> bool:
        """Write what a moment includes. False if the moment is not reached."""
        while not self._stopping and not self._log.is_beyond(moment):
            await self._write_pieces(moment)
            if self._backlog.pieces or self._log.is_at(moment):
                self._log.note_arrival(moment)
                return True
            await self._backlog.fill(FILL_S)
            await self._keeper.keep(at_once=False)
        return False

    async def _wait(self) -> None:
        """Follow the log until a read may succeed."""
        await self._reader.note_too_early()
        await self._follow_freely(RETRY_S)
        await self._keeper.keep(at_once=False)

    async def _follow_freely(self, timeout_s: float) -> None:
        await self._backlog.fill(timeout_s)
        await self._write_pieces(None)

    async def _write_pieces(self, moment: M | None) -> None:
        """Write what was read of the log, up to a moment if one is given."""
        log, pieces = self._log, self._backlog.pieces
        rows: list[SourceRow] = []
        self._backlog.is_writing = True
        while pieces and (moment is None or moment.includes(pieces[0])):
            piece = pieces.popleft()
            if moment is not None:
                moment.note(piece)
            rows += log.rows_of(piece)
            if log.has_event(piece):
                rows = await log.handle_event(piece, rows)
            if len(rows) >= BATCH_ROWS:
                await self._write(rows)
                rows = []
                log.note_durable()
                await self._keeper.keep(at_once=False)
        await self._write(rows)
        log.note_durable()
        self._backlog.is_writing = False

    async def _write(self, rows: Sequence[SourceRow]) -> None:
        if rows:
            await self._target.write(rows)
