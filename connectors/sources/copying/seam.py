"""What a kind of source implements so that ``CopyEngine`` can copy and follow its tables.

There are three parts, each an abstract class: ``LogFollower`` (the server's log),
``CopyChunkReader`` (rows as of a moment) and ``ChunkRows`` (positions for rows that were
read). They share the ``CopyMoment``: the point of the log that a chunk belongs to.

The engine's one task calls all methods, except the two that are documented otherwise. So
they need no locks and may share state.
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
    """Rows of a table could not be read, for a reason that concerns only this table."""


class CopiedTable(Protocol):
    """A table at the server, and its name and key in rowtide."""

    @property
    def full_name(self) -> str: ...

    @property
    def target(self) -> str:
        """The table's name in rowtide."""
        ...

    @property
    def key_names(self) -> Sequence[str]:
        """The columns of its key in rowtide's order."""
        ...


APiece = TypeVar("APiece", contravariant=True)


class CopyMoment(Protocol[APiece]):
    """The point of the log at which rows were read. Each read has a new one."""

    def includes(self, piece: APiece) -> bool:
        """True if the rows may include a piece's change. The piece is then written before them."""
        ...

    def note(self, piece: APiece) -> None:
        """Record a piece that is written on the way to this moment."""
        ...

    @property
    def is_exact(self) -> bool:
        """True if log and rows are consistent. Otherwise the rows are read again."""
        ...


Table = TypeVar("Table", bound=CopiedTable)
Piece = TypeVar("Piece")
M = TypeVar("M", bound=CopyMoment)  # type: ignore[type-arg]
Row = TypeVar("Row")
Server = TypeVar("Server")


@dataclass(slots=True)
class CopyChunk(Generic[M, Row]):
    """Rows of a table as of a moment. The next chunk begins after the key ``cursor``.

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

    Everything up to ``at`` is written. ``bytes`` of the log are not written yet.
    ``now_ms`` is the server's time.
    """

    at: Position
    end: Position
    now_ms: int
    bytes: int


class LogFollower(ABC, Generic[Table, Piece, M, Server]):
    """Knows the log: the meaning of its pieces, and how far it is written."""

    def __init__(self) -> None:
        self.lag = LagMeter()
        """``note_durable`` passes it the commit times of written changes."""

    @property
    def is_ready(self) -> bool:
        """True if tables may be copied. Until then the log is only followed."""
        return True

    @abstractmethod
    def version(self, table: str) -> int:
        """Return a number that changes when what was read of a table becomes invalid."""

    @abstractmethod
    def rows_of(self, piece: Piece) -> Sequence[SourceRow]:
        """Return the rows of the next piece, and record its position."""

    @abstractmethod
    def has_event(self, piece: Piece) -> bool:
        """True if a piece needs more than writing rows."""

    @abstractmethod
    async def handle_event(self, piece: Piece, rows: list[SourceRow]) -> list[SourceRow]:
        """Handle what a piece needs beside its rows. Return the rows that are still to be
        written.

        ``rows`` end with the piece's own. If something must follow them, write them
        first.
        """

    @abstractmethod
    def note_durable(self) -> None:
        """Record in the checkpoint that all pieces so far are durable in rowtide."""

    def is_beyond(self, moment: M) -> bool:
        """True if more was written than the moment includes: its rows can't be used."""
        del moment
        return False

    def is_at(self, moment: M) -> bool:
        """True if all that a moment includes is written, whatever the next piece is.

        Otherwise the engine learns this from the first piece that the moment does not
        include.
        """
        del moment
        return False

    def note_arrival(self, moment: M) -> None:
        """Record that all that a moment includes is written."""

    @abstractmethod
    async def look_around(self) -> bool:
        """Do periodic work. False if this life must end so that the next one starts."""

    @abstractmethod
    async def resolve(
        self, table: Table, why: TableUnread, follow: Callable[[M], Awaitable[bool]]
    ) -> None:
        """Find out why a table was not read. Stop following a table that can't be
        followed.

        ``follow`` writes the log up to a moment. It returns False if that is not reached.
        """

    @abstractmethod
    async def measure(self, server: Server) -> Distance:
        """Return the distance to the log's end. ``server`` is a separate session. For any task."""


class CopyChunkReader(ABC, Generic[Table, M, Row]):
    """Reads rows as of a moment, in short transactions.

    A read returns None if the server can't show a moment yet that includes all that was
    written. It raises TableUnread if the table itself prevents it. ``read_next`` runs
    beside everything else. The engine's task makes all other reads.
    """

    sweeps_first = False
    """True if rows that the source lacks are deleted before the copy, False if after it."""

    async def begin_copying(self) -> None:
        """Prepare for reads. Called before each read except ``read_next``."""

    def end_copying(self) -> None:
        """Release what only reads need: there is nothing to copy now."""

    @abstractmethod
    async def read_chunk(self, table: Table, cursor: list[str] | None) -> CopyChunk[M, Row] | None:
        """Return the rows after a cursor, from the first row if it is None."""

    async def read_next(
        self, table: Table, cursor: list[str], rows: int
    ) -> CopyChunk[M, Row] | None:
        """Return the rows after a cursor while the chunk before, of ``rows`` rows, is written."""
        del rows
        return await self.read_chunk(table, cursor)

    @abstractmethod
    async def read_row(self, table: Table, key: Key) -> CopyChunk[M, Row] | None:
        """Return a chunk with the row of a key, without rows if there is none."""

    @abstractmethod
    async def read_keys(self, table: Table, keys: Sequence[Key]) -> KeysPresent[M] | None:
        """Return which keys the table has."""

    async def note_too_early(self) -> None:
        """Record that a read returned None. It will be repeated."""

    def note_read(self) -> None:
        """Record that a read returned rows or keys."""

    @abstractmethod
    def note_chunk(self, table: Table, chunk: CopyChunk[M, Row], *, is_first: bool) -> None:
        """Count the rows of a durable chunk; ``is_first`` of its table."""

    @abstractmethod
    def note_whole(self, table: Table) -> None:
        """Record that every row of a table is copied and deleted ones are removed."""


class ChunkRows(ABC, Generic[Table, M, Row]):
    """Assigns positions to rows that were read, above all that was written before.

    Each method is called just before its rows are written, when the log is written up to
    the moment.
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
