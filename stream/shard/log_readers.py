"""State that the readers of one shard's log share: entries in memory, and waiting readers.

The owner adds every entry that it has applied. Readers add entries that they fetched from
the broker and have not used yet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from rowtide.stream.log.log import Entry
from rowtide.stream.shard.recent_entries import RecentEntries

__all__ = ["LogReaders"]


class LogReaders:
    """The readers of one shard's log. Their calls come from the event loop of its owner."""

    def __init__(self) -> None:
        self._recent = RecentEntries()
        self._fetched = RecentEntries()
        """Entries that a reader far from the end fetched last, and has not used yet."""
        self._followers: dict[asyncio.Event, None] = {}
        """Set, in the order of their arrival, whenever more of the log is acknowledged."""

    # Calls from the owner.

    def add_applied(self, entries: Sequence[Entry]) -> None:
        """Keep the next applied entries; a gap drops all earlier ones."""
        self._recent.extend(entries)

    def wake(self) -> None:
        """Wake every follower: there is more to read, or the shard has closed."""
        for follower in self._followers:
            follower.set()

    # Calls from readers.

    def read_recent(self, offset: int, count: int) -> list[Entry] | None:
        """Return up to ``count`` of the last applied entries, or None if they are not in memory."""
        return self._recent.read(offset, count)

    def read_held(self, offset: int, count: int) -> list[Entry] | None:
        """Return up to ``count`` entries, applied or fetched, or None if they are not in memory."""
        return self._recent.read(offset, count) or self._fetched.read(offset, count)

    def last_applied(self) -> list[Entry]:
        """Return all applied entries in memory."""
        return self._recent.last()

    def keep_fetched(self, entries: Sequence[Entry]) -> None:
        """Keep fetched entries: a page takes a part of them, and the next page finds the rest."""
        for entry in entries:
            self._fetched.add(entry)

    def follow(self, event: asyncio.Event) -> None:
        """Set ``event`` whenever more of the log is acknowledged, and when the shard closes."""
        self._followers[event] = None

    def unfollow(self, event: asyncio.Event) -> None:
        """Stop setting ``event``."""
        self._followers.pop(event, None)

    @property
    def has_followers(self) -> bool:
        """True if a reader waits for more of the log."""
        return bool(self._followers)
