"""The changelog of a slot, as its owner and its readers see it.

It is a compacted list of entries, written in whole transactions by one writer at a time.
``fence`` ends every former writer. There are three implementations under one contract
suite: Kafka (``stream/log/kafka/changelog.py``), a local database
(``stream/log/local/changelog.py``) and the broker of the simulation
(``tests/simulation``). The caller defines the meaning of keys and values.
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
"""Entries to write, perhaps more than memory holds: each is taken as it is sent. None is
no change, but a place where other tasks get their turn on the event loop.
"""


class Fenced(Exception):
    """Another writer has taken over, or the broker aborted a transaction that took too long.

    The failed flush is whole or absent, and which of the two is not known.
    """


class ChangelogEntry(NamedTuple):
    """One committed entry as read back. ``value`` None is a tombstone."""

    offset: int
    key: bytes
    value: bytes | None
    headers: Headers


class ChangelogWriter(Protocol):
    """The one writer: fence it before the first flush, and after a failed one."""

    @property
    def ready(self) -> bool:
        """True if a flush may follow without fencing first."""
        ...

    async def prepare(self) -> None:
        """Do the work that needs no ownership, so that fencing takes less time."""
        ...

    async def fence(self) -> None:
        """Take over from every earlier writer, and abort the last one's open transaction.

        Raises ``Unavailable`` and ``Fenced``.
        """
        ...

    def leave(self) -> None:
        """Write no more before the next fencing."""
        ...

    async def flush(self, changes: Changes) -> int:
        """Write ``changes``, at least one, in one transaction and return the position after it.

        When it returns, every reader sees the changes. Raises ``Unavailable`` if they are
        absent for good, once it is fenced; ``OutcomeUnknown`` if that is not known; and
        ``Fenced``.
        """
        ...


class ChangelogReader(Protocol):
    """Reads committed entries. Positions are offsets of the next entry to read."""

    position: int

    async def start(self) -> int:
        """Return the first offset still kept."""
        ...

    async def end(self) -> int:
        """Return the offset below which every transaction is committed or aborted, as of now."""
        ...

    def read(
        self, from_offset: int, until: int | None = None
    ) -> AsyncIterator[list[ChangelogEntry]]:
        """Yield committed entries in order, up to the end as of the call.

        ``until`` is an earlier end to stop at. After each list ``position`` is the offset
        after it; at the end, the offset after the whole. Raises ``LogTrimmed`` if
        ``from_offset`` lies before the start.
        """
        ...
