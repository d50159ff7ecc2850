"""A Kafka broker in memory: logs, compacted changelogs with transactions, and nothing lost.

It knows no workers and no time. What reaches it and when is the network's (``network.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rowtide.core.values.errors import LogTrimmed, StoreError, Unavailable
from rowtide.stream.log.changelog import Change, ChangelogEntry, Fenced
from rowtide.stream.log.log import Entry

__all__ = ["Broker", "Changelog", "Pairs", "Partition", "Place"]

Pairs = Sequence[tuple[bytes, bytes]]
Place = tuple[str, int]


@dataclass(slots=True)
class Partition:
    """One log. ``entries[0]`` has offset ``start``; ``everything`` is kept for the model alone."""

    name: str
    start: int = 0
    entries: list[Entry] = field(default_factory=list)
    everything: list[Entry] = field(default_factory=list)
    waiters: list[Callable[[], None]] = field(default_factory=list)
    """Called once, when the log has grown."""

    @property
    def end(self) -> int:
        return self.start + len(self.entries)

    def append(self, pairs: Pairs) -> int:
        """Write a batch and return its base offset."""
        base = self.end
        added = [Entry(base + at, key, value) for at, (key, value) in enumerate(pairs)]
        self.entries += added
        self.everything += added
        waiters, self.waiters = self.waiters, []
        for wake in waiters:
            wake()
        return base

    def read(self, offset: int, bytes_max: int) -> list[Entry]:
        """Return entries from ``offset`` on, one at least where one exists."""
        if offset < self.start:
            raise LogTrimmed(
                f"{self.name}: offset {offset} is trimmed, the log starts at {self.start}"
            )
        if offset > self.end:
            raise Unavailable(f"{self.name}: offset {offset} lies beyond the end {self.end}")
        found: list[Entry] = []
        size = 0
        for entry in self.entries[offset - self.start :]:
            size += len(entry.key) + len(entry.value)
            if found and size > bytes_max:
                break
            found.append(entry)
        return found

    def trim(self, before: int) -> None:
        """Delete every entry below ``before``."""
        if before > self.end:
            raise Unavailable(f"{self.name}: offset {before} lies beyond the end {self.end}")
        if before > self.start:
            del self.entries[: before - self.start]
            self.start = before


class Changelog:
    """A compacted partition that is written in transactions under one transactional id."""

    def __init__(self) -> None:
        self.entries: list[ChangelogEntry] = []
        self.end = 0
        self.epoch = 0

    def fence(self) -> int:
        """End every former writer; return the new one's epoch."""
        self.epoch += 1
        return self.epoch

    def require(self, epoch: int) -> None:
        """Raise ``Fenced`` unless ``epoch`` is the last one's."""
        if epoch != self.epoch:
            raise Fenced("another writer has taken over")

    def commit(self, changes: Sequence[Change]) -> int:
        """Add a transaction; its end takes an offset too."""
        for key, value, headers in changes:
            self.entries.append(ChangelogEntry(self.end, key, value, headers))
            self.end += 1
        self.end += 1
        return self.end

    def compact(self, until: int) -> None:
        """Drop every entry below ``until`` whose key has a later one below it."""
        last = {entry.key: entry.offset for entry in self.entries if entry.offset < until}
        self.entries = [e for e in self.entries if last.get(e.key, e.offset) <= e.offset]

    def drop_tombstones(self, before: int) -> None:
        """Drop tombstones below ``before``, and the entries that they delete."""
        self.compact(before)
        self.entries = [e for e in self.entries if e.value is not None or e.offset >= before]


class Broker:
    """All topics. ``landed`` is called with every batch that was written."""

    def __init__(self) -> None:
        self.landed: Callable[[Place, int, Pairs], None] = lambda _place, _base, _pairs: None
        self._logs: dict[Place, Partition] = {}
        self._changelogs: dict[Place, Changelog] = {}

    def log(self, place: Place) -> Partition:
        """Return a log, made where it is missing."""
        found = self._logs.get(place)
        if found is None:
            found = self._logs[place] = Partition(f"{place[0]}[{place[1]}]")
        return found

    def logs(self) -> list[tuple[Place, Partition]]:
        """Return every log there is."""
        return list(self._logs.items())

    def changelog(self, place: Place) -> Changelog:
        """Return a changelog, made where it is missing."""
        return self._changelogs.setdefault(place, Changelog())

    def changelogs(self) -> list[Changelog]:
        """Return every changelog there is."""
        return list(self._changelogs.values())

    def changelog_places(self) -> list[tuple[Place, Changelog]]:
        """Return every changelog with its place."""
        return list(self._changelogs.items())

    def append(self, place: Place, pairs: Pairs) -> int | StoreError:
        """Write a batch; return its base offset."""
        base = self.log(place).append(pairs)
        self.landed(place, base, pairs)
        return base
