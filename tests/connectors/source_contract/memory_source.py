"""A third kind of source, over tables in memory: the smallest that the copy engine can run.

It is for tests of the engine, and it shows what a new source implements. A transaction of the
server has a number, and a moment is the number of the last one that a read has seen.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from itertools import count
from struct import Struct
from typing import Any, ClassVar, NamedTuple, Self

from rowtide.connectors.rows import Key, SourceRow, TableShape
from rowtide.connectors.sources.copying.backlog import Backlog
from rowtide.connectors.sources.copying.checkpoint_keeper import CheckpointKeeper
from rowtide.connectors.sources.copying.engine import CopyEngine
from rowtide.connectors.sources.copying.seam import (
    ChunkRows,
    CopyChunk,
    CopyChunkReader,
    Distance,
    KeysPresent,
    LogFollower,
    Seam,
    TableUnread,
)
from rowtide.connectors.sources.life import ServerSource
from rowtide.connectors.sources.pipe import Pipe
from rowtide.connectors.sources.progress import SourceProgress, TableProgress
from rowtide.connectors.sources.source import SourceTarget
from rowtide.core.values.errors import first_failure
from rowtide.core.values.schema import INTEGER, KeyColumn

__all__ = [
    "Change",
    "MemoryFollower",
    "MemoryReader",
    "MemoryServer",
    "MemorySource",
    "MemoryTable",
    "NumberMoment",
    "NumbersCheckpoint",
    "Transaction",
    "rows_of",
]

AFTER_ALL = 0xFFFFFFFF
WEIGHT_MAX = 100
_PREFIX = Struct(">IQII")

Change = tuple[str, int, int | None]
"""A table, a key, and the row's new value, None where the row is deleted."""


class Transaction(NamedTuple):
    """What the server's log has: a number, and changes, or a table that is emptied before them."""

    number: int
    changes: tuple[Change, ...]
    time_ms: int
    emptied: str = ""


class MemoryServer:
    """Tables of integers, and the log of all that was done. For any thread.

    The next ``too_early`` reads return None. ``unreadable`` tables refuse to be read.
    """

    def __init__(self) -> None:
        self.tables: dict[str, dict[int, int]] = {}
        self.log: list[Transaction] = []
        self.too_early = 0
        self.unreadable: set[str] = set()
        self._changed = threading.Condition()

    def commit(self, *changes: Change, emptied: str = "") -> None:
        """Change rows at once."""
        with self._changed:
            time_ms = time.time_ns() // 1_000_000
            self.log.append(Transaction(len(self.log) + 1, changes, time_ms, emptied))
            if emptied:
                self.tables[emptied].clear()
            for table, key, value in changes:
                if value is None:
                    self.tables[table].pop(key, None)
                else:
                    self.tables[table][key] = value
            self._changed.notify_all()

    def read(self, table: str) -> tuple[int, dict[int, int]] | None:
        """Return the log's last number and a table's rows as of it."""
        with self._changed:
            if table in self.unreadable:
                raise TableUnread(f"{table} can't be read")
            if self.too_early:
                self.too_early -= 1
                return None
            return len(self.log), dict(self.tables[table])

    def follow(
        self, put: Callable[[list[Transaction]], None], after: int, is_over: threading.Event
    ) -> None:
        """Put the transactions behind a number, as they come, until it is over."""
        while not is_over.is_set():
            with self._changed:
                self._changed.wait_for(partial(self._has, after, is_over))
                found = self.log[after:]
            put(found)
            after += len(found)

    def _has(self, after: int, is_over: threading.Event) -> bool:
        return len(self.log) > after or is_over.is_set()

    def wake(self) -> None:
        """Let ``follow`` find out that it is over."""
        with self._changed:
            self._changed.notify_all()


class MemoryTable(NamedTuple):
    """See ``CopiedTable``."""

    full_name: str
    key_names: Sequence[str] = ("id",)

    @property
    def target(self) -> str:
        return self.full_name


@dataclass(slots=True)
class NumbersCheckpoint(SourceProgress[TableProgress]):
    """What is durable: all transactions up to ``number``."""

    kind: ClassVar[str] = "memory"

    number: int = 0

    @classmethod
    def of(cls, found: dict[str, Any]) -> Self:
        tables = {name: TableProgress(**kept) for name, kept in found.pop("tables").items()}
        return cls(**found, tables=tables)

    def parts(self) -> Mapping[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class NumberMoment:
    """The last transaction that a read has seen."""

    number: int
    is_exact: bool = True

    def includes(self, piece: Transaction) -> bool:
        return piece.number <= self.number

    def note(self, piece: Transaction) -> None:
        """Nothing is left out of a chunk."""


class MemoryRows(ChunkRows[MemoryTable, NumberMoment, tuple[int, int]]):
    """Rows that were read get the position after all changes of their moment."""

    def __init__(self, checkpoint: NumbersCheckpoint) -> None:
        self._checkpoint = checkpoint
        self._numbers = count(1)

    def rows_of(
        self, table: MemoryTable, chunk: CopyChunk[NumberMoment, tuple[int, int]]
    ) -> Sequence[SourceRow]:
        return [self._row(table, key, value, chunk.moment) for key, value in chunk.rows]

    def row_of(
        self, table: MemoryTable, key: Key, chunk: CopyChunk[NumberMoment, tuple[int, int]]
    ) -> SourceRow | None:
        number = _number(key)
        return self._row(table, number, dict(chunk.rows).get(number), chunk.moment)

    def deletes_of(
        self, table: MemoryTable, keys: Sequence[Key], moment: NumberMoment
    ) -> list[SourceRow]:
        return [self._row(table, _number(key), None, moment) for key in keys]

    def _row(
        self, table: MemoryTable, key: int, value: int | None, moment: NumberMoment
    ) -> SourceRow:
        begin = _prefix(self._checkpoint.epoch, moment.number, AFTER_ALL, self._checkpoint.run)
        return _row(table.target, key, value, begin + next(self._numbers).to_bytes(8, "big"))


class MemoryReader(CopyChunkReader[MemoryTable, NumberMoment, tuple[int, int]]):
    """Reads in threads, as a source of a server does."""

    def __init__(self, server: MemoryServer, chunk_rows: int) -> None:
        self._server = server
        self._chunk_rows = chunk_rows

    async def read_chunk(
        self, table: MemoryTable, cursor: list[str] | None
    ) -> CopyChunk[NumberMoment, tuple[int, int]] | None:
        read = await asyncio.to_thread(self._server.read, table.full_name)
        if read is None:
            return None
        after = int(cursor[0]) if cursor else None
        number, found = read
        rows = [row for row in sorted(found.items()) if after is None or row[0] > after]
        chunk = rows[: self._chunk_rows]
        end = [str(chunk[-1][0])] if len(rows) > self._chunk_rows else None
        return CopyChunk(NumberMoment(number), chunk, end)

    async def read_row(
        self, table: MemoryTable, key: Key
    ) -> CopyChunk[NumberMoment, tuple[int, int]] | None:
        read = await asyncio.to_thread(self._server.read, table.full_name)
        if read is None:
            return None
        rows = [row for row in read[1].items() if row[0] == _number(key)]
        return CopyChunk(NumberMoment(read[0]), rows, None)

    async def read_keys(
        self, table: MemoryTable, keys: Sequence[Key]
    ) -> KeysPresent[NumberMoment] | None:
        read = await asyncio.to_thread(self._server.read, table.full_name)
        if read is None:
            return None
        return KeysPresent(NumberMoment(read[0]), {key for key in keys if _number(key) in read[1]})

    def note_chunk(
        self,
        table: MemoryTable,
        chunk: CopyChunk[NumberMoment, tuple[int, int]],
        *,
        is_first: bool,
    ) -> None:
        """No one asks how many rows were copied."""

    def note_whole(self, table: MemoryTable) -> None:
        """Updates are whole rows, before and after a copy."""


class MemoryFollower(LogFollower[MemoryTable, Transaction, NumberMoment, MemoryServer]):
    """A table that can't be read leaves the tables for this life."""

    def __init__(
        self,
        target: SourceTarget,
        checkpoint: NumbersCheckpoint,
        tables: dict[str, MemoryTable],
        keeper: CheckpointKeeper,
    ) -> None:
        super().__init__()
        self._target = target
        self._checkpoint = checkpoint
        self._tables = tables
        self._keeper = keeper
        self._reached: Transaction | None = None
        self._changes = 0

    def version(self, table: str) -> int:
        return self._changes

    def rows_of(self, piece: Transaction) -> Sequence[SourceRow]:
        self._reached = piece
        return [] if piece.emptied else rows_of(piece, self._checkpoint.epoch)

    def has_event(self, piece: Transaction) -> bool:
        return bool(piece.emptied)

    async def handle_event(self, piece: Transaction, rows: list[SourceRow]) -> list[SourceRow]:
        """Delete all rows of a table. Then write the rows of the same transaction."""
        if rows:
            await self._target.write(rows)
        begin = _prefix(self._checkpoint.epoch, piece.number)
        keys = await self._target.keys(piece.emptied, None, limit=1_000_000)
        deletes = [
            _row(piece.emptied, _number(key), None, begin + at.to_bytes(8, "big"))
            for at, key in enumerate(keys)
        ]
        if deletes:
            await self._target.write(deletes)
        self._changes += 1
        return rows_of(piece, self._checkpoint.epoch)

    def note_durable(self) -> None:
        if self._reached is not None:
            self._checkpoint.number = self._reached.number
            self.lag.note_written(self._reached.time_ms)
            self._reached = None
            self._keeper.note_change()

    def is_beyond(self, moment: NumberMoment) -> bool:
        return self._checkpoint.number > moment.number

    def is_at(self, moment: NumberMoment) -> bool:
        return self._checkpoint.number == moment.number

    async def look_around(self) -> bool:
        return True

    async def resolve(
        self,
        table: MemoryTable,
        why: TableUnread,
        follow: Callable[[NumberMoment], Awaitable[bool]],
    ) -> None:
        del self._tables[table.full_name]
        self._changes += 1

    async def measure(self, server: MemoryServer) -> Distance:
        end, at = len(server.log), self._checkpoint.number
        return Distance((at,), (end,), time.time_ns() // 1_000_000, end - at)


class MemorySource(ServerSource[MemoryServer]):
    """See ``Source``: all tables that the server has as it begins."""

    def __init__(self, server: MemoryServer, *, chunk_rows: int = 40) -> None:
        super().__init__()
        self._server = server
        self._chunk_rows = chunk_rows

    def map_errors(self) -> AbstractContextManager[None]:
        return nullcontext()

    def begin_again(self, checkpoint: bytes, tables: Sequence[str] = ()) -> bytes:
        return NumbersCheckpoint.begin_again(checkpoint, tables, target=lambda name: name)

    async def run(self, target: SourceTarget) -> None:
        checkpoint = NumbersCheckpoint.parse(await target.checkpoint())
        if not checkpoint.epoch:
            checkpoint.epoch, checkpoint.number = 1, len(self._server.log)
        checkpoint.run += 1
        tables = {name: MemoryTable(name) for name in self._server.tables}
        for name in tables:
            await target.ensure_table(TableShape(name, (KeyColumn("id", INTEGER),)))
            checkpoint.tables.setdefault(name, TableProgress())
        await target.keep(checkpoint.encode())
        pipe: Pipe[Transaction] = Pipe(len, weight_max=WEIGHT_MAX)
        keeper = CheckpointKeeper(target, checkpoint)
        seam = Seam(
            MemoryFollower(target, checkpoint, tables, keeper),
            MemoryReader(self._server, self._chunk_rows),
            MemoryRows(checkpoint),
        )
        engine = CopyEngine(target, tables, seam, backlog=Backlog(pipe), keeper=keeper)
        self.begin_life(engine, self._server)
        is_over = threading.Event()
        try:
            after = checkpoint.number
            pipe.start(lambda: self._server.follow(pipe.put, after, is_over), "memory log")
            await engine.run()
        except BaseExceptionGroup as group:
            raise first_failure(group) from group
        finally:
            self.end_life()
            is_over.set()
            pipe.close()
            self._server.wake()
            await asyncio.to_thread(pipe.join)


def rows_of(piece: Transaction, epoch: int) -> list[SourceRow]:
    """Return the rows to write. Their positions are the same however often they are read."""
    return [
        _row(table, key, value, _prefix(epoch, piece.number, change) + bytes(8), piece.time_ms)
        for change, (table, key, value) in enumerate(piece.changes, 1)
    ]


def _row(table: str, key: int, value: int | None, position: bytes, time_ms: int = 0) -> SourceRow:
    columns = None if value is None else {"v": value}
    return SourceRow(table, (("id", key),), columns, True, time_ms, position)


def _prefix(epoch: int, number: int, change: int = 0, run: int = 0) -> bytes:
    """Return the first 20 of a position's 28 bytes; eight of a rising number follow."""
    return _PREFIX.pack(epoch, number, change, run)


def _number(key: Key) -> int:
    [(_, number)] = key
    assert isinstance(number, int), "keys are integers"
    return number
