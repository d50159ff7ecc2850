"""Follows the stream for the copy engine: the effects of its pieces, and how far it is
written.

A chunk's moment is the set of transactions that its read saw (``reader.py``). Positions
rise by the LSN of commits. The checkpoint names an LSN up to which all is durable
(``position.py``).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from rowtide.connectors.rows import Key, SourceRow
from rowtide.connectors.sources.copying.backlog import Backlog
from rowtide.connectors.sources.copying.checkpoint_keeper import CheckpointKeeper
from rowtide.connectors.sources.copying.engine import KEYS, RETRY_S
from rowtide.connectors.sources.copying.seam import Distance, LogFollower, TableUnread
from rowtide.connectors.sources.postgres.chunks import (
    Chunks,
    PostgresTableChanged,
    Required,
    TableRefused,
)
from rowtide.connectors.sources.postgres.look import Look, look, make_targets, note_tables
from rowtide.connectors.sources.postgres.position import PostgresCheckpoint
from rowtide.connectors.sources.postgres.reader import (
    StreamMoment,
    StreamRows,
    WrittenTransactions,
)
from rowtide.connectors.sources.postgres.report import TableReport
from rowtide.connectors.sources.postgres.server import PostgresServer
from rowtide.connectors.sources.postgres.stream import (
    Altered,
    Emptied,
    Event,
    Incomplete,
    Joined,
    Lost,
    ReplicationStream,
    Shared,
    StreamPiece,
)
from rowtide.connectors.sources.postgres.tables import PostgresTable
from rowtide.connectors.sources.postgres.unfit import UnfitPostgresTable
from rowtide.connectors.sources.source import SourceTarget
from rowtide.core.values.errors import Rejected

__all__ = ["ConfirmingKeeper", "Parts", "StreamFollower"]

logger = logging.getLogger(__name__)

LOOK_S = 10.0

BEHIND_BYTES = 1024 * 1024
"""Bytes of log without a change of ours, after which a mark advances the slot."""


class ConfirmingKeeper(CheckpointKeeper):
    """Confirms the stored checkpoint's LSN to the server."""

    def __init__(
        self, target: SourceTarget, checkpoint: PostgresCheckpoint, stream: ReplicationStream
    ) -> None:
        super().__init__(target, checkpoint)
        self._named = checkpoint
        self._stream = stream

    async def store(self) -> None:
        """Store the checkpoint."""
        lsn = self._named.lsn
        await super().store()
        self._stream.confirm(lsn)


class Parts(NamedTuple):
    """What a follower works with: a session, the stream, and the state shared with others."""

    server: PostgresServer
    stream: ReplicationStream
    shared: Shared
    report: TableReport
    backlog: Backlog[StreamPiece]
    keeper: CheckpointKeeper
    written: WrittenTransactions
    rows: StreamRows


class StreamFollower(LogFollower[PostgresTable, StreamPiece, StreamMoment, PostgresServer]):
    """See ``LogFollower``.

    The checkpoint and the first look's result belong to it from now on. Nothing is copied
    before the stream has passed ``begin``: an LSN above all writes of an earlier life.
    """

    def __init__(
        self,
        target: SourceTarget,
        checkpoint: PostgresCheckpoint,
        found: Look,
        parts: Parts,
        *,
        begin: int,
    ) -> None:
        super().__init__()
        self._target = target
        self._checkpoint = checkpoint
        self._tables = found.tables
        self._parts = parts
        self._begin = begin
        self._refused: dict[str, UnfitPostgresTable] = {}
        """Tables whose rows could not be read since the last periodic look."""
        self._left_out = _list_omissions(found)
        self._reached = self._time_ms = 0
        self._restarts = 0
        self._looked_s = time.monotonic()

    @property
    def is_ready(self) -> bool:
        """See ``LogFollower``."""
        return self._parts.rows.last_lsn >= self._begin

    def version(self, table: str) -> int:
        """See ``LogFollower``. If one table changes, reads of all tables become invalid."""
        del table
        return self._restarts

    def rows_of(self, piece: StreamPiece) -> Sequence[SourceRow]:
        """See ``LogFollower``. Returns no rows of tables that can't be followed."""
        self._parts.rows.last_lsn = piece.lsn
        self._parts.written.note(piece.xid)
        self._reached, self._time_ms = piece.end or self._reached, piece.time_ms
        if not self._left_out:
            return piece.rows
        return [row for row in piece.rows if row.table not in self._left_out]

    def has_event(self, piece: StreamPiece) -> bool:
        """See ``LogFollower``."""
        return piece.event is not None

    async def handle_event(self, piece: StreamPiece, rows: list[SourceRow]) -> list[SourceRow]:
        """See ``LogFollower``. An event comes after the piece's rows."""
        assert piece.event is not None, "the piece has an event"
        return await self._apply_event(piece, piece.event, rows)

    def note_durable(self) -> None:
        """See ``LogFollower``."""
        if self._reached > self._checkpoint.lsn:
            self._checkpoint.lsn = self._reached
            self._parts.keeper.note_change()
        if self._time_ms:
            self.lag.note_written(self._time_ms)
            self._time_ms = 0

    def note_arrival(self, moment: StreamMoment) -> None:
        """See ``LogFollower``."""
        del moment
        self._parts.written.forget_notes()

    async def look_around(self) -> bool:
        """See ``LogFollower``. Reads the catalog, and advances the slot of an idle table."""
        if time.monotonic() - self._looked_s >= LOOK_S:
            self._refused.clear()
            await self._look()
            server = self._parts.server
            if await asyncio.to_thread(server.end) - self._checkpoint.lsn > BEHIND_BYTES:
                await asyncio.to_thread(server.mark)
        return True

    async def resolve(
        self,
        table: PostgresTable,
        why: TableUnread,
        follow: Callable[[StreamMoment], Awaitable[bool]],
    ) -> None:
        """See ``LogFollower``. The catalog shows what changed, without the stream."""
        del follow
        await self._look_again(table, why)

    async def measure(self, server: PostgresServer) -> Distance:
        """See ``LogFollower``."""
        now_ms, end = await asyncio.to_thread(server.read_flush)
        at = self._find_written_lsn()
        return Distance((at,), (end,), now_ms, max(0, end - at))

    def _find_written_lsn(self) -> int:
        """Return the LSN up to which everything of ours is written."""
        passed = self._parts.stream.passed
        if not self._parts.backlog.is_empty:
            return self._checkpoint.lsn
        return max(self._checkpoint.lsn, passed)

    async def _look_again(self, table: PostgresTable, error: TableUnread) -> None:
        """Read the catalog because a table could not be read."""
        logger.info("%s", error)
        if isinstance(error, TableRefused):
            self._refused[table.full_name] = UnfitPostgresTable(
                table.full_name,
                table.target,
                f"The server refuses to read it: {error}",
                "It is tried again every few seconds.",
            )
        await self._look()

    async def _apply_event(
        self, piece: StreamPiece, event: Event, rows: list[SourceRow]
    ) -> list[SourceRow]:
        """Handle an event after rows. Return the rows that are still to be written."""
        if isinstance(event, Incomplete):
            if event.table.target not in self._left_out:
                rows[-1] = await self._complete(rows[-1], event, piece.xid)
            return rows
        await self._write(rows)
        if isinstance(event, Altered):
            await self._check_table(event.table)
        elif isinstance(event, Lost):
            await self._lose(event.full_name)
        elif isinstance(event, Joined):
            progress = self._checkpoint.tables.get(event.full_name)
            if progress is not None and str(event.partition) not in progress.parts:
                # The partition may be dropped with its rows before a look finds it.
                await self._lose(event.full_name)
        else:
            for table in event.tables:
                if table.target not in self._left_out:
                    await self._empty(table, event)
        return []

    async def _lose(self, full_name: str) -> None:
        """Copy a table again from the start: changes from here on are missing."""
        self._checkpoint.tables.pop(full_name, None)
        await self._look()

    async def _check_table(self, table: PostgresTable) -> None:
        """Read a changed table. Decide whether its next rows are written or left out."""
        refused = False
        try:
            await self._target.ensure_table(table.shape)
        except Rejected:
            refused = True
        await self._look()
        if refused and table.full_name not in self._tables:
            self._left_out.add(table.target)

    async def _complete(self, row: SourceRow, event: Incomplete, xid: int) -> SourceRow:
        """Return a row with the columns that the server did not send, read from the table
        now.

        If the table's row is newer, deleted or moved, the stream has that change too.
        """
        chunks, required = Chunks(self._parts.server), Required(0, (xid,))
        try:
            while True:
                lacking = await asyncio.to_thread(
                    chunks.columns_of, event.table, row.key, event.missing, required
                )
                if lacking is not None:
                    return row._replace(columns={**(row.columns or {}), **lacking})
                await asyncio.sleep(RETRY_S)
        except TableRefused as error:
            await self._look_again(event.table, error)
            return row
        except PostgresTableChanged as error:
            # The stream will have this change, and then the table is read.
            logger.info("%s", error)
            return row

    async def _empty(self, table: PostgresTable, event: Emptied) -> None:
        """Delete all rows of a table. Rows after the statement have higher positions."""
        logger.info("%s was truncated", table.full_name)
        after: Key | None = None
        while keys := await self._target.keys(table.target, after, limit=KEYS):
            deletes = self._parts.rows.deletes_at(
                table, keys, event.lsn, event.change, time_ms=event.time_ms
            )
            await self._write(deletes)
            after = keys[-1]

    async def _write(self, rows: list[SourceRow]) -> None:
        if rows:
            await self._target.write(rows)

    async def _look(self) -> None:
        """Read which tables exist, and whether they changed."""
        self._looked_s = time.monotonic()
        parts = self._parts
        found = await asyncio.to_thread(
            look,
            parts.server,
            parts.shared.owners,
            self._checkpoint.partitions,
            publication=self._checkpoint.publication,
        )
        for fault in self._refused.values():
            if fault.full_name in found.tables:
                found.refuse(fault)
        await make_targets(self._target, found)
        self._tables.clear()
        self._tables.update(found.tables)
        self._left_out = _list_omissions(found)
        changed = note_tables(self._checkpoint, found, parts.report.unfit)
        parts.report.note(self._tables, found.unfit)
        if changed:
            self._restarts += 1
            parts.shared.copied.difference_update(changed)
            parts.written.floor = None
            parts.keeper.note_change()


def _list_omissions(found: Look) -> set[str]:
    """Return the tables of rowtide to which nothing may be written."""
    followed = {table.target for table in found.tables.values()}
    return {fault.target for fault in found.unfit.values()} - followed
