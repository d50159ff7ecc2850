"""Copies tables of PostgreSQL and follows them: what comes when, and what of it is kept.

Chunks of a copy and the stream become one order. A chunk is of a moment, which sees some
transactions and not others:

1. see to it that a moment sees every transaction that was made so far, and read a chunk as of it;
2. make the transactions that follow in the stream, up to the first that the moment does not see;
3. make the chunk's rows; go on.

So rowtide never gets an older state of a row after a newer one, but for transactions that the
server committed in another order than it showed them; those end with the right state too, because
they are followed by what the chunk had seen. The mark that is written after each chunk is a
transaction that the chunk does not see: an idle table waits for no other.

Whatever is made has a position above all before (``position``), and the checkpoint is kept after
what it names is durable. So a crash at any point repeats nothing that a shard has, but the rows of
one chunk, which are read anew.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from typing import NamedTuple

from rowtide.connectors.rows import Key, SourceRow
from rowtide.connectors.sources.errands import Errand, Errands
from rowtide.connectors.sources.lag import LagMeter
from rowtide.connectors.sources.pipe import Pipe
from rowtide.connectors.sources.postgres.chunks import (
    Chunk,
    Chunks,
    Existing,
    Required,
    TableChanged,
    TableRefused,
)
from rowtide.connectors.sources.postgres.look import Look, look, make_targets, note_tables
from rowtide.connectors.sources.postgres.position import AFTER_ALL_CHANGES, Checkpoint, prefix
from rowtide.connectors.sources.postgres.report import TableReport
from rowtide.connectors.sources.postgres.server import Server
from rowtide.connectors.sources.postgres.stream import (
    Altered,
    Emptied,
    Event,
    Incomplete,
    Joined,
    Lost,
    Piece,
    Shared,
    Stream,
)
from rowtide.connectors.sources.postgres.tables import SourceTable
from rowtide.connectors.sources.postgres.unfit import Unfit
from rowtide.connectors.sources.postgres.visibility import Visible
from rowtide.connectors.sources.postgres.waiting import Waiting
from rowtide.connectors.sources.progress import unfinished
from rowtide.connectors.sources.source import Behind, SourceTarget
from rowtide.core.values.errors import Rejected

__all__ = ["Copier", "Parts"]

logger = logging.getLogger(__name__)

BATCH_ROWS = 4000
KEEP_S = 1.0
LOOK_S = 10.0
RETRY_S = 0.05
KEYS = 1000
"""Keys of rowtide that are looked for at the source at once."""

BEHIND_BYTES = 1024 * 1024
"""Of log without a change of ours, after which a mark lets the slot go on."""


class Parts(NamedTuple):
    """What a copier works with: sessions for chunks and all else, the stream, what others see."""

    chunks: Chunks
    server: Server
    stream: Stream
    pipe: Pipe[Piece]
    shared: Shared
    report: TableReport
    waiting: Waiting


class Copier:
    """One life of a source: from a checkpoint on, over connections that are open.

    The checkpoint and what was found at the first look are its own from here on. Nothing is
    copied before the stream has passed ``begin``: an LSN above all that an earlier life may have
    made.
    """

    def __init__(
        self,
        target: SourceTarget,
        checkpoint: Checkpoint,
        found: Look,
        parts: Parts,
        *,
        begin: int,
    ) -> None:
        self._target = target
        self._checkpoint = checkpoint
        self._tables = found.tables
        self._parts = parts
        self._begin = begin
        self._copied = parts.shared.copied
        self._refused: dict[str, Unfit] = {}
        """Tables whose rows could not be read since the last look of the clock's."""
        self._left_out = _left_out(found)
        self._pieces: deque[Piece] = deque()
        self.errands = Errands(parts.pipe.wake)
        self._last_lsn = 0
        self._floor: int | None = None
        self._made_xids: set[int] = set()
        self._numbers = count()
        self._restarts = 0
        self._ahead: asyncio.Task[Chunk | TableChanged | None] | None = None
        self._making = False
        self._lag = LagMeter()
        self._kept_s = self._looked_s = time.monotonic()
        self._dirty = False
        self._stopping = False

    def stop(self) -> None:
        """Let ``run`` end soon."""
        self._stopping = True
        self._parts.pipe.wake()

    async def behind(self, server: Server) -> Behind:
        """Return how far rowtide is behind; ``server`` is a session that nobody else uses."""
        now_ms, end = await asyncio.to_thread(server.flushed)
        at = self._reached()
        seconds = self._lag.seconds((at,), (end,), now_ms)
        progress = self._checkpoint.tables.values()
        return Behind(seconds, max(0, end - at), sum(not table.whole for table in progress))

    def _reached(self) -> int:
        """Return the LSN up to which nothing of ours is left to write."""
        parts, passed = self._parts, self._parts.stream.passed
        if self._making or self._pieces or not parts.pipe.empty:
            return self._checkpoint.lsn
        return max(self._checkpoint.lsn, passed)

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
                name = unfinished(self._checkpoint.tables, self._tables)
                if self._last_lsn < self._begin:
                    await self._take(KEEP_S)
                elif (errand := self.errands.first) is not None:
                    await self._run(errand)
                elif name is not None:
                    await self._approach(name, tasks)
                else:
                    self._floor = None
                    await self._take(KEEP_S)
                await self._keep(at_once=False)
                await self._look_sometimes()
            if self._ahead is not None:
                self._ahead.cancel()

    async def _run(self, errand: Errand) -> None:
        """Copy one row again: what its moment sees comes before it."""
        tables = [table for table in self._tables.values() if table.target == errand.table]
        key = errand.key_of([column.name for column in tables[0].key]) if tables else None
        if key is None:
            self.errands.refuse()
            return
        table, restarts = tables[0], self._restarts
        self._drop_ahead()
        await self._begin_copying()
        try:
            found = await asyncio.to_thread(self._parts.chunks.again, table, key, self._required())
        except TableChanged as error:
            await self._look_again(table, error)
            return
        if found is None:
            await self._wait()
            return
        if not await self._follow(found.visible) or self._restarts != restarts:
            return
        cells = dict(found.rows).get(key)
        position = next(self._positions(self._last_lsn, AFTER_ALL_CHANGES))
        row = SourceRow(table.target, key, cells, True, found.time_ms, position)
        await errand.write(row)
        self.errands.done()

    async def _begin_copying(self) -> None:
        """Note which transactions a moment must see, where nothing is copied yet."""
        if self._floor is None:
            # As a slot begins: when all that ran then has ended, nothing is seen late that was
            # made before the transactions' numbers were noted.
            self._floor = (await asyncio.to_thread(self._parts.server.visible)).xmax
            self._made_xids.clear()

    async def _approach(self, name: str, tasks: asyncio.TaskGroup) -> None:
        """Bring a table one step nearer to being a copy."""
        table = self._tables[name]
        try:
            await self._begin_copying()
            if self._checkpoint.tables[name].sweep:
                await self._sweep(name)
            else:
                await self._copy(name, tasks)
        except TableChanged as error:
            await self._look_again(table, error)

    async def _look_again(self, table: SourceTable, error: TableChanged) -> None:
        """Look at the tables, as one of them could not be read."""
        logger.info("%s", error)
        if isinstance(error, TableRefused):
            self._refused[table.full_name] = Unfit(
                table.full_name,
                table.target,
                f"The server does not let it be read: {error}",
                "It is tried again every few seconds.",
            )
        await self._look()

    async def _copy(self, name: str, tasks: asyncio.TaskGroup) -> None:
        """Read and make the next chunk of a table; the one after it is read meanwhile."""
        progress, restarts = self._checkpoint.tables[name], self._restarts
        reading = self._ahead or tasks.create_task(self._read(name, progress.cursor))
        self._ahead = None
        chunk = await reading
        if isinstance(chunk, TableChanged):
            raise chunk
        if chunk is None:
            await self._wait()
            return
        self._parts.waiting.over()
        if not await self._follow(chunk.visible) or self._restarts != restarts:
            return
        if chunk.cursor is not None:
            self._ahead = tasks.create_task(self._read(name, chunk.cursor), name=f"read[{name}]")
        target = self._tables[name].target
        positions = self._positions(self._last_lsn, AFTER_ALL_CHANGES)
        await self._write(
            [
                SourceRow(target, key, cells, True, chunk.time_ms, next(positions))
                for key, cells in chunk.rows
            ]
        )
        progress.cursor = chunk.cursor
        progress.rows += len(chunk.rows)
        if chunk.cursor is None:
            progress.copied = True
            self._copied.add(name)
            logger.info("%s is copied", name)
        self._dirty = True
        await self._keep(at_once=chunk.cursor is None)

    async def _read(self, name: str, cursor: Sequence[str] | None) -> Chunk | TableChanged | None:
        chunks, table = self._parts.chunks, self._tables[name]
        try:
            return await asyncio.to_thread(chunks.read, table, cursor, self._required())
        except TableChanged as error:
            return error  # Raised, it would end what else goes on.

    def _required(self) -> Required:
        assert self._floor is not None, "a copy began"
        return Required(self._floor, frozenset(self._made_xids))

    async def _sweep(self, name: str) -> None:
        """Delete the rows of a table that the source does not have, looking at all of them."""
        progress, restarts = self._checkpoint.tables[name], self._restarts
        table = self._tables[name]
        target = table.target
        after: Key | None = None
        removed = 0
        while keys := await self._target.keys(target, after, limit=KEYS):
            found = await self._existing(table, keys)
            if found is None or self._restarts != restarts:
                return
            gone = [key for key in keys if key not in found.keys]
            await self._delete(
                target, gone, self._last_lsn, AFTER_ALL_CHANGES, time_ms=found.time_ms
            )
            removed += len(gone)
            after = keys[-1]
        progress.sweep = False
        self._dirty = True
        logger.info("%s rows of %s were gone at the source", removed, name)
        await self._keep(at_once=True)

    async def _existing(self, table: SourceTable, keys: Sequence[Key]) -> Existing | None:
        """Return which keys are there once it is their turn; None where it is to stop."""
        restarts = self._restarts
        while not self._stopping and self._restarts == restarts:
            found = await asyncio.to_thread(
                self._parts.chunks.existing, table, keys, self._required()
            )
            if found is not None:
                self._parts.waiting.over()
                return found if await self._follow(found.visible) else None
            await self._wait()
            await self._keep(at_once=False)
        return None

    async def _follow(self, visible: Visible) -> bool:
        """Make what a moment sees; return False where it is to stop before the end of that."""
        while not self._stopping:
            if await self._make(visible):
                # What one moment sees each later one sees: they need not be looked for again.
                self._made_xids.clear()
                return True
            self._pieces.extend(await self._parts.pipe.take(KEEP_S))
            await self._keep(at_once=False)
        return False

    async def _wait(self) -> None:
        """Go on with the stream until a moment may see more."""
        await self._parts.waiting.note()
        await self._take(RETRY_S)

    async def _take(self, timeout_s: float) -> None:
        self._pieces.extend(await self._parts.pipe.take(timeout_s))
        await self._make(None)

    async def _make(self, visible: Visible | None) -> bool:
        """Make what was read of the stream; return True before what a moment does not see."""
        rows: list[SourceRow] = []
        reached = time_ms = 0
        stopped = False
        self._making = True
        while self._pieces:
            piece = self._pieces[0]
            if visible is not None and piece.first and not visible.sees(piece.xid):
                stopped = True
                break
            self._pieces.popleft()
            self._last_lsn = piece.lsn
            if self._floor is not None:
                self._made_xids.add(piece.xid)
            rows += self._wanted(piece.rows)
            if piece.event is not None:
                rows = await self._handled(piece, piece.event, rows)
            reached, time_ms = piece.end or reached, piece.time_ms
            if len(rows) >= BATCH_ROWS:
                await self._write(rows)
                rows = []
                self._reach(reached)
                await self._keep(at_once=False)
        await self._write(rows)
        self._reach(reached)
        if time_ms:
            self._lag.written(time_ms)
        self._making = False
        return stopped

    def _reach(self, lsn: int) -> None:
        """Note an LSN, all before which is durable."""
        if lsn > self._checkpoint.lsn:
            self._checkpoint.lsn = lsn
            self._dirty = True

    def _wanted(self, rows: Sequence[SourceRow]) -> Sequence[SourceRow]:
        """Return rows without those of tables that can't be followed."""
        if not self._left_out:
            return rows
        return [row for row in rows if row.table not in self._left_out]

    async def _handled(self, piece: Piece, event: Event, rows: list[SourceRow]) -> list[SourceRow]:
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

    async def _altered(self, table: SourceTable) -> None:
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
        except TableChanged as error:
            # The stream will say so, and then the table is looked at.
            logger.info("%s", error)
            return row

    async def _empty(self, table: SourceTable, event: Emptied) -> None:
        """Delete all rows of a table. Those made after the statement have higher positions."""
        logger.info("%s is emptied", table.full_name)
        after: Key | None = None
        while keys := await self._target.keys(table.target, after, limit=KEYS):
            await self._delete(table.target, keys, event.lsn, event.change, time_ms=event.time_ms)
            after = keys[-1]

    async def _delete(
        self, target: str, keys: Iterable[Key], lsn: int, change: int, *, time_ms: int
    ) -> None:
        positions = self._positions(lsn, change)
        await self._write(
            [SourceRow(target, key, None, True, time_ms, next(positions)) for key in keys]
        )

    def _positions(self, lsn: int, change: int) -> Iterator[bytes]:
        checkpoint = self._checkpoint
        begin = prefix(checkpoint.epoch, lsn, change=change, run=checkpoint.run)
        return (begin + number.to_bytes(8, "big") for number in self._numbers)

    async def _write(self, rows: list[SourceRow]) -> None:
        if rows:
            await self._target.write(rows)

    async def _keep(self, *, at_once: bool) -> None:
        """Keep the checkpoint, where it says something new, once a second or at once."""
        now_s = time.monotonic()
        if self._dirty and (at_once or now_s - self._kept_s >= KEEP_S):
            self._dirty, self._kept_s = False, now_s
            lsn = self._checkpoint.lsn
            await self._target.keep(self._checkpoint.encoded())
            self._parts.stream.confirm(lsn)

    async def _look_sometimes(self) -> None:
        if time.monotonic() - self._looked_s >= LOOK_S:
            self._refused.clear()
            await self._look()
            server = self._parts.server
            if await asyncio.to_thread(server.end) - self._checkpoint.lsn > BEHIND_BYTES:
                await asyncio.to_thread(server.mark)

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
            self._copied.difference_update(changed)
            self._floor = None
            self._drop_ahead()
            self._dirty = True

    def _drop_ahead(self) -> None:
        """Forget the part that was read ahead: it is older than what is made by now."""
        if self._ahead is not None:
            self._ahead.cancel()
            self._ahead = None


def _left_out(found: Look) -> set[str]:
    """Return the tables of rowtide to which nothing is to be written."""
    followed = {table.target for table in found.tables.values()}
    return {fault.target for fault in found.unfit.values()} - followed
