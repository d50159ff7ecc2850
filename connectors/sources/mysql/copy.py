"""Copies tables of MySQL and follows them: what comes when, and what of it is kept.

Chunks of a snapshot and the binlog become one order. A chunk is exact as of a place S:

1. read a chunk, and learn its S;
2. make all changes of the binlog up to S, none after it;
3. make the chunk's rows; go on with the next.

So rowtide never gets an older state of a row after a newer one, and what happened between two
chunks is never left out. Nothing beyond S may be made before the chunk: the chunk does not have it.

Whatever is made has a position above all before (``position.py``), and the checkpoint is kept
after what it names is durable. So a crash at any point repeats nothing that a shard has, but the
rows of one chunk, which are read anew.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Mapping, Sequence

from rowtide.connectors.rows import Key, SourceRow
from rowtide.connectors.sources.errands import Errand, Errands
from rowtide.connectors.sources.lag import LagMeter
from rowtide.connectors.sources.mysql.binlog import Piece
from rowtide.connectors.sources.mysql.ddl import Meaning, What
from rowtide.connectors.sources.mysql.gtids import Gtids, parsed_gtids
from rowtide.connectors.sources.mysql.position import Checkpoint, Place
from rowtide.connectors.sources.mysql.schema import Column, SourceTable
from rowtide.connectors.sources.mysql.server import Server
from rowtide.connectors.sources.mysql.snapshot import (
    Chunk,
    Snapshots,
    TableUnreadable,
    Unread,
)
from rowtide.connectors.sources.mysql.states import TableStates
from rowtide.connectors.sources.mysql.tables import Unfit
from rowtide.connectors.sources.mysql.window import Window
from rowtide.connectors.sources.pipe import Pipe
from rowtide.connectors.sources.progress import TableProgress, kept_values, unfinished
from rowtide.connectors.sources.source import Behind, SourceTarget
from rowtide.core.values.errors import Unavailable

__all__ = ["Copy"]

logger = logging.getLogger(__name__)

BATCH_ROWS = 4000
KEEP_S = 1.0
ROWS_SENT_PER_S = 800_000
"""Before the next chunk is read: the thread that reads would hold the interpreter meanwhile."""
KEYS = 1000
"""Keys of rowtide that are looked for at the source at once."""
_COPIES = {What.RESHAPED, What.REPLACED, What.UNCLEAR}
"""What copies a table again."""


class Copy:
    """One life of a source: from a checkpoint on, over connections that are open.

    ``tables`` and ``checkpoint`` are its own from here on. ``copied`` it shares with the thread
    that reads the binlog: updates of the tables in it come as merges. It ends too when a table that
    failed can be followed: the next life follows it from the checkpoint on.
    """

    def __init__(
        self,
        target: SourceTarget,
        checkpoint: Checkpoint,
        tables: dict[str, SourceTable],
        *,
        pipe: Pipe[Piece],
        snapshots: Snapshots,
        copied: set[str],
        states: TableStates,
    ) -> None:
        self._target = target
        self._checkpoint = checkpoint
        self._tables = tables
        self._pipe = pipe
        self._snapshots = snapshots
        self._copied = copied
        self._states = states
        self._pieces: deque[Piece] = deque()
        self._begun = Place(0, 0)
        """Where the last transaction begins of which something was made."""
        self._open = ""
        """Its GTID, while there may be more of it."""
        self._window = Window("", None)
        self.errands = Errands(pipe.wake)
        self._changes: dict[str, int] = {}
        self._ahead: asyncio.Task[Chunk | Unread] | None = None
        """The chunk behind the last one; whoever began it is the next to ask for one."""
        self._written: Chunk | None = None
        """The last chunk, until the next one is sent: to let go of 8000 rows takes 5 ms."""
        self._lag = LagMeter()
        self._kept_s = time.monotonic()
        self._dirty = False
        self._stopping = False

    def stop(self) -> None:
        """Let ``run`` end soon."""
        self._stopping = True
        self._pipe.wake()

    async def behind(self, server: Server) -> Behind:
        """Return how far rowtide is behind; ``server`` is a session that nobody else uses."""
        end = await asyncio.to_thread(server.end, self._checkpoint.place)
        seconds = self._lag.seconds(self._checkpoint.place, end.place, end.time_ms)
        progress = self._checkpoint.tables.values()
        return Behind(seconds, end.bytes, sum(not table.whole for table in progress))

    async def run(self) -> None:
        """Copy and follow until ``stop``."""
        try:
            await self._copy_and_follow()
        finally:
            self.errands.end()
        await self._keep(at_once=True)

    async def _copy_and_follow(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            while not self._stopping:
                if self._states.are_due and await self._is_one_fit():
                    break
                name = unfinished(self._checkpoint.tables, self._tables)
                if (errand := self.errands.first) is not None:
                    await self._run(errand)
                elif name is None:
                    self._pieces.extend(await self._pipe.take(KEEP_S))
                    await self._make_up_to(None)
                elif self._checkpoint.tables[name].copied:
                    await self._sweep(name)
                else:
                    await self._copy(name, tasks)
                await self._keep(at_once=False)
            if self._ahead is not None:
                self._ahead.cancel()

    async def _is_one_fit(self) -> bool:
        """Look at the tables that failed again; True if one of them can be followed."""
        if self._ahead is not None:
            await asyncio.wait([self._ahead])  # It uses the same connection.
        found = await asyncio.to_thread(self._snapshots.tables)
        return await self._states.is_one_fit(found, self._target)

    async def _run(self, errand: Errand) -> None:
        """Copy one row again: what the binlog has up to its place comes before it."""
        found = [table for table in self._tables.values() if table.target == errand.table]
        key = errand.key_of([column.name for column in found[0].target_key]) if found else None
        if key is None:
            self.errands.refuse()
            return
        table, name = found[0], found[0].full_name
        changes = self._changes.get(name, 0)
        if self._ahead is not None:
            # It uses the same connection, and would be older than what is made until then.
            await asyncio.wait([self._ahead])
            self._ahead = None
        try:
            read = await asyncio.to_thread(self._snapshots.look_up, table, [key], self._made())
        except Unread as error:
            await self._learn(name, changes, error)
            return
        window = Window(table.target, read.settled)
        if not await self._follow(read.place, window) or self._changes.get(name, 0) != changes:
            return
        if window.unclear or key in window.keys:
            return  # It is read again.
        rows = [row for row in read.rows if row.key == key]
        rows += self._deletes(table, [key] * (not rows), read.prefix, read.time_ms)
        await errand.write(rows[0])
        self.errands.done()

    async def _copy(self, name: str, tasks: asyncio.TaskGroup) -> None:
        """Read and make the next chunk of a table; the one after it is read meanwhile."""
        table, progress = self._tables[name], self._checkpoint.tables[name]
        changes = self._changes.get(name, 0)
        reading = self._ahead or tasks.create_task(self._read(table, progress.cursor))
        self._ahead = None
        chunk = await reading
        if isinstance(chunk, Unread):
            await self._learn(name, changes, chunk)
            return
        window = Window(table.target, chunk.settled)
        followed = await self._follow(chunk.place, window)
        if not followed or window.unclear or self._changes.get(name, 0) != changes:
            return
        if chunk.cursor is not None:
            later = self._read_later(table, chunk.cursor, len(chunk.rows))
            self._ahead = tasks.create_task(later, name=f"read[{name}]")
        await self._write(window.left(chunk.rows))
        self._states.note_copied(name, len(chunk.rows), first=progress.cursor is None)
        self._written, progress.cursor = chunk, chunk.cursor
        if chunk.cursor is None:
            self._written = None
            progress.copied = True
            if not progress.sweep:
                self._copied.add(name)
                self._states.note_whole(name)
            logger.info("%s is copied as of %s", name, chunk.place)
        self._dirty = True
        await self._keep(at_once=chunk.cursor is None)

    async def _read_later(self, table: SourceTable, cursor: list[str], rows: int) -> Chunk | Unread:
        """Read the next chunk once the one before, of so many rows, is on its way."""
        await asyncio.sleep(rows / ROWS_SENT_PER_S)
        self._written = None
        return await self._read(table, cursor)

    async def _read(self, table: SourceTable, cursor: list[str] | None) -> Chunk | Unread:
        try:
            return await asyncio.to_thread(self._chunk, table, cursor, self._made())
        except Unread as error:
            return error  # Raised, it would end what else goes on.

    def _chunk(self, table: SourceTable, cursor: list[str] | None, made: Gtids) -> Chunk:
        """Read a chunk, ready to be written; blocks."""
        chunk = self._snapshots.chunk(table, cursor, made)
        return chunk._replace(rows=self._target.prepared(chunk.rows))

    async def _learn(self, name: str, changes: int, why: Unread) -> None:
        """Follow the binlog up to now: a table is not as it was, and the binlog says since when."""
        if isinstance(why, TableUnreadable):
            self._fail(self._states.unreadable(self._tables[name], str(why)))
            return
        place = await asyncio.to_thread(self._snapshots.now)
        if await self._follow(place) and self._changes.get(name, 0) == changes:
            raise Unavailable(f"{name} was changed without a word in the binlog: {why}")

    async def _sweep(self, name: str) -> None:
        """Delete the rows of a table that the source does not have, looking at all of them."""
        table, progress = self._tables[name], self._checkpoint.tables[name]
        changes = self._changes.get(name, 0)
        after: Key | None = None
        removed = 0
        while keys := await self._target.keys(table.target, after, limit=KEYS):
            try:
                made = self._made()
                found = await asyncio.to_thread(self._snapshots.existing, table, keys, made)
            except Unread as error:
                await self._learn(name, changes, error)
                return
            window = Window(table.target, found.settled)
            if not await self._follow(found.place, window) or self._changes.get(name, 0) != changes:
                return
            if window.unclear:
                continue
            gone = [key for key in keys if key not in found.keys and key not in window.keys]
            await self._write(self._deletes(table, gone, found.prefix, found.time_ms))
            removed += len(gone)
            after = keys[-1]
        progress.sweep = False
        self._copied.add(name)
        self._states.note_whole(name)
        self._dirty = True
        logger.info("%s rows of %s were gone at the source", removed, name)
        await self._keep(at_once=True)

    def _deletes(
        self, table: SourceTable, keys: list[Key], prefix: bytes, time_ms: int
    ) -> list[SourceRow]:
        number = self._snapshots.number
        return [
            SourceRow(table.target, key, None, True, time_ms, prefix + number()) for key in keys
        ]

    async def _follow(self, place: Place, window: Window | None = None) -> bool:
        """Make what the binlog has up to a place, and note in the window what that changes.

        Return False where it is to stop before, or where more was made than is up to there: a
        server sends transactions before it commits them.
        """
        self._window = window or Window("", None)
        while not self._stopping and self._begun < place:
            await self._make_up_to(place)
            if self._pieces or self._checkpoint.place >= place:
                return True
            self._pieces.extend(await self._pipe.take(KEEP_S))
        return False

    async def _make_up_to(self, place: Place | None) -> None:
        """Make what was read of the binlog, up to a place if one is given."""
        rows: list[SourceRow] = []
        reached: Piece | None = None
        gtids: list[str] = []
        while self._pieces and _is_due(self._pieces[0], place):
            piece = self._pieces.popleft()
            self._window.note(piece)
            if piece.rows or piece.change:
                self._begun = piece.begin
            if piece.change is not None:
                await self._write(rows)
                rows = []
                await self._change(piece)
            rows += self._states.kept(piece.rows)
            self._open = piece.gtid
            if piece.end is not None:
                reached, self._open = piece, ""
                if piece.gtid:
                    gtids.append(piece.gtid)
            if len(rows) >= BATCH_ROWS:
                await self._write(rows)
                rows = []
                self._reach(reached, gtids)
        await self._write(rows)
        self._reach(reached, gtids)

    def _made(self) -> Gtids:
        """Return all of which something was made."""
        made = parsed_gtids(self._checkpoint.gtids.text())
        if self._open:
            made = parsed_gtids(made.text() or self._open)
            made.add(self._open)
        return made

    def _reach(self, reached: Piece | None, gtids: list[str]) -> None:
        """Note a place, all before which is durable."""
        if reached is not None and reached.end is not None:
            self._checkpoint.place, self._checkpoint.looks = reached.end, dict(reached.looks)
            if reached.time_ms:
                self._lag.written(reached.time_ms)
            for gtid in gtids:
                self._checkpoint.gtids.add(gtid)
            gtids.clear()
            self._dirty = True

    async def _change(self, piece: Piece) -> None:
        """Do what a statement meant for the tables."""
        assert piece.change is not None, "it is asked only for a change"
        logger.info("at %s: %s", piece.begin, piece.change.reason)
        for meaning in piece.change.meanings:
            if meaning.what is What.UNCLEAR:
                logger.warning("all tables are copied again: %s", piece.change.reason)
            for name in _names(meaning, piece.change.tables):
                await self._renew(name, piece.change.tables[name], meaning.what, piece)
        self._dirty = True

    async def _renew(
        self, name: str, now: SourceTable | Unfit | None, what: What, piece: Piece
    ) -> None:
        """Take a table as it is now, after a statement about it."""
        self._note_change(name)
        if now is None or what is What.DROPPED:
            self._forget(name)
            self._states.forget(name)
        elif isinstance(now, Unfit):
            self._fail(now)
        elif (refused := await self._states.refusal(now, self._target)) is not None:
            self._fail(refused)
        else:
            self._states.forget(name)
            await self._changed(name, now, what, piece)

    def _fail(self, unfit: Unfit) -> None:
        """Follow a table no more until it can be. It is copied again then."""
        self._note_change(unfit.full_name)
        self._forget(unfit.full_name)
        self._states.fail(unfit)
        self._dirty = True

    async def _changed(self, name: str, now: SourceTable, what: What, piece: Piece) -> None:
        """Deal with a table that is there, and was changed."""
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
        elif what in _COPIES or not kept_values(progress.columns, now.columns, _filled):
            logger.info("%s may have other values: it is copied again", name)
            # Its keys may be others too: of 1.0 a DECIMAL of two digits makes 1.00.
            self._restart(name)
        progress.columns = columns

    def _forget(self, name: str) -> None:
        """Follow a table no more. Its rows stay as they are."""
        self._checkpoint.tables.pop(name, None)
        self._tables.pop(name, None)
        self._copied.discard(name)

    def _note_change(self, name: str) -> None:
        """Throw away what is on its way of a table."""
        self._changes[name] = self._changes.get(name, 0) + 1

    def _restart(self, name: str) -> None:
        """Copy a table again from the beginning, and delete what is gone."""
        self._copied.discard(name)
        self._checkpoint.tables[name].restart(sweep=True)

    async def _empty(self, table: SourceTable, piece: Piece) -> None:
        """Delete all rows of a table. Those made after the statement have higher positions."""
        prefix = self._snapshots.prefix(piece.begin)
        after: Key | None = None
        while keys := await self._target.keys(table.target, after, limit=KEYS):
            await self._write(self._deletes(table, list(keys), prefix, piece.time_ms))
            after = keys[-1]

    async def _write(self, rows: Sequence[SourceRow]) -> None:
        if rows:
            await self._target.write(rows)

    async def _keep(self, *, at_once: bool) -> None:
        """Keep the checkpoint, where it says something new, once a second or at once."""
        now_s = time.monotonic()
        if self._dirty and (at_once or now_s - self._kept_s >= KEEP_S):
            self._dirty, self._kept_s = False, now_s
            await self._target.keep(self._checkpoint.encoded())


def _is_due(piece: Piece, place: Place | None) -> bool:
    if place is None:
        return True
    return piece.begin < place or (piece.end is not None and piece.end <= place)


def _names(meaning: Meaning, tables: Mapping[str, SourceTable | Unfit | None]) -> list[str]:
    if meaning.what is What.UNCLEAR:
        return list(tables)
    if meaning.table:
        return [f"{meaning.database}.{meaning.table}"]
    return [name for name in tables if name.startswith(meaning.database + ".")]


def _filled(column: Column) -> bool:
    """True if rows that are older than a column may have a value there."""
    return column.computed or not column.nullable or column.default is not None
