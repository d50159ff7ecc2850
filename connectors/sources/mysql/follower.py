"""Follows the binlog for the copy engine: the effects of its pieces, and how far it is
written.

A chunk's moment is a place of the binlog (``reader.py``). Positions rise by place. The
checkpoint names a place up to which all is durable (``position.py``).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence

from rowtide.connectors.rows import Key, SourceRow
from rowtide.connectors.sources.copying.checkpoint_keeper import CheckpointKeeper
from rowtide.connectors.sources.copying.engine import KEYS
from rowtide.connectors.sources.copying.seam import Distance, LogFollower, TableUnread
from rowtide.connectors.sources.mysql.binlog import BinlogPiece
from rowtide.connectors.sources.mysql.ddl import Meaning, What
from rowtide.connectors.sources.mysql.gtids import Gtids, parse_gtids
from rowtide.connectors.sources.mysql.position import MySqlCheckpoint, Place
from rowtide.connectors.sources.mysql.reader import BinlogMoment, SnapshotRows, SnapshotSession
from rowtide.connectors.sources.mysql.schema import MySqlColumn, MySqlTable
from rowtide.connectors.sources.mysql.server import MySqlServer
from rowtide.connectors.sources.mysql.snapshot import TableUnreadable
from rowtide.connectors.sources.mysql.states import TableStates
from rowtide.connectors.sources.mysql.tables import UnfitMySqlTable
from rowtide.connectors.sources.mysql.window import ChunkWindow
from rowtide.connectors.sources.progress import TableProgress, keeps_values
from rowtide.connectors.sources.source import SourceTarget
from rowtide.core.values.errors import Unavailable

__all__ = ["BinlogFollower"]

logger = logging.getLogger(__name__)

_COPIES = {What.RESHAPED, What.REPLACED, What.UNCLEAR}
"""Changes after which a table is copied again."""


class BinlogFollower(LogFollower[MySqlTable, BinlogPiece, BinlogMoment, MySqlServer]):
    """See ``LogFollower``.

    ``tables`` and ``checkpoint`` belong to it from now on. ``copied`` is shared with the
    thread that reads the binlog: updates of its tables are merges. A life also ends when
    a failed table can be followed. The next life follows it from the checkpoint on.
    """

    def __init__(
        self,
        target: SourceTarget,
        checkpoint: MySqlCheckpoint,
        tables: dict[str, MySqlTable],
        *,
        session: SnapshotSession,
        keeper: CheckpointKeeper,
        copied: set[str],
        states: TableStates,
    ) -> None:
        super().__init__()
        self._target = target
        self._checkpoint = checkpoint
        self._tables = tables
        self._session = session
        self._rows = SnapshotRows(session.snapshots)
        self._keeper = keeper
        self._copied = copied
        self._states = states
        self._begun = Place(0, 0)
        """Where the last transaction with a written row or change begins."""
        self._open = ""
        """Its GTID while more of it may follow."""
        self._reached: BinlogPiece | None = None
        """The last end of a transaction until it is durable."""
        self._gtids: list[str] = []
        """GTIDs of transactions that ended and are not durable yet."""
        self._changes: dict[str, int] = {}

    def version(self, table: str) -> int:
        """See ``LogFollower``."""
        return self._changes.get(table, 0)

    def rows_of(self, piece: BinlogPiece) -> Sequence[SourceRow]:
        """See ``LogFollower``."""
        if piece.rows or piece.change:
            self._begun = piece.begin
        self._open = piece.gtid
        if piece.end is not None:
            self._reached, self._open = piece, ""
            if piece.gtid:
                self._gtids.append(piece.gtid)
        return self._states.filter_rows(piece.rows)

    def has_event(self, piece: BinlogPiece) -> bool:
        """See ``LogFollower``."""
        return piece.change is not None

    async def handle_event(self, piece: BinlogPiece, rows: list[SourceRow]) -> list[SourceRow]:
        """See ``LogFollower``. A piece with a change of tables has no rows."""
        await self._write(rows)
        await self._change(piece)
        return []

    def note_durable(self) -> None:
        """See ``LogFollower``."""
        reached, self._reached = self._reached, None
        if reached is not None and reached.end is not None:
            self._checkpoint.place, self._checkpoint.looks = reached.end, dict(reached.looks)
            if reached.time_ms:
                self.lag.note_written(reached.time_ms)
            for gtid in self._gtids:
                self._checkpoint.gtids.add(gtid)
            self._gtids.clear()
            self._keeper.note_change()

    def is_beyond(self, moment: BinlogMoment) -> bool:
        """See ``LogFollower``. A server sends transactions before it commits them."""
        return self._begun >= moment.place

    def is_at(self, moment: BinlogMoment) -> bool:
        """See ``LogFollower``."""
        return self._checkpoint.place >= moment.place

    async def look_around(self) -> bool:
        """See ``LogFollower``. Checks the failed tables again."""
        if not self._states.are_due:
            return True
        found = await self._session.run(self._session.snapshots.tables)
        return not await self._states.is_one_fit(found, self._target)

    async def resolve(
        self,
        table: MySqlTable,
        why: TableUnread,
        follow: Callable[[BinlogMoment], Awaitable[bool]],
    ) -> None:
        """See ``LogFollower``. If a table has changed, the binlog has the change."""
        name = table.full_name
        if isinstance(why, TableUnreadable):
            self._fail(self._states.unreadable(table, str(why)))
            return
        version = self.version(name)
        place = await self._session.run(self._session.snapshots.now)
        if (
            await follow(BinlogMoment(place, ChunkWindow("", None)))
            and self.version(name) == version
        ):
            raise Unavailable(f"{name} was changed without a statement in the binlog: {why}")

    async def measure(self, server: MySqlServer) -> Distance:
        """See ``LogFollower``."""
        end = await asyncio.to_thread(server.end, self._checkpoint.place)
        return Distance(self._checkpoint.place, end.place, end.time_ms, end.bytes)

    def collect_gtids(self) -> Gtids:
        """Return the GTIDs of which a row or change was written."""
        made = parse_gtids(self._checkpoint.gtids.text())
        if self._open:
            made = parse_gtids(made.text() or self._open)
            made.add(self._open)
        return made

    async def _change(self, piece: BinlogPiece) -> None:
        """Apply what a statement means for the tables."""
        assert piece.change is not None, "the piece has a change"
        logger.info("at %s: %s", piece.begin, piece.change.reason)
        for meaning in piece.change.meanings:
            if meaning.what is What.UNCLEAR:
                logger.warning("all tables are copied again: %s", piece.change.reason)
            for name in _names(meaning, piece.change.tables):
                await self._renew(name, piece.change.tables[name], meaning.what, piece)
        self._keeper.note_change()

    async def _renew(
        self, name: str, now: MySqlTable | UnfitMySqlTable | None, what: What, piece: BinlogPiece
    ) -> None:
        """Take over a table's state after a statement about it."""
        self._note_change(name)
        if now is None or what is What.DROPPED:
            self._forget(name)
            self._states.forget(name)
        elif isinstance(now, UnfitMySqlTable):
            self._fail(now)
        elif (refused := await self._states.refusal(now, self._target)) is not None:
            self._fail(refused)
        else:
            self._states.forget(name)
            await self._update_table(name, now, what, piece)

    def _fail(self, unfit: UnfitMySqlTable) -> None:
        """Stop following a table until it is fit. It is then copied again."""
        self._note_change(unfit.full_name)
        self._forget(unfit.full_name)
        self._states.fail(unfit)
        self._keeper.note_change()

    async def _update_table(
        self, name: str, now: MySqlTable, what: What, piece: BinlogPiece
    ) -> None:
        """Update an existing table that was changed."""
        progress = self._checkpoint.tables.get(name)
        self._tables[name] = now
        columns = [column.identity for column in now.columns]
        if what is What.EMPTIED or (what is What.CREATED and progress is None):
            await self._empty(now, piece)
        if progress is None:
            progress = TableProgress(columns, copied=what is What.CREATED)
            progress.sweep = what is not What.CREATED
            self._checkpoint.tables[name] = progress
            if progress.copied:
                self._copied.add(name)
        elif what in _COPIES or not keeps_values(progress.columns, now.columns, _fills_old_rows):
            logger.info("%s may have other values, so it is copied again", name)
            # Its keys may change too: a DECIMAL with two digits makes 1.00 of 1.0.
            self._restart(name)
        progress.columns = columns

    def _forget(self, name: str) -> None:
        """Stop following a table. Its rows stay as they are."""
        self._checkpoint.tables.pop(name, None)
        self._tables.pop(name, None)
        self._copied.discard(name)

    def _note_change(self, name: str) -> None:
        """Invalidate reads of a table that are in progress."""
        self._changes[name] = self._changes.get(name, 0) + 1

    def _restart(self, name: str) -> None:
        """Copy a table again from the start, and delete rows that the source lacks."""
        self._copied.discard(name)
        self._checkpoint.tables[name].restart(sweep=True)

    async def _empty(self, table: MySqlTable, piece: BinlogPiece) -> None:
        """Delete all rows of a table. Rows after the statement have higher positions."""
        moment = BinlogMoment(piece.begin, ChunkWindow("", None), piece.time_ms)
        after: Key | None = None
        while keys := await self._target.keys(table.target, after, limit=KEYS):
            await self._write(self._rows.deletes_of(table, keys, moment))
            after = keys[-1]

    async def _write(self, rows: Sequence[SourceRow]) -> None:
        if rows:
            await self._target.write(rows)


def _names(
    meaning: Meaning, tables: Mapping[str, MySqlTable | UnfitMySqlTable | None]
) -> list[str]:
    if meaning.what is What.UNCLEAR:
        return list(tables)
    if meaning.table:
        return [f"{meaning.database}.{meaning.table}"]
    return [name for name in tables if name.startswith(meaning.database + ".")]


def _fills_old_rows(column: MySqlColumn) -> bool:
    """True if rows older than a column may have a value in it."""
    return column.computed or not column.nullable or column.default is not None
