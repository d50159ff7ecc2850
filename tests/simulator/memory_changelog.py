"""A changelog in memory: whole transactions, fencing, compaction; and a writer that may fail.

A writer's next flush meets ``fault`` where one is set.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from enum import Enum

from rowtide.core.errors import OutcomeUnknown, Unavailable
from rowtide.stream.kafka_changelog import (
    Change,
    ChangelogEntry,
    ChangelogReader,
    ChangelogWriter,
    Fenced,
)

__all__ = ["FlushFault", "MemoryChangelog", "MemoryReader", "MemoryWriter"]

DEADLINE_S = 30.0
PAGE = 7
"""Entries of one read: few, so that a row's chunks fall on two pages."""


class FlushFault(Enum):
    """What becomes of one flush."""

    ABORTED = "absent, and the writer knows"
    LOST_ANSWER = "committed, and the writer does not know"


class MemoryChangelog:
    """What all writers and readers of one partition share."""

    def __init__(self) -> None:
        self.entries: list[ChangelogEntry] = []
        self.end = 0
        self.epoch = 0

    def commit(self, changes: Sequence[Change]) -> None:
        """Add a transaction; its end takes an offset too."""
        for key, value, headers in changes:
            self.entries.append(ChangelogEntry(self.end, key, value, headers))
            self.end += 1
        self.end += 1

    def compact(self, until: int) -> None:
        """Drop every entry below ``until`` for whose key a later one stands below it."""
        last = {entry.key: entry.offset for entry in self.entries if entry.offset < until}
        self.entries = [e for e in self.entries if last.get(e.key, e.offset) <= e.offset]

    def drop_tombstones(self, before: int) -> None:
        """Drop tombstones below ``before``, with what they stand for."""
        self.compact(before)
        self.entries = [e for e in self.entries if e.value is not None or e.offset >= before]


class MemoryWriter(ChangelogWriter):
    """One owner's writer."""

    def __init__(self, changelog: MemoryChangelog, away: Callable[[], bool]) -> None:
        self.name = "changelog"
        self.fault: FlushFault | None = None
        self._away = away
        self._changelog = changelog
        self._epoch: int | None = None

    @property
    def ready(self) -> bool:
        """Whether a flush may follow without fencing first."""
        return self._epoch is not None

    async def prepare(self) -> None:
        """Nobody coordinates: there is nobody to be found."""

    async def fence(self) -> None:
        """Take over from every writer so far."""
        await self._broker()
        self._changelog.epoch += 1
        self._epoch = self._changelog.epoch

    async def flush(self, changes: Sequence[Change]) -> int:
        """Commit ``changes`` unless fenced or faulty."""
        epoch, self._epoch = self._epoch, None
        await self._broker()
        fault, self.fault = self.fault, None
        if epoch != self._changelog.epoch:
            raise Fenced("another writer has taken over")
        if fault is FlushFault.ABORTED:
            raise Unavailable("flush: refused")
        self._changelog.commit(changes)
        position = self._changelog.end
        await asyncio.sleep(0.01)
        if fault is FlushFault.LOST_ANSWER:
            raise OutcomeUnknown("flush: no answer")
        self._epoch = epoch
        return position

    async def _broker(self) -> None:
        """Wait for the broker as the real one does: long."""
        for _ in range(3000):
            await asyncio.sleep(DEADLINE_S / 3000)
            if not self._away():
                return
        raise Unavailable("flush: no broker")


class MemoryReader(ChangelogReader):
    """Reads up to the end as of the call."""

    def __init__(self, changelog: MemoryChangelog) -> None:
        self._changelog = changelog
        self.position = 0

    async def start(self) -> int:
        """Return the first offset still kept."""
        await asyncio.sleep(0)
        return 0

    async def end(self) -> int:
        """Return the next offset."""
        return self._changelog.end

    async def read(
        self, from_offset: int, until: int | None = None
    ) -> AsyncIterator[list[ChangelogEntry]]:
        """Yield pages of entries in order."""
        if until is None:
            until = self._changelog.end
        self.position = from_offset
        kept = [e for e in self._changelog.entries if from_offset <= e.offset < until]
        for at in range(0, len(kept), PAGE):
            page = kept[at : at + PAGE]
            self.position = page[-1].offset + 1
            yield page
        self.position = until
