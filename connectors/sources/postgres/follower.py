"""Follows the stream for the copy engine: what its pieces do to tables, and how far it is written.

A chunk's moment is the set of transactions that its read saw (``reader.py``). Positions rise by
the LSN of commits, and the checkpoint names an LSN up to which all is durable (``position.py``).
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
"""Of log without a change of ours, after which a mark lets the slot go on."""


class ConfirmingKeeper(CheckpointKeeper):
    """Confirms to the server what the stored checkpoint names."""

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
    """What a follower works with: a session, the stream, and what others see of both."""

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

    The checkpoint and what was found at the first look are its own from here on. Nothing is
    copied before the stream has passed ``begin``: an LSN above all that an earlier life may have
    made.
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
        """Tables whose rows could not be read since the last look of the clock's."""
        self._left_out = _left_out(found)
        self._reached = self._time_ms = 0
        self._restarts = 0
        self._looked_s = time.monotonic()

    @property
    def is_ready(self) -> bool:
        """See ``LogFollower``."""
        return self._parts.rows.last_lsn >= self._begin

    def version(self, table: str) -> int:
        """See ``LogFollower``. What was read of any table is void once one has changed."""
        del table
        return self._restarts

    def rows_of(self, piece: StreamPiece) -> Sequence[SourceRow]:
        """See ``LogFollower``. Returns none of tables that can't be followed."""
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
        assert piece.event is not None, "it is called only for an event"
        return await self._handled(piece, piece.event, rows)

    def note_durable(self) -> None:
        """See ``LogFollower``."""
        if self._reached > self._checkpoint.lsn:
            self._checkpoint.lsn = self._reached
            self._parts.keeper.note_change()
        if self._time_ms:
            self.lag.written(self._time_ms)
            self._time_ms = 0

    def note_reached(self, moment: StreamMoment) -> None:
        """See ``LogFollower``."""
        del moment
        self._parts.written.forget_noted()

    async def look_around(self) -> bool:
        """See ``LogFollower``: look at the catalog, and let the slot of an idle table go on."""
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
        """See ``LogFollower``. The catalog says what changed, without the stream."""
        del follow
        await self._look_again(table, why)

    async def measure(self, server: PostgresServer) -> Distance:
        """See ``LogFollower``."""
        now_ms, end = await asyncio.to_thread(server.flushed)
        at = self._written_lsn()
        return Distance((at,), (end,), now_ms, max(0, end - at))

    def _written_lsn(self) -> int:
        """Return the LSN up to which nothing of ours is left to write."""
        passed = self._parts.stream.passed
        if not self._parts.backlog.is_empty:
            return self._checkpoint.lsn
        return max(self._checkpoint.lsn, passed)

    async def _look_again(self, table: PostgresTable, error: TableUnread) -> None:
        """Look at the tables, as one of them could not be read."""
        logger.info("%s", error)
        if isinstance(error, TableRefused):
            self._refused[table.full_name] = UnfitPostgresTable(
                table.full_name,
                table.target,
                f"The server does not let it be read: {error}",
                "It is tried again every few seconds.",
            )
        await self._look()

    async def _handled(
        self, piece: StreamPiece, event: Event, rows: list[SourceRow]
    ) -> list[SourceRow]:
        """Do what an event after rows asks for; return those that are still to be written."""
        if isinstance(event, Incomplete):
            if event.table.target not in self._left_out:
                rows[-1] = await self._completed(rows[-1], event, piece.xid)
            return rows
        await self._write(rows)
        if isinstance(event, Altered):
            await self._altered(event.table)
        elif isinstance(event, Lost):
            await self._lose(event.full_name)
        elif isinstance(event, Joined):
            progress = self._checkpoint.tables.get(event.full_name)
            if progress is not None and str(event.partition) not in progress.parts:
                # It may go with its rows before a look finds it.
                await self._lose(event.full_name)
        else:
            for table in event.tables:
                if table.target not in self._left_out:
                    await self._empty(table, event)
        return []

    async def _lose(self, full_name: str) -> None:
        """Copy a table from the beginning: what was copied lacks changes from here on."""
        self._checkpoint.tables.pop(full_name, None)
        await self._look()

    async def _altered(self, table: PostgresTable) -> None:
        """Look at a table that changed, and have the rows that follow written or left out."""
        refused = False
        try:
            await self._target.ensure_table(table.shape)
        except Rejected:
            refused = True
        await self._look()
        if refused and table.full_name not in self._tables:
            self._left_out.add(table.target)

    async def _completed(self, row: SourceRow, event: Incomplete, xid: int) -> SourceRow:
        """Return a row with what the server did not send: as it is now, if it still is.

        Where it is newer than the row, the stream has the change that made it; where the row is
        gone or moved on, that too.
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
            # The stream will say so, and then the table is looked at.
            logger.info("%s", error)
            return row

    async def _empty(self, table: PostgresTable, event: Emptied) -> None:
        """Delete all rows of a table. Those made after the statement have higher positions."""
        logger.info("%s is emptied", table.full_name)
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
        """See which tables there are, and whether they are what they were."""
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
        self._left_out = _left_out(found)
        changed = note_tables(self._checkpoint, found, parts.report.unfit)
        parts.report.note(self._tables, found.unfit)
        if changed:
            self._restarts += 1
            parts.shared.copied.difference_update(changed)
            parts.written.floor = None
            parts.keeper.note_change()


def _left_out(found: Look) -> set[str]:
    """Return the tables of rowtide to which nothing is to be written."""
    followed = {table.target for table in found.tables.values()}
    return {fault.target for fault in found.unfit.values()} - followed
