"""What the runtime asks of a source, and what it gives to one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from rowtide.connectors.rows import Key, SourceRow, TableShape
from rowtide.core.values.errors import Rejected, StoreError
from rowtide.core.values.variant import Scalar

__all__ = [
    "Behind",
    "ComparableSource",
    "CopiesRows",
    "LeavesTraces",
    "Measurable",
    "NamesTables",
    "Repeatable",
    "RowRefused",
    "Source",
    "SourceSide",
    "SourceTarget",
    "TableReporting",
    "TableState",
]


class RowRefused(Rejected):
    """``row`` can't be written, however often it is tried.

    Those before it are durable; those behind it may be or not. A source leaves it out, or mends it,
    and writes the others once more.
    """

    def __init__(self, row: SourceRow, error: StoreError) -> None:
        super().__init__(error.code, error.message)
        self.row = row


class SourceTarget(Protocol):
    """Where a source writes: the tables of an instance.

    Every method raises ``StoreError``; after ``OutcomeUnknown`` and ``Unavailable`` the same call
    may be made again, because shards skip what they have.
    """

    async def ensure_table(self, table: TableShape) -> None:
        """Make a table with a stream where it is missing. Raises ``Rejected`` for another key."""
        ...

    def prepared(self, rows: Sequence[SourceRow]) -> Sequence[SourceRow]:
        """Return the same rows, of one table, with what ``write`` can do ahead of its call done.

        Nothing is written, and they need not be. For any thread, while others are written.
        """
        ...

    async def write(self, rows: Sequence[SourceRow]) -> None:
        """Make the changes, in order; return when every one is durable. Raises ``RowRefused``."""
        ...

    async def keys(self, table: str, after: Key | None, *, limit: int) -> Sequence[Key]:
        """Return up to ``limit`` keys of a table's rows, those that follow ``after``, in order.

        A source that has missed changes finds out by them what is there no more.
        """
        ...

    async def checkpoint(self) -> bytes:
        """Return what was last kept by ``keep``; empty where nothing was."""
        ...

    async def keep(self, checkpoint: bytes) -> None:
        """Keep, with what a source needs to go on from there, how far everything is written.

        It is a source's own text. Only one process may be the source at a time: raises ``Rejected``
        where another has taken over.
        """
        ...


class Source(Protocol):
    """A system whose changes become rows of tables."""

    async def run(self, target: SourceTarget) -> None:
        """Copy what is there, follow what changes, until cancelled or ``stop``.

        Raises ``Unavailable`` where the source can't be reached: it is run again after a pause.
        """
        ...

    def stop(self) -> None:
        """Let ``run`` end at the next place from which nothing is repeated."""
        ...


@runtime_checkable
class Repeatable(Protocol):
    """A source that can be made to copy its tables once more."""

    def begin_again(self, checkpoint: bytes, tables: Sequence[str] = ()) -> bytes:
        """Return the checkpoint of a source that kept this one and is to copy tables again.

        ``tables`` are names at the source or in rowtide; without any it copies all tables. Raises
        ``Rejected`` for a table that the source does not know. Positions must go on rising: shards
        skip what is not above what they have.
        """
        ...


@dataclass(frozen=True, slots=True)
class Behind:
    """How far a source is behind its server.

    ``seconds``: what was committed before that is written, or will be by a copy; None where nobody
    can tell yet. ``bytes`` are of the server's log, whatever they are about. ``copying`` is how
    many tables are still to be copied, or compared with what rowtide has of them.
    """

    seconds: float | None
    bytes: int
    copying: int


@runtime_checkable
class Measurable(Protocol):
    """A source that can tell how far it is behind."""

    async def behind(self) -> Behind | None:
        """Ask the server, while ``run`` runs; None where it isn't connected."""
        ...


@dataclass(frozen=True, slots=True)
class TableState:
    """How one table of a source stands.

    ``table`` is its full name at the source, ``target`` its name in rowtide. ``state`` is
    ``copying``, ``following`` or ``failed``. ``rows_copied`` counts the rows of a copy that runs,
    and ``rows_estimate`` is how many the server believes there are, None where it does not know.
    ``reason`` says why a table failed, and ``remedy`` what an operator can do about it. Both are
    empty for a table that did not fail, except the ``reason`` of a copy that waits. The source
    follows its other tables meanwhile.
    """

    table: str
    target: str
    state: str
    rows_copied: int = 0
    rows_estimate: int | None = None
    reason: str = ""
    remedy: str = ""


@runtime_checkable
class TableReporting(Protocol):
    """A source that reports a state for each of its tables."""

    def table_states(self) -> Sequence[TableState]:
        """Return the states, sorted by ``table``. Does no I/O; empty while nothing runs."""
        ...


@runtime_checkable
class NamesTables(Protocol):
    """A source that knows what its server's tables are called in rowtide."""

    def target_of(self, table: str) -> str | None:
        """Return the name in rowtide of a table by its full name; None if it is not followed."""
        ...


@runtime_checkable
class CopiesRows(Protocol):
    """A source that can copy single rows again while it runs."""

    async def copy_again(
        self, table: str, key: Sequence[Scalar], write: Callable[[SourceRow], Awaitable[None]]
    ) -> None:
        """Give ``write`` the row of a key as it is at the source; its deletion where there is none.

        ``key`` are the values of rowtide's columns.

        In its turn: what the source has done up to then is written before, all else after. Raises
        ``Rejected`` for a table that is not followed, ``Unavailable`` while nothing is.
        """
        ...


@runtime_checkable
class LeavesTraces(Protocol):
    """A source that makes something at its server, which stays there when nobody runs it."""

    def traces(self) -> Sequence[str]:
        """Return what there may be, in words for people: how to find it and be rid of it."""
        ...

    async def erase(self) -> Sequence[str]:
        """Remove it; return what is left, in the same words. Raises ``Unavailable``."""
        ...


class SourceSide(Protocol):
    """One table of a source as ``verify`` reads it: (encoded key, columns as rowtide has them)."""

    def rows(self) -> AsyncIterator[tuple[bytes, Mapping[str, Scalar]]]:
        """Give all rows, in any order, each as it is at some time of the reading."""
        ...

    async def look_up(self, keys: Sequence[bytes]) -> Mapping[bytes, Mapping[str, Scalar]]:
        """Return the rows of some keys as they are now; those that are not there are left out."""
        ...

    async def close(self) -> None:
        """Let go of connections."""
        ...


class ComparableSource(Protocol):
    """A source whose rows can be read beside it."""

    async def side(self, table: str) -> SourceSide:
        """Return what becomes of rowtide's table ``table``. Raises ``SettingsRefused``."""
        ...
