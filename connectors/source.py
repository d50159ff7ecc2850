"""What the runtime asks of a source, and what it gives to one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from rowtide.connectors.rows import SourceRow, TableShape

__all__ = ["Source", "SourceTarget"]


class SourceTarget(Protocol):
    """Where a source writes: the tables of an instance.

    Every method raises ``StoreError``; after ``OutcomeUnknown`` and ``Unavailable`` the same call
    may be made again, because shards skip what they have.
    """

    async def ensure_table(self, table: TableShape) -> None:
        """Make a table with a stream where it is missing. Raises ``Rejected`` for another key."""
        ...

    async def write(self, rows: Sequence[SourceRow]) -> None:
        """Make the changes, in order; return when every one is durable."""
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
