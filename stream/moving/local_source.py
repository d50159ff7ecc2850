"""The partitions and records of a stopped local log that an export takes.

From a changelog the export takes each key once, with its last value, and no removed key.
Kafka's compaction leaves the same. From leases it takes only their end offset. No worker
may wait for an owner that has ended. But a later claim must be above every former one,
because records name the claim of their writer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from rowtide.stream.log.local.layout import Bounds, change_of, entry_key, offset_of
from rowtide.stream.log.local.store import LogStore
from rowtide.stream.log.topics import TopicNames
from rowtide.stream.moving.manifest import CATALOG, CHANGELOG, LEASE, SHARD

__all__ = ["LocalSource", "NoSuchTopics", "SourcePartition"]


class NoSuchTopics(Exception):
    """The local log has no topics under the requested prefix."""


class SourcePartition(NamedTuple):
    """A partition. ``topic`` is the name without the prefix."""

    topic: str
    partition: int
    number: int
    bounds: Bounds

    @property
    def start(self) -> int:
        """Return the offset of the first exported record."""
        return self.bounds.end if self.topic == LEASE else self.bounds.start

    @property
    def end(self) -> int:
        """Return the offset after the last record."""
        return self.bounds.end


class LocalSource:
    """An open store that no other process reads."""

    def __init__(self, store: LogStore, prefix: str) -> None:
        self._store = store
        self._prefix = prefix

    def partitions(self) -> list[SourcePartition]:
        """Return all partitions, the catalog's first. Raises ``NoSuchTopics``, ``Unavailable``."""
        names = TopicNames.of(self._prefix)
        topics, bounds = self._store.topics(), self._store.bounds()
        found = {names.catalog: CATALOG, names.lease: LEASE, names.changelog: CHANGELOG}
        if missing := [name for name in found if name not in topics]:
            others = [name for name in topics if name.endswith(".catalog")]
            hint = f"; it has {', '.join(others)}" if others else ""
            raise NoSuchTopics(f"the local log has no topic {missing[0]}{hint}")
        shards = [name for name in topics if name.startswith(names.shard(""))]
        shards.sort(key=lambda name: topics[name].first)
        found |= {name: SHARD + name.removeprefix(names.shard("")) for name in shards}
        return [
            SourcePartition(topic, at, number, bounds.get(number, Bounds()))
            for name, topic in found.items()
            for first, count in [topics[name]]
            for at, number in enumerate(range(first, first + count))
        ]

    def records(self, partition: SourcePartition, from_offset: int) -> Iterator[tuple[int, bytes]]:
        """Yield (offset, stored record) from an offset on. Raises ``Unavailable``."""
        found = self._scan(partition, from_offset, partition.bounds.end)
        return self._latest(partition, found) if partition.topic == CHANGELOG else found

    def _scan(
        self, partition: SourcePartition, start: int, end: int
    ) -> Iterator[tuple[int, bytes]]:
        low, high = entry_key(partition.number, start), entry_key(partition.number, end)
        return ((offset_of(key), value) for key, value in self._store.scan(low, high))

    def _latest(
        self, partition: SourcePartition, found: Iterator[tuple[int, bytes]]
    ) -> Iterator[tuple[int, bytes]]:
        """Yield the entries that compaction leaves. Below ``compacted`` each key is
        already unique.
        """
        _, end, compacted = partition.bounds
        recent = {
            change_of(offset, stored).key: offset
            for offset, stored in self._scan(partition, compacted, end)
        }
        for offset, stored in found:
            change = change_of(offset, stored)
            if change.value is not None and recent.get(change.key, offset) == offset:
                yield offset, stored
