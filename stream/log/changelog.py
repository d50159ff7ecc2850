"""The changelog of a slot, as its owner and its readers see it.

It is a compacted list of entries, written in whole transactions by one writer at a time: ``fence``
ends every former writer. It has three implementations under one contract suite: Kafka
(``stream/log/kafka/changelog.py``), a local database (``stream/log/local/changelog.py``) and the
broker of the simulation (``tests/simulation``). What keys and values mean is the caller's.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import NamedTuple, Protocol

__all__ = [
    "Change",
    "ChangelogEntry",
    "ChangelogReader",
    "ChangelogWriter",
    "Changes",
    "Fenced",
    "Headers",
]

Headers = list[tuple[str, bytes]]
Change = tuple[bytes, bytes | None, Headers]
"""Key, value (None: a tombstone) and headers of an entry to be written."""

Changes = Iterable[Change | None]
"""What is to be written, perhaps far more than memory holds: it is taken as it is sent. None is
no change, but a place to let others have their turn on the event loop."""


class Fenced(Exception):
    """Another writer has taken over, or the broker gave up on a transaction that took too long.

    The flush that met it is whole or absent, and which of the two is not known.
    """


class ChangelogEntry(NamedTuple):
    """One committed entry as read back. ``value`` None is a tombstone."""

    offset: int
    key: bytes
    value: bytes | None
    headers: Headers


class ChangelogWriter(Protocol):
    """The one writer: to be fenced before the first flush, and after one that failed."""

    @property
    def ready(self) -> bool:
        """Whether a flush may follow without fencing first."""
        ...

    async def prepare(self) -> None:
        """Do what may be done before it is ours, so that fencing takes less time."""
        ...

    async def fence(self) -> None:
        """Take over from every writer so far, and abort what the last one left open.

        Raises ``Unavailable`` and ``Fenced``.
        """
        ...

    def leave(self) -> None:
        """Write no more before it is fenced again."""
        ...

    async def flush(self, changes: Changes) -> int:
        """Write ``changes``, at least one, in one transaction and return the position after it.

        When it returns, every reader sees the changes. Raises ``Unavailable`` where they are
        absent for good, once it is fenced, ``OutcomeUnknown`` where that can't be told, and
        ``Fenced``.
        """
        ...


class ChangelogReader(Protocol):
    """Reads what is committed. Positions are offsets of the next entry to read."""

    position: int

    async def start(self) -> int:
        """Return the first offset still kept."""
        ...

    async def end(self) -> int:
        """Return the offset up to which everything is decided, as of now."""
        ...

    def read(
        self, from_offset: int, until: int | None = None
    ) -> AsyncIterator[list[ChangelogEntry]]:
        """Yield committed entries in order, up to the end as of the call.

        With ``until``, an end of before, up to there. After each list ``position`` is the offset
        behind it, at the end that of the whole. Raises ``LogTrimmed`` where ``from_offset`` lies
        before the start.
        """
        ...
