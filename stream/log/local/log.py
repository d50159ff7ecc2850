"""The log of a shard as a part of the local database."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rowtide.core.values.errors import Rejected, Unavailable
from rowtide.stream.log.local.layout import entry_key, entry_of, entry_value, offset_of
from rowtide.stream.log.local.partition import LocalPartition, growth
from rowtide.stream.log.local.store import AtomicWrite
from rowtide.stream.log.local.writer import Job
from rowtide.stream.log.log import Entry

if TYPE_CHECKING:
    from rowtide.stream.log.local.cluster import LocalCluster

__all__ = ["BATCH_BYTES_MAX", "LocalLog", "require_size"]

BATCH_BYTES_MAX = (16 << 20) + (64 << 10)
"""Largest batch, as with Kafka: one record of 16 MiB, and a little more."""
SLICE_BYTES = 256 << 10
"""Bytes that are read before other tasks get their turn on the event loop."""

Pairs = Sequence[tuple[bytes, bytes]]


class LocalLog:
    """One partition as a ``Log``. Objects are cheap; several may write to one partition."""

    def __init__(self, cluster: LocalCluster, topic: str, partition: int) -> None:
        self.place = (topic, partition)
        self.name = f"{topic}[{partition}]"
        self._cluster = cluster
        self._in_flight: Job | None = None

    async def append(self, entries: Pairs, *, deadline_s: float) -> int:
        """Append one batch, see ``Log.append``. A cancelled append may have been written."""
        job = self.submit(entries)
        loop = asyncio.get_running_loop()
        deadline = loop.call_later(deadline_s, self._give_up, job, "the deadline has passed")
        try:
            return await job.done
        finally:
            deadline.cancel()

    def submit(self, entries: Pairs) -> Job:
        """Submit one batch. Raises ``Rejected`` and ``Unavailable``."""
        assert entries, "an append needs an entry"
        size = sum(len(key) + len(value) for key, value in entries)
        require_size(size, f"append to {self.name}")
        partition = self.partition()

        def fill(batch: AtomicWrite) -> int:
            if partition.deleted:
                raise Unavailable(f"append to {self.name}: the topic was deleted")
            base = partition.planned.end
            for offset, (key, value) in enumerate(entries, base):
                batch.put(entry_key(partition.number, offset), entry_value(key, value))
            partition.plan(batch, partition.planned._replace(end=base + len(entries)))
            return base

        where = f"append to {self.name}"
        self._in_flight = self._cluster.writer.submit(where, fill, partition.settle, size=size)
        return self._in_flight

    async def read(self, offset: int, *, bytes_max: int, wait_s: float = 0.0) -> list[Entry]:
        """Return entries from ``offset`` on, see ``Log.read``."""
        partition = self.partition()
        if offset == partition.bounds.end and wait_s > 0:
            await growth([partition], wait_s)
        return await self.read_now(offset, bytes_max=bytes_max)

    async def read_now(self, offset: int, *, bytes_max: int) -> list[Entry]:
        """Return entries from ``offset`` on, perhaps none, without waiting for any."""
        entries: list[Entry] = []
        while True:
            partition = self.partition()
            partition.require(offset)
            if offset == partition.bounds.end:
                return entries
            some, size = self._read_slice(partition, offset, min(bytes_max, SLICE_BYTES))
            if entries and size > bytes_max:
                return entries
            entries += some
            bytes_max -= size
            offset = some[-1].offset + 1
            if bytes_max <= 0 or offset == partition.bounds.end:
                return entries
            await asyncio.sleep(0)

    def _read_slice(
        self, partition: LocalPartition, offset: int, bytes_max: int
    ) -> tuple[list[Entry], int]:
        """Return the entries that fit, at least one, and their size."""
        number, end = partition.number, partition.bounds.end
        entries: list[Entry] = []
        size = 0
        for key, stored in self._cluster.store.scan(
            entry_key(number, offset), entry_key(number, end)
        ):
            entry = entry_of(offset_of(key), stored)
            assert entry.offset == offset + len(entries), f"{self.name} has a gap at {offset}"
            size += len(stored)
            if entries and size > bytes_max:
                return entries, size - len(stored)
            entries.append(entry)
        assert entries, f"{self.name} has no entry at {offset} below its end {end}"
        return entries, size

    async def bounds(self) -> tuple[int, int]:
        """Return (start, end), see ``Log.bounds``."""
        partition = self.partition()
        return partition.start, partition.bounds.end

    async def end(self) -> int:
        """Return the offset after the last entry, see ``Log.end``."""
        return self.partition().bounds.end

    async def trim(self, before: int) -> None:
        """Delete every entry below ``before``, see ``Log.trim``."""
        partition = self.partition()
        if before > partition.bounds.end:
            partition.require(before)

        def fill(batch: AtomicWrite) -> int:
            start = partition.planned.start
            if before > start and not partition.deleted:
                number = partition.number
                batch.delete_range(entry_key(number, start), entry_key(number, before))
                partition.plan(batch, partition.planned._replace(start=before))
            return before

        await self._cluster.write(f"trim {self.name}", fill, partition.settle)

    async def disconnect(self) -> None:
        """Give up an append in flight; its caller gets an error at once."""
        job, self._in_flight = self._in_flight, None
        if job is not None:
            self._give_up(job, "the writer has left")

    def _give_up(self, job: Job, why: str) -> None:
        """Fail a job with its present outcome: not written, or unknown."""
        if not job.done.done():
            job.done.set_exception(self._cluster.writer.give_up(job, why))

    def partition(self) -> LocalPartition:
        """Return the partition. Raises ``Unavailable`` if it does not exist or cannot be used."""
        return self._cluster.partition(*self.place)


def require_size(size: int, where: str) -> None:
    """Raise ``Rejected`` if a batch is above the limit."""
    if size > BATCH_BYTES_MAX:
        message = f"{where}: {size} bytes, the limit is {BATCH_BYTES_MAX}"
        raise Rejected("OTSRequestBodyTooLarge", message)
