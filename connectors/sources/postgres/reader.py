"""Chunks of PostgreSQL's tables for the copy engine: required transactions, and positions
of rows.

A moment sees some transactions and not others. The stream has transactions in another
order than the server makes them visible. So a moment must see all transactions written so
far, by their numbers. Rows may pass through earlier states after a chunk, but end right,
because all that the chunk has seen follows. The mark that is written after each chunk is
a transaction that the chunk does not see. So the copy of an idle table does not wait for
another transaction.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count

from rowtide.connectors.rows import Key, SourceRow
from rowtide.connectors.sources.copying.seam import (
    ChunkRows,
    CopyChunk,
    CopyChunkReader,
    KeysPresent,
)
from rowtide.connectors.sources.postgres import chunks as reads
from rowtide.connectors.sources.postgres.chunks import Chunks, Required
from rowtide.connectors.sources.postgres.position import (
    AFTER_ALL_CHANGES,
    PostgresCheckpoint,
    prefix,
)
from rowtide.connectors.sources.postgres.rows import Cells
from rowtide.connectors.sources.postgres.server import PostgresServer
from rowtide.connectors.sources.postgres.stream import StreamPiece
from rowtide.connectors.sources.postgres.tables import PostgresTable
from rowtide.connectors.sources.postgres.visibility import Visible
from rowtide.connectors.sources.postgres.waiting import Waiting

__all__ = ["StreamMoment", "StreamReader", "StreamRows", "WrittenTransactions"]

logger = logging.getLogger(__name__)

_Row = tuple[Key, Cells]


@dataclass(frozen=True, slots=True)
class StreamMoment:
    """The transactions that a read saw, and the server's time of the read."""

    visible: Visible
    time_ms: int
    is_exact: bool = True

    def includes(self, piece: StreamPiece) -> bool:
        """See ``Moment``. A transaction is included as a whole."""
        return not piece.first or self.visible.sees(piece.xid)

    def note(self, piece: StreamPiece) -> None:
        """See ``Moment``."""


class WrittenTransactions:
    """The transactions that every moment of a copy must see.

    These are all below ``floor``, and those recorded since. ``floor`` is None while
    nothing is copied.
    """

    def __init__(self) -> None:
        self.floor: int | None = None
        self._xids: set[int] = set()

    def begin(self, floor: int) -> None:
        """Record transactions from here on."""
        self.floor = floor
        self._xids.clear()

    def note(self, xid: int) -> None:
        """Record a transaction that is written."""
        if self.floor is not None:
            self._xids.add(xid)

    def forget_notes(self) -> None:
        """Forget the recorded transactions: a moment has seen them, so later ones do too."""
        self._xids.clear()

    def build_requirement(self) -> Required:
        """Return what a moment must see now."""
        assert self.floor is not None, "a copy began"
        return Required(self.floor, frozenset(self._xids))


class StreamReader(CopyChunkReader[PostgresTable, StreamMoment, _Row]):
    """See ``CopyChunkReader``. ``server`` is a session beside that of ``chunks``.

    Tables in ``copied`` are shared with the stream's thread: their updates are merges.
    """

    sweeps_first = True

    def __init__(
        self,
        chunks: Chunks,
        server: PostgresServer,
        *,
        written: WrittenTransactions,
        checkpoint: PostgresCheckpoint,
        copied: set[str],
        waiting: Waiting,
    ) -> None:
        self._chunks = chunks
        self._server = server
        self._written = written
        self._checkpoint = checkpoint
        self._copied = copied
        self._waiting = waiting

    async def begin_copying(self) -> None:
        """See ``CopyChunkReader``. Records which transactions a moment must see."""
        if self._written.floor is None:
            # Like the start of a slot: once all transactions of now have ended, no
            # transaction from before the recorded numbers becomes visible later.
            self._written.begin((await asyncio.to_thread(self._server.visible)).xmax)

    def end_copying(self) -> None:
        """See ``CopyChunkReader``."""
        self._written.floor = None

    async def read_chunk(
        self, table: PostgresTable, cursor: list[str] | None
    ) -> CopyChunk[StreamMoment, _Row] | None:
        """See ``CopyChunkReader``."""
        required = self._written.build_requirement()
        return _chunk(await asyncio.to_thread(self._chunks.read, table, cursor, required))

    async def read_row(
        self, table: PostgresTable, key: Key
    ) -> CopyChunk[StreamMoment, _Row] | None:
        """See ``CopyChunkReader``."""
        required = self._written.build_requirement()
        return _chunk(await asyncio.to_thread(self._chunks.again, table, key, required))

    async def read_keys(
        self, table: PostgresTable, keys: Sequence[Key]
    ) -> KeysPresent[StreamMoment] | None:
        """See ``CopyChunkReader``."""
        required = self._written.build_requirement()
        found = await asyncio.to_thread(self._chunks.existing, table, keys, required)
        if found is None:
            return None
        return KeysPresent(StreamMoment(found.visible, found.time_ms), found.keys)

    async def note_too_early(self) -> None:
        """See ``CopyChunkReader``. Reports the transaction that the copy waits for."""
        await self._waiting.note()

    def note_read(self) -> None:
        """See ``CopyChunkReader``."""
        self._waiting.over()

    def note_chunk(
        self, table: PostgresTable, chunk: CopyChunk[StreamMoment, _Row], *, is_first: bool
    ) -> None:
        """See ``CopyChunkReader``."""
        del is_first
        self._checkpoint.tables[table.full_name].rows += len(chunk.rows)
        if chunk.cursor is None:
            logger.info("%s is copied", table.full_name)

    def note_whole(self, table: PostgresTable) -> None:
        """See ``CopyChunkReader``."""
        self._copied.add(table.full_name)


def _chunk(found: reads.PostgresChunk | None) -> CopyChunk[StreamMoment, _Row] | None:
    if found is None:
        return None
    return CopyChunk(StreamMoment(found.visible, found.time_ms), found.rows, found.cursor)


class StreamRows(ChunkRows[PostgresTable, StreamMoment, _Row]):
    """See ``ChunkRows``. ``last_lsn`` is the commit of the last written piece of the stream."""

    def __init__(self, checkpoint: PostgresCheckpoint) -> None:
        self._checkpoint = checkpoint
        self._numbers = count()
        self.last_lsn = 0

    def rows_of(
        self, table: PostgresTable, chunk: CopyChunk[StreamMoment, _Row]
    ) -> Sequence[SourceRow]:
        """See ``ChunkRows``."""
        target, time_ms = table.target, chunk.moment.time_ms
        positions = self._positions(self.last_lsn, AFTER_ALL_CHANGES)
        return [
            SourceRow(target, key, cells, True, time_ms, next(positions))
            for key, cells in chunk.rows
        ]

    def row_of(
        self, table: PostgresTable, key: Key, chunk: CopyChunk[StreamMoment, _Row]
    ) -> SourceRow | None:
        """See ``ChunkRows``."""
        cells = dict(chunk.rows).get(key)
        position = next(self._positions(self.last_lsn, AFTER_ALL_CHANGES))
        return SourceRow(table.target, key, cells, True, chunk.moment.time_ms, position)

    def deletes_of(
        self, table: PostgresTable, keys: Sequence[Key], moment: StreamMoment
    ) -> list[SourceRow]:
        """See ``ChunkRows``."""
        return self.deletes_at(
            table, keys, self.last_lsn, AFTER_ALL_CHANGES, time_ms=moment.time_ms
        )

    def deletes_at(
        self, table: PostgresTable, keys: Iterable[Key], lsn: int, change: int, *, time_ms: int
    ) -> list[SourceRow]:
        """Return deletes after a change of the transaction that commits at an LSN."""
        positions = self._positions(lsn, change)
        return [SourceRow(table.target, key, None, True, time_ms, next(positions)) for key in keys]

    def _positions(self, lsn: int, change: int) -> Iterator[bytes]:
        checkpoint = self._checkpoint
        begin = prefix(checkpoint.epoch, lsn, change=change, run=checkpoint.run)
        return (begin + number.to_bytes(8, "big") for number in self._numbers)
