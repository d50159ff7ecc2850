"""Chunks of MySQL's tables for the copy engine, read in threads as of moments of the
binlog.

If a server can't report the place of what a transaction sees, the moment has a
``ChunkWindow``. Rows of keys that change in it are left to the binlog.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

from rowtide.connectors.rows import Key, SourceRow
from rowtide.connectors.sources.copying.seam import (
    ChunkRows,
    CopyChunk,
    CopyChunkReader,
    KeysPresent,
)
from rowtide.connectors.sources.mysql.binlog import BinlogPiece
from rowtide.connectors.sources.mysql.gtids import Gtids
from rowtide.connectors.sources.mysql.position import Place
from rowtide.connectors.sources.mysql.schema import MySqlTable
from rowtide.connectors.sources.mysql.snapshot import Snapshots
from rowtide.connectors.sources.mysql.states import TableStates
from rowtide.connectors.sources.mysql.window import ChunkWindow
from rowtide.connectors.sources.source import SourceTarget

__all__ = ["BinlogMoment", "SnapshotReader", "SnapshotRows", "SnapshotSession"]

logger = logging.getLogger(__name__)

ROWS_SENT_PER_S = 800_000
"""Delays the read of the next chunk, because the reading thread would hold the interpreter."""

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(slots=True)
class BinlogMoment:
    """A place of the binlog, and the keys of the table that changed on the way there.

    ``time_ms`` is the server's time of the read.
    """

    place: Place
    window: ChunkWindow
    time_ms: int = 0

    def includes(self, piece: BinlogPiece) -> bool:
        """See ``Moment``."""
        place = self.place
        return piece.begin < place or (piece.end is not None and piece.end <= place)

    def note(self, piece: BinlogPiece) -> None:
        """See ``Moment``."""
        self.window.note(piece)

    @property
    def is_exact(self) -> bool:
        """See ``Moment``."""
        return not self.window.unclear


class SnapshotSession:
    """Runs calls that use the connection of ``snapshots``, one at a time."""

    def __init__(self, snapshots: Snapshots) -> None:
        self.snapshots = snapshots
        self._one_at_a_time = asyncio.Lock()

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a blocking call in a thread and return its result."""
        async with self._one_at_a_time:
            return await asyncio.to_thread(call, *args, **kwargs)


class SnapshotReader(CopyChunkReader[MySqlTable, BinlogMoment, SourceRow]):
    """See ``CopyChunkReader``. ``made`` returns the GTIDs of which something was written.

    Tables in ``copied`` are shared with the thread that reads the binlog: their updates
    are merges.
    """

    def __init__(
        self,
        session: SnapshotSession,
        target: SourceTarget,
        *,
        made: Callable[[], Gtids],
        copied: set[str],
        states: TableStates,
    ) -> None:
        self._session = session
        self._snapshots = session.snapshots
        self._target = target
        self._made = made
        self._copied = copied
        self._states = states
        self._written: CopyChunk[BinlogMoment, SourceRow] | None = None
        """The last chunk, until the next one is sent: freeing 8000 rows takes 5 ms."""

    async def read_chunk(
        self, table: MySqlTable, cursor: list[str] | None
    ) -> CopyChunk[BinlogMoment, SourceRow]:
        """See ``CopyChunkReader``. Its rows are prepared for writing."""
        made = self._made()
        return await self._session.run(self._read_and_prepare, table, cursor, made)

    async def read_next(
        self, table: MySqlTable, cursor: list[str], rows: int
    ) -> CopyChunk[BinlogMoment, SourceRow]:
        """See ``CopyChunkReader``. The read begins once the chunk before is being sent."""
        await asyncio.sleep(rows / ROWS_SENT_PER_S)
        self._written = None
        return await self.read_chunk(table, cursor)

    def _read_and_prepare(
        self, table: MySqlTable, cursor: list[str] | None, made: Gtids
    ) -> CopyChunk[BinlogMoment, SourceRow]:
        read = self._snapshots.chunk(table, cursor, made)
        moment = BinlogMoment(read.place, ChunkWindow(table.target, read.settled))
        return CopyChunk(moment, self._target.prepare(read.rows), read.cursor)

    async def read_row(self, table: MySqlTable, key: Key) -> CopyChunk[BinlogMoment, SourceRow]:
        """See ``CopyChunkReader``. Rows of keys that only the server treats as equal are
        left out.
        """
        read = await self._session.run(self._snapshots.look_up, table, [key], self._made())
        moment = BinlogMoment(read.place, ChunkWindow(table.target, read.settled), read.time_ms)
        return CopyChunk(moment, [row for row in read.rows if row.key == key], None)

    async def read_keys(self, table: MySqlTable, keys: Sequence[Key]) -> KeysPresent[BinlogMoment]:
        """See ``CopyChunkReader``."""
        read = await self._session.run(self._snapshots.existing, table, keys, self._made())
        moment = BinlogMoment(read.place, ChunkWindow(table.target, read.settled), read.time_ms)
        return KeysPresent(moment, read.keys)

    def note_chunk(
        self, table: MySqlTable, chunk: CopyChunk[BinlogMoment, SourceRow], *, is_first: bool
    ) -> None:
        """See ``CopyChunkReader``."""
        self._states.count_rows(table.full_name, len(chunk.rows), first=is_first)
        self._written = chunk if chunk.cursor is not None else None
        if chunk.cursor is None:
            logger.info("%s is copied as of %s", table.full_name, chunk.moment.place)

    def note_whole(self, table: MySqlTable) -> None:
        """See ``CopyChunkReader``."""
        self._copied.add(table.full_name)
        self._states.note_whole(table.full_name)


class SnapshotRows(ChunkRows[MySqlTable, BinlogMoment, SourceRow]):
    """See ``ChunkRows``. The reading thread has assigned the positions."""

    def __init__(self, snapshots: Snapshots) -> None:
        self._snapshots = snapshots

    def rows_of(
        self, table: MySqlTable, chunk: CopyChunk[BinlogMoment, SourceRow]
    ) -> Sequence[SourceRow]:
        """See ``ChunkRows``."""
        del table
        return chunk.moment.window.filter_rows(chunk.rows)

    def row_of(
        self, table: MySqlTable, key: Key, chunk: CopyChunk[BinlogMoment, SourceRow]
    ) -> SourceRow | None:
        """See ``ChunkRows``."""
        if key in chunk.moment.window.keys:
            return None
        rows = chunk.rows or self.deletes_of(table, [key], chunk.moment)
        return rows[0]

    def deletes_of(
        self, table: MySqlTable, keys: Sequence[Key], moment: BinlogMoment
    ) -> list[SourceRow]:
        """See ``ChunkRows``."""
        number, prefix = self._snapshots.number, self._snapshots.prefix(moment.place)
        changed = moment.window.keys
        return [
            SourceRow(table.target, key, None, True, moment.time_ms, prefix + number())
            for key in keys
            if key not in changed
        ]
