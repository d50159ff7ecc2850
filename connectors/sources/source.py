"""What the runtime needs of a source, and what it gives to one."""

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
    """``row`` can't be written, even if it is retried.

    The rows before it are durable. The rows after it may be durable or not. A source
    leaves the row out or changes it, and writes the others again.
    """

    def __init__(self, row: SourceRow, error: StoreError) -> None:
        super().__init__(error.code, error.message)
        self.row = row


class SourceTarget(Protocol):
    """Where a source writes: the tables of an instance.

    Every method raises ``StoreError``. After ``OutcomeUnknown`` and ``Unavailable`` the
    same call may be repeated, because shards skip what they have.
    """

    async def ensure_table(self, table: TableShape) -> None:
        """Create a table with a stream if it is missing. Raises ``Rejected`` for another key."""
        ...

    def prepare(self, rows: Sequence[SourceRow]) -> Sequence[SourceRow]:
        """Return the same rows, of one table, prepared so that ``write`` is faster.

        This writes nothing, and rows need not be prepared. May be called in any thread,
        also during a write.
        """
        ...

    async def write(self, rows: Sequence[SourceRow]) -> None:
        """Write the rows in order. Return when all are durable. Raises ``RowRefused``."""
        ...

    async def keys(self, table: str, after: Key | None, *, limit: int) -> Sequence[Key]:
        """Return up to ``limit`` keys of a table's rows that follow ``after``, in order.

        A source that missed changes uses them to find rows that it no longer has.
        """
        ...

    async def checkpoint(self) -> bytes:
        """Return the last checkpoint stored by ``keep``, empty if there is none."""
        ...

    async def keep(self, checkpoint: bytes) -> None:
        """Store a checkpoint: up to where everything is written, and what a restart
        needs.

        Its form is the source's own. Raises ``Rejected`` if another process has taken
        over: only one may be the source.
        """
        ...


class Source(Protocol):
    """A system whose changes become rows of tables."""

    async def run(self, target: SourceTarget) -> None:
        """Copy existing rows and follow changes, until cancelled or ``stop``.

        Raises ``Unavailable`` if the source can't be reached. It is run again after a
        pause.
        """
        ...

    def stop(self) -> None:
        """Make ``run`` end at the next position from which nothing is repeated."""
        ...


@runtime_checkable
class Repeatable(Protocol):
    """A source that can copy its tables again."""

    def begin_again(self, checkpoint: bytes, tables: Sequence[str] = ()) -> bytes:
        """Return a checkpoint from which the source copies tables again.

        ``checkpoint`` is the stored one. ``tables`` are names at the source or in
        rowtide; without any all tables are copied. Raises ``Rejected`` for a table that
        the source does not know. Positions must still rise, because shards skip what is
        not above theirs.
        """
        ...


@dataclass(frozen=True, slots=True)
class Behind:
    """How far a source is behind its server.

    Everything committed longer than ``seconds`` ago is written, or a copy will write it.
    None if this is not known yet. ``bytes`` of the server's log are not read yet, of any
    table. ``copying`` is how many tables are still to be copied, or compared with
    rowtide's rows.
    """

    seconds: float | None
    bytes: int
    copying: int


@runtime_checkable
class Measurable(Protocol):
    """A source that can measure how far it is behind."""

    async def behind(self) -> Behind | None:
        """Ask the server while ``run`` runs. None if the source is not connected."""
        ...


@dataclass(frozen=True, slots=True)
class TableState:
    """The state of one table of a source.

    ``table`` is its full name at the source, ``target`` its name in rowtide. ``state`` is
    ``copying``, ``following`` or ``failed``. ``rows_copied`` counts the rows of a running
    copy. ``rows_estimate`` is the server's estimate of all rows, None if it has none.
    ``reason`` says why a table failed, and ``remedy`` what an operator can do. Both are
    empty for a table that did not fail, except the ``reason`` of a copy that waits. The
    source follows its other tables meanwhile.
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
    """A source that knows the names of its server's tables in rowtide."""

    def target_of(self, table: str) -> str | None:
        """Return the name in rowtide of a table by its full name; None if it is not followed."""
        ...


@runtime_checkable
class CopiesRows(Protocol):
    """A source that can copy single rows again while it runs."""

    async def copy_again(
        self, table: str, key: Sequence[Scalar], write: Callable[[SourceRow], Awaitable[None]]
    ) -> None:
        """Call ``write`` with the current row of a key, or with its deletion if there is
        none.

        ``key`` has the values of rowtide's columns. The call comes in its turn: earlier
        work of the source is written before it, and later work after it. Raises
        ``Rejected`` for a table that is not followed, ``Unavailable`` while the source
        does not run.
        """
        ...


@runtime_checkable
class LeavesTraces(Protocol):
    """A source that creates objects at its server which stay when it no longer runs."""

    def traces(self) -> Sequence[str]:
        """Return possible objects as texts for people: how to find and remove them."""
        ...

    async def erase(self) -> Sequence[str]:
        """Remove the objects. Return texts on what is left. Raises ``Unavailable``."""
        ...


class SourceSide(Protocol):
    """One table of a source as ``verify`` reads it: (encoded key, columns as in rowtide)."""

    def rows(self) -> AsyncIterator[tuple[bytes, Mapping[str, Scalar]]]:
        """Yield all rows in any order, each as it is at some time during the read."""
        ...

    async def look_up(self, keys: Sequence[bytes]) -> Mapping[bytes, Mapping[str, Scalar]]:
        """Return the current rows of some keys. Missing ones are left out."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


class ComparableSource(Protocol):
    """A source whose rows ``verify`` can read."""

    async def side(self, table: str) -> SourceSide:
        """Return the source's side of rowtide's table ``table``. Raises ``SettingsRefused``."""
        ...
