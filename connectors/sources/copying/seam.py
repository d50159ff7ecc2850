"""What a kind of source implements so that ``CopyEngine`` can copy and follow its tables.

Three parts, each an abstract class: ``LogFollower`` (the server's log), ``CopyChunkReader`` (rows
as of a moment) and ``ChunkRows`` (positions for rows that were read). They meet in the
``CopyMoment``: the point of the log that a chunk belongs to.

All methods run in the event loop's one task of the engine, except the two that say otherwise. So
they need no locks, and they may share state with each other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar

from rowtide.connectors.rows import Key, SourceRow
from rowtide.connectors.sources.lag import LagMeter, Position

__all__ = [
    "ChunkRows",
    "CopiedTable",
    "CopyChunk",
    "CopyChunkReader",
    "CopyMoment",
    "Distance",
    "KeysPresent",
    "LogFollower",
    "Seam",
    "TableUnread",
]


class TableUnread(Exception):
    """Rows of a table were not read, for a reason of the table's own."""


class CopiedTable(Protocol):
    """A table at the server, and what it is in rowtide."""

    @property
    def full_name(self) -> str: ...

    @property
    def target(self) -> str:
        """Return the table's name in rowtide."""
        ...

    @property
    def key_names(self) -> Sequence[str]:
        """Return the columns of its key, in rowtide's order."""
        ...


APiece = TypeVar("APiece", contravariant=True)


class CopyMoment(Protocol[APiece]):
    """The point of the log that rows were read at. A new one for each read."""

    def includes(self, piece: APiece) -> bool:
        """True if the rows may have what a piece of the log changes: it is written before them."""
        ...

    def note(self, piece: APiece) -> None:
        """Take notice of a piece that is written on the way to this moment."""
        ...

    @property
    def is_exact(self) -> bool:
        """True if the log and the rows fit together. Otherwise the rows are read again."""
        ...


Table = TypeVar("Table", bound=CopiedTable)
Piece = TypeVar("Piece")
M = TypeVar("M", bound=CopyMoment)  # type: ignore[type-arg]
Row = TypeVar("Row")
Server = TypeVar("Server")


@dataclass(slots=True)
class CopyChunk(Generic[M, Row]):
    """Rows of a table as of a moment. ``cursor`` is the key that the next chunk begins behind.

    At the table's end ``cursor`` is None.
    """

    moment: M
    rows: Sequence[Row]
    cursor: list[str] | None


@dataclass(slots=True)
class KeysPresent(Generic[M]):
    """Which of some keys a table has as of a moment."""

    moment: M
    keys: Collection[Key]


class Distance(NamedTuple):
    """How far a source is from its log's end, which was at ``end`` at ``now_ms``.

    ``at`` is up to where everything is written. ``bytes`` of the log are not yet written.
    ``now_ms`` is the server's time.
    """

    at: Position
    end: Position
    now_ms: int
    bytes: int


class LogFollower(ABC, Generic[Table, Piece, M, Server]):
    """Knows the log: what its pieces mean, and how far it is written."""

    def __init__(self) -> None:
        self.lag = LagMeter()
        """``note_durable`` reports to it when what it wrote was committed."""

    @property
    def is_ready(self) -> bool:
        """True if tables may be copied by now. Until then the log is only followed."""
        return True

    @abstractmethod
    def version(self, table: str) -> int:
        """Return a number that is another one once what was read of a table is void."""

    @abstractmethod
    def rows_of(self, piece: Piece) -> Sequence[SourceRow]:
        """Return the rows to write for a piece. It is the next one; note where it is."""

    @abstractmethod
    def has_event(self, piece: Piece) -> bool:
        """True if more than rows is to be written for a piece."""

    @abstractmethod
    async def handle_event(self, piece: Piece, rows: list[SourceRow]) -> list[SourceRow]:
        """Do what a piece asks for beside its rows; return the rows that are still to be written.

        ``rows`` end with the piece's own. What must follow them writes them first.
        """

    @abstractmethod
    def note_durable(self) -> None:
        """Note in the checkpoint that all pieces up to here are durable in rowtide."""

    def is_beyond(self, moment: M) -> bool:
        """True if more was written than the moment has: its rows can't be used any more."""
        del moment
        return False

    def is_at(self, moment: M) -> bool:
        """True if all that a moment has is written, whatever the next piece is.

        The engine finds out by itself once it meets a piece that the moment does not include.
        """
        del moment
        return False

    def note_reached(self, moment: M) -> None:
        """Take notice that all that a moment has is written."""

    @abstractmethod
    async def look_around(self) -> bool:
        """Do what is due by the clock; False if this life must end, and the next one begin."""

    @abstractmethod
    async def resolve(
        self, table: Table, why: TableUnread, follow: Callable[[M], Awaitable[bool]]
    ) -> None:
        """Find out why a table was not read. A table that can't be followed leaves the tables.

        ``follow`` writes the log up to a moment; it returns False if that is not reached.
        """

    @abstractmethod
    async def measure(self, server: Server) -> Distance:
        """Return how far it is; ``server`` is a session of its own. For any task."""


class CopyChunkReader(ABC, Generic[Table, M, Row]):
    """Reads rows as of a moment, in short transactions.

    A read returns None where the server can't show a moment yet that has all that was written.
    It raises TableUnread for a reason of the table's own. ``read_next`` runs beside everything
    else; all other reads are made by the engine's task.
    """

    sweeps_first = False
    """True if rows that are gone are deleted before the copy, False if after it."""

    async def begin_copying(self) -> None:
        """Prepare for reads. Called before each one, except ``read_next``."""

    def end_copying(self) -> None:
        """Forget what only reads need: nothing is to be copied now."""

    @abstractmethod
    async def read_chunk(self, table: Table, cursor: list[str] | None) -> CopyChunk[M, Row] | None:
        """Return the rows behind a cursor, from the first one without."""

    async def read_next(
        self, table: Table, cursor: list[str], rows: int
    ) -> CopyChunk[M, Row] | None:
        """Return the rows behind a cursor. The chunk before it, of so many rows, is written now."""
        del rows
        return await self.read_chunk(table, cursor)

    @abstractmethod
    async def read_row(self, table: Table, key: Key) -> CopyChunk[M, Row] | None:
        """Return a chunk with the row of a key, without rows where there is none."""

    @abstractmethod
    async def read_keys(self, table: Table, keys: Sequence[Key]) -> KeysPresent[M] | None:
        """Return which keys the table has."""

    async def note_too_early(self) -> None:
        """Take notice that a read returned None. It is made again."""

    def note_read(self) -> None:
        """Take notice that a read returned rows or keys."""

    @abstractmethod
    def note_chunk(self, table: Table, chunk: CopyChunk[M, Row], *, is_first: bool) -> None:
        """Count the rows of a chunk that is durable; ``is_first`` of its table."""

    @abstractmethod
    def note_whole(self, table: Table) -> None:
        """Take notice that every row of a table is copied, and none is left that is gone."""


class ChunkRows(ABC, Generic[Table, M, Row]):
    """Gives positions to rows that were read, above all that was written before.

    Each method is called just before its rows are written, with the log written up to the moment.
    """

    @abstractmethod
    def rows_of(self, table: Table, chunk: CopyChunk[M, Row]) -> Sequence[SourceRow]:
        """Return the rows of a chunk, without those that the log has changed since."""

    @abstractmethod
    def row_of(self, table: Table, key: Key, chunk: CopyChunk[M, Row]) -> SourceRow | None:
        """Return the row of a key, or its deletion; None if the log has changed it since."""

    @abstractmethod
    def deletes_of(self, table: Table, keys: Sequence[Key], moment: M) -> list[SourceRow]:
        """Return deletions of keys that a moment lacks, except those that the log made since."""


@dataclass(frozen=True, slots=True)
class Seam(Generic[Table, Piece, M, Row, Server]):
    """The parts of one source, for one life."""

    log: LogFollower[Table, Piece, M, Server]
    reader: CopyChunkReader[Table, M, Row]
    rows: ChunkRows[Table, M, Row]
