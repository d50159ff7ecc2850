"""The last entries of a shard's log, in memory for readers at its end.

The entries are consecutive, up to the last applied one. A reader at such an offset needs
no fetch from the broker, so an answered write is readable in the stream at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import islice

from rowtide.stream.log.log import Entry

__all__ = ["RecentEntries"]


class RecentEntries:
    """A bounded run of consecutive entries; the oldest go first. ``bytes_max`` bounds values."""

    def __init__(self, *, bytes_max: int = 2 * 1024 * 1024) -> None:
        self._entries: deque[Entry] = deque()
        self._bytes = 0
        self._bytes_max = bytes_max

    def add(self, entry: Entry) -> None:
        """Append the next entry; a gap drops all earlier ones."""
        self.extend((entry,))

    def extend(self, run: Sequence[Entry]) -> None:
        """Append the next entries; a gap drops all earlier ones."""
        if not run:
            return
        if run[-1].offset - run[0].offset != len(run) - 1:
            for entry in run:
                self.add(entry)
            return
        entries = self._entries
        if entries and entries[-1].offset + 1 != run[0].offset:
            entries.clear()
            self._bytes = 0
        entries += run
        self._bytes += sum([len(entry.value) for entry in run])
        while self._bytes > self._bytes_max and len(entries) > 1:
            self._bytes -= len(entries.popleft().value)

    def read(self, offset: int, count: int) -> list[Entry] | None:
        """Return up to ``count`` entries from ``offset`` on, or None if that is not in memory."""
        entries = self._entries
        if not entries or offset < entries[0].offset:
            return None
        skip = offset - entries[0].offset
        if skip > len(entries) // 2:
            # A deque is walked from its near end.
            tail = list(islice(reversed(entries), max(0, len(entries) - skip)))
            return tail[::-1][:count]
        return list(islice(entries, skip, skip + count))

    def last(self) -> list[Entry]:
        """Return all entries in memory."""
        return list(self._entries)
