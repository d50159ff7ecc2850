"""The log of one shard, as its owner and its readers see it.

A log is an ordered list of entries with consecutive offsets from ``start`` to ``end``.
There are four implementations under one contract suite: a Kafka topic
(``stream/log/kafka/log.py``), a part of a local database (``stream/log/local/log.py``)
and, for tests, a list (``tests/contract/memory_log.py``) and the broker of the
simulation. This seam does not know what entries mean: the append rule, claims and
mutations are the caller's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

__all__ = ["Entry", "Log"]


class Entry(NamedTuple):
    """One entry as read back. ``offset`` is its position in the log."""

    offset: int
    key: bytes
    value: bytes


class Log(Protocol):
    """An append-only list of entries. All times are seconds, all sizes bytes."""

    name: str

    async def append(self, entries: Sequence[tuple[bytes, bytes]], *, deadline_s: float) -> int:
        """Append (key, value) pairs as one atomic batch and return the offset of the first.

        Raises ``Unavailable`` only if it is proven that nothing was or will be written.
        Raises ``OutcomeUnknown`` for every other failure, including a passed deadline and
        an answer without an offset. Never retries. After ``OutcomeUnknown`` the caller
        must ``disconnect`` before it appends again.
        """
        ...

    async def read(self, offset: int, *, bytes_max: int, wait_s: float = 0.0) -> list[Entry]:
        """Return entries from ``offset`` on, at least one if one exists, in order.

        ``bytes_max`` bounds the fetch, but one batch always comes whole. At the end the
        answer is empty after at most ``wait_s``. Raises ``LogTrimmed`` if ``offset`` lies
        before the start. Raises ``Unavailable`` if the log cannot be reached or
        ``offset`` lies beyond the end.
        """
        ...

    async def bounds(self) -> tuple[int, int]:
        """Return (start, end), obtained after the call began. ``end`` is the next offset."""
        ...

    async def end(self) -> int:
        """Return the next offset, obtained after the call began."""
        ...

    async def trim(self, before: int) -> None:
        """Delete every entry below ``before``. Trimming twice is harmless."""
        ...

    async def disconnect(self) -> None:
        """Close the appending connection at once: no flush, no wait for an append in flight."""
        ...
