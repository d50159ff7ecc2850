"""The changelog of a slot as a part of the local database.

A flush writes its entries after the end, a batch at a time, where no reader sees them.
Its last batch moves the end: that is the commit. The next ``fence`` deletes what a crash
or a failure leaves after the end. As with Kafka, a commit takes one offset.

Compaction follows the commit: it deletes the former entry of each key that the flush has
written. Its progress is stored, so after a crash the next flush continues it, from the entries.
A tombstone stays for a day, because a copy of the rows that lacks it may be opened.

Only this process has the database, so memory alone decides who may flush.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from struct import Struct
from typing import TYPE_CHECKING

from rowtide.core.values.errors import OutcomeUnknown, StoreError, Unavailable
from rowtide.stream.log.changelog import ChangelogEntry, Changes, Fenced
from rowtide.stream.log.local.layout import (
    Bounds,
    change_of,
    change_value,
    entry_key,
    latest_key,
    offset_of,
    tombstone_key,
)
from rowtide.stream.log.local.log import require_size
from rowtide.stream.log.local.partition import LocalPartition
from rowtide.stream.log.local.store import AtomicWrite

if TYPE_CHECKING:
    from rowtide.stream.log.local.cluster import LocalCluster

__all__ = ["LocalChangelogReader", "LocalChangelogWriter"]

logger = logging.getLogger(__name__)

PART_BYTES = 128 << 10
"""Bytes of a flush that are written at once, except its commit. No request runs until the memory of
RocksDB has them, which takes about 2 ms a MiB.
"""
PAGE = 500
"""Entries that are read or compacted before other tasks get their turn on the event loop."""
TOMBSTONES_KEPT_MS = 86_400_000

_NUMBER = Struct(">Q")

Place = tuple[int, bytes, bool]
"""The offset and the key of an entry, and whether it is a tombstone."""


@dataclass(slots=True)
class Flushed:
    """The entries of a flush, the first at ``start``: their keys, and which are tombstones."""

    start: int
    keys: list[bytes] = field(default_factory=list)
    tombstones: set[int] = field(default_factory=set)
    """Their indexes in ``keys``."""

    @property
    def end(self) -> int:
        """The offset after the last entry, which the commit takes."""
        return self.start + len(self.keys)

    def add(self, key: bytes, *, is_tombstone: bool) -> None:
        """Add an entry after the others."""
        if is_tombstone:
            self.tombstones.add(len(self.keys))
        self.keys.append(key)

    def page(self, offset: int) -> list[Place]:
        """Return up to ``PAGE`` entries from ``offset`` on, which the flush has written."""
        first = offset - self.start
        keys = self.keys[first : first + PAGE]
        return [(self.start + at, key, at in self.tombstones) for at, key in enumerate(keys, first)]


class LocalChangelogWriter:
    """A writer, see ``ChangelogWriter``. The last one to fence under its id may flush."""

    def __init__(
        self, cluster: LocalCluster, topic: str, partition: int, transactional_id: str
    ) -> None:
        self._cluster = cluster
        self._place = (topic, partition)
        self._id = transactional_id
        self._tenure: object | None = None

    @property
    def ready(self) -> bool:
        """True if a flush may follow without fencing first."""
        return self._tenure is not None

    async def prepare(self) -> None:
        """Do nothing: fencing sends no request."""

    async def fence(self) -> None:
        """Take over, and delete the last writer's uncommitted entries. Raises ``Unavailable``."""
        self._tenure = None
        partition = self._cluster.partition(*self._place)
        tenure = self._cluster.tenures[self._id] = object()

        def fill(batch: AtomicWrite) -> int:
            low = entry_key(partition.number, partition.planned.end)
            batch.delete_range(low, entry_key(partition.number + 1, 0))
            return 0

        try:
            await self._cluster.write(f"fence {partition.name}", fill, partition.settle)
        except OutcomeUnknown as error:
            raise Unavailable(str(error)) from error
        self._tenure = tenure

    def leave(self) -> None:
        """Write no more before the next fencing."""
        self._tenure = None

    async def flush(self, changes: Changes) -> int:
        """Write ``changes`` in one transaction, see ``ChangelogWriter.flush``."""
        assert self._tenure is not None, "fence before a flush"
        # Cleared until all succeeded: a cancelled flush leaves entries after the end.
        tenure, self._tenure = self._tenure, None
        partition = self._cluster.partition(*self._place)
        try:
            flushed, last = await self._write_parts(partition, tenure, changes)
        except OutcomeUnknown as error:  # Nothing is committed yet.
            raise Unavailable(str(error)) from error
        position = await self._commit(partition, tenure, flushed.end, last)
        await self._compact(partition, flushed)
        self._tenure = tenure
        return position

    async def _write_parts(
        self, partition: LocalPartition, tenure: object, changes: Changes
    ) -> tuple[Flushed, list[bytes]]:
        """Write all but the last part after the end; return what the flush has, and that part."""
        flushed = Flushed(partition.bounds.end)
        part: list[bytes] = []
        size = 0
        for at, change in enumerate(changes):
            if change is None or at % PAGE == PAGE - 1:
                await asyncio.sleep(0)
            if change is None:
                continue
            key, content, headers = change
            value = change_value(key, content, headers)
            require_size(len(value), f"flush of {partition.name}")
            if part and size + len(value) > PART_BYTES:
                await self._write_part(partition, tenure, flushed.end - len(part), part)
                part, size = [], 0
            flushed.add(key, is_tombstone=content is None)
            part.append(value)
            size += len(value)
        assert part, "a flush needs a change"
        return flushed, part

    async def _write_part(
        self, partition: LocalPartition, tenure: object, offset: int, part: list[bytes]
    ) -> None:
        def fill(batch: AtomicWrite) -> int:
            self._require(tenure)
            _put(batch, partition, offset, part)
            return 0

        where = f"flush of {partition.name}"
        await self._cluster.write(where, fill, partition.settle, size=PART_BYTES)

    async def _commit(
        self, partition: LocalPartition, tenure: object, end: int, part: list[bytes]
    ) -> int:
        """Write the last part, which ends at ``end``, and move the end after it; return that."""

        def fill(batch: AtomicWrite) -> int:
            self._require(tenure)
            _put(batch, partition, end - len(part), part)
            partition.plan(batch, partition.planned._replace(end=end + 1))
            return end + 1

        where = f"commit of {partition.name}"
        return await self._cluster.write(where, fill, partition.settle, size=PART_BYTES)

    def _require(self, tenure: object) -> None:
        if self._cluster.tenures.get(self._id) is not tenure:
            raise Fenced(f"{self._id}: another writer has taken over")

    # Compaction.

    async def _compact(self, partition: LocalPartition, flushed: Flushed) -> None:
        """Keep only the last entry of each committed key. The next flush repeats what fails."""
        try:
            async with partition.compacting:
                while (at := partition.bounds.compacted) < partition.bounds.end:
                    places, upto = self._find_places(partition, flushed, at)
                    await self._compact_some(partition, places, upto)
                await self._drop_tombstones(partition)
        except StoreError as error:
            logger.warning(
                "%s: compaction failed, retrying after the next flush: %s", partition.name, error
            )

    def _find_places(
        self, partition: LocalPartition, flushed: Flushed, at: int
    ) -> tuple[list[Place], int]:
        """Return a page of entries from ``at`` on, and the offset after it.

        Those of ``flushed`` are known; others are read.
        """
        if flushed.start <= at < flushed.end:
            places = flushed.page(at)
            upto = at + len(places)
            return places, upto + (upto == flushed.end)  # The commit has an offset, and no entry.
        until = flushed.start if at < flushed.start else partition.bounds.end
        found = _entries(self._cluster, partition, at, until)
        upto = found[-1].offset + 1 if len(found) == PAGE else until
        return [(entry.offset, entry.key, entry.value is None) for entry in found], upto

    async def _compact_some(
        self, partition: LocalPartition, places: Sequence[Place], upto: int
    ) -> None:
        """Delete the entries that those at ``places`` follow; these are all below ``upto``."""
        number = partition.number
        now_ms = self._cluster.clock_ms()
        # Within a page a key's last entry is the one that stays.
        latest = {key: offset for offset, key, _ in places}
        keys = [latest_key(number, key) for key in latest]
        former = self._cluster.store.get_many(keys)

        def fill(batch: AtomicWrite) -> int:
            for offset, key, is_tombstone in places:
                if latest[key] != offset:
                    batch.delete(entry_key(number, offset))
                elif is_tombstone:
                    batch.put(tombstone_key(number, offset), _NUMBER.pack(now_ms))
            for key, stored, offset in zip(keys, former, latest.values(), strict=True):
                if stored is not None and (before := _NUMBER.unpack(stored)[0]) < offset:
                    batch.delete(entry_key(number, before))
                    batch.delete(tombstone_key(number, before))
                batch.put(key, _NUMBER.pack(offset))
            partition.plan(batch, partition.planned._replace(compacted=upto))
            return upto

        await self._cluster.write(f"compact {partition.name}", fill, partition.settle)

    async def _drop_tombstones(self, partition: LocalPartition) -> None:
        """Delete tombstones that are older than a day, one page at a time."""
        number, before_ms = partition.number, self._cluster.clock_ms() - TOMBSTONES_KEPT_MS
        noted = self._cluster.store.scan(tombstone_key(number, 0), tombstone_key(number + 1, 0))
        old = [
            offset_of(key)
            for key, stored in islice(noted, PAGE)
            if _NUMBER.unpack(stored)[0] < before_ms
        ]
        if not old:
            return
        stored = self._cluster.store.get_many([entry_key(number, offset) for offset in old])

        def fill(batch: AtomicWrite) -> int:
            for offset, value in zip(old, stored, strict=True):
                batch.delete(tombstone_key(number, offset))
                batch.delete(entry_key(number, offset))
                if value is not None:
                    batch.delete(latest_key(number, change_of(offset, value).key))
            return 0

        await self._cluster.write(f"compact {partition.name}", fill, partition.settle)


class LocalChangelogReader:
    """Reads committed entries, see ``ChangelogReader``."""

    def __init__(self, cluster: LocalCluster, topic: str, partition: int) -> None:
        self.position = 0
        self._cluster = cluster
        self._place = (topic, partition)

    async def start(self) -> int:
        """Return the first offset still kept."""
        return self._cluster.partition(*self._place).start

    async def end(self) -> int:
        """Return the offset after the last commit."""
        return self._bounds().end

    async def read(
        self, from_offset: int, until: int | None = None
    ) -> AsyncIterator[list[ChangelogEntry]]:
        """Yield committed entries in order, see ``ChangelogReader.read``."""
        until = self._bounds().end if until is None else until
        self.position = from_offset
        while self.position < until:
            partition = self._cluster.partition(*self._place)
            partition.require(self.position)
            entries = _entries(self._cluster, partition, self.position, until)
            self.position = entries[-1].offset + 1 if len(entries) == PAGE else until
            if entries:
                yield entries
            await asyncio.sleep(0)

    def _bounds(self) -> Bounds:
        return self._cluster.partition(*self._place).bounds


def _put(batch: AtomicWrite, partition: LocalPartition, offset: int, part: list[bytes]) -> None:
    for at, value in enumerate(part, offset):
        batch.put(entry_key(partition.number, at), value)


def _entries(
    cluster: LocalCluster, partition: LocalPartition, start: int, until: int
) -> list[ChangelogEntry]:
    """Return a page of entries with start <= offset < until."""
    number = partition.number
    found = cluster.store.scan(entry_key(number, start), entry_key(number, until))
    return [change_of(offset_of(key), stored) for key, stored in islice(found, PAGE)]
