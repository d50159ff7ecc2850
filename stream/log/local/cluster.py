"""All logs of one rowtide in one local database, for one process.

No other process writes to it, so memory has the same topics and bounds as the disk.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Self

from rowtide.core.values.errors import StoreError, Unavailable
from rowtide.stream.log.cluster import Appends, Reads
from rowtide.stream.log.local.changelog import LocalChangelogReader, LocalChangelogWriter
from rowtide.stream.log.local.layout import (
    Bounds,
    Topic,
    bounds_key,
    entry_key,
    latest_key,
    tombstone_key,
    topic_key,
)
from rowtide.stream.log.local.log import LocalLog
from rowtide.stream.log.local.partition import LocalPartition, growth
from rowtide.stream.log.local.store import AtomicWrite, Store
from rowtide.stream.log.local.writer import GroupWriter, Job
from rowtide.stream.log.log import Entry, Log
from rowtide.stream.log.topics import TopicSpec

__all__ = ["LocalCluster"]


class LocalCluster:
    """The logs in ``store``, see ``TopicCluster``. ``clock_ms`` gives the time of day.

    ``thread`` runs blocking calls, one after another; by default the cluster creates one.
    After a failed write, ``run`` opens the store again.
    """

    def __init__(
        self,
        store: Store,
        *,
        prefix: str,
        clock_ms: Callable[[], int] = lambda: int(time.time() * 1000),
        thread: Executor | None = None,
    ) -> None:
        self.store = store
        thread = thread or ThreadPoolExecutor(1, thread_name_prefix="log-writer")
        self.writer = GroupWriter(self.store, self._reload, thread)
        self.clock_ms = clock_ms
        self.tenures: dict[str, object] = {}
        """The last one to fence, by transactional id."""
        self._prefix = prefix
        self._topics: dict[str, Topic] = {}
        self._partitions: dict[tuple[str, int], LocalPartition] = {}
        self._next = 0
        """Number of the next new partition."""
        self._is_open = False
        self._changing = asyncio.Lock()
        """Held while topics are created or deleted."""

    @property
    def answered_s(self) -> float | None:
        """Return when a write last succeeded, see ``TopicCluster``."""
        return self.writer.answered_s

    async def start(self) -> None:
        """Open the database. Raises ``StoreBusy``, ``OtherFormat`` and ``Unavailable``."""
        if not self._is_open:
            await self.writer.open()
            self._is_open = True
        # The caller needs to know if the database can be written.
        await self.write("write", lambda _: 0, lambda: None)

    async def run(self) -> None:
        """Open the database again after failures, until cancelled."""
        await self.writer.run()

    async def stop(self) -> None:
        """Close the database."""
        await self.writer.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def write(
        self,
        where: str,
        fill: Callable[[AtomicWrite], int],
        settle: Callable[[], None],
        *,
        size: int = 0,
    ) -> int:
        """Submit a write; return the result of ``fill`` once it is on the disk."""
        return await self.writer.submit(where, fill, settle, size=size).done

    def partition(self, topic: str, number: int) -> LocalPartition:
        """Return a partition. Raises ``Unavailable`` if it does not exist or cannot be used."""
        self.writer.require_open(topic)
        partition = self._partitions.get((topic, number))
        if partition is None:
            raise Unavailable(f"{topic}[{number}]: there is no such log")
        return partition

    # Logs and changelogs.

    def log(self, topic: str, partition: int = 0) -> LocalLog:
        """Return a separate handle on a log."""
        return LocalLog(self, topic, partition)

    def leader(self, log: Log) -> str:
        """Return the same for every log: this process has them all."""
        return "local"

    async def exists(self, topic: str) -> bool:
        """True if the topic exists, see ``LogCluster``."""
        self.writer.require_open(topic)
        return topic in self._topics

    async def append_many(self, items: Appends, *, deadline_s: float) -> list[int | StoreError]:
        """Append to several logs in one batch, see ``LogCluster``."""
        submitted: list[Job | StoreError] = []
        for log, entries in items:
            assert isinstance(log, LocalLog), "the log is not of a local cluster"
            try:
                submitted.append(log.submit(entries))
            except StoreError as error:
                submitted.append(error)
        waiting = [job.done for job in submitted if isinstance(job, Job)]
        if waiting:
            await asyncio.wait(waiting, timeout=deadline_s)
        return [self._outcome(job) if isinstance(job, Job) else job for job in submitted]

    def _outcome(self, job: Job) -> int | StoreError:
        if not job.done.done():
            return self.writer.give_up(job, "the deadline has passed")
        error = job.done.exception()
        if error is None:
            return job.done.result()
        if isinstance(error, StoreError):
            return error
        raise error

    async def read_many(
        self, items: Reads, *, bytes_max: int, wait_s: float
    ) -> list[list[Entry] | StoreError]:
        """Read several logs, see ``LogCluster``."""
        if wait_s > 0:
            waiting = self._at_their_ends(items)
            if len(waiting) == len(items):
                await growth(waiting, wait_s)
        found: list[list[Entry] | StoreError] = []
        for log, offset in items:
            assert isinstance(log, LocalLog), "the log is not of a local cluster"
            try:
                found.append(await log.read_now(offset, bytes_max=bytes_max))
            except StoreError as error:
                found.append(error)
        return found

    def _at_their_ends(self, items: Reads) -> list[LocalPartition]:
        """Return the partitions without an entry at the requested offset."""
        waiting: list[LocalPartition] = []
        for log, offset in items:
            assert isinstance(log, LocalLog), "the log is not of a local cluster"
            try:
                partition = log.partition()
            except Unavailable:
                continue
            if partition.bounds.end == offset:
                waiting.append(partition)
        return waiting

    def changelog_writer(
        self, topic: str, partition: int, transactional_id: str
    ) -> LocalChangelogWriter:
        """Return a writer under a transactional id."""
        return LocalChangelogWriter(self, topic, partition, transactional_id)

    def changelog_reader(self, topic: str, partition: int) -> LocalChangelogReader:
        """Return a reader of committed entries."""
        return LocalChangelogReader(self, topic, partition)

    # Topics.

    async def topics(self) -> dict[str, int]:
        """Return the topics of our prefix, see ``TopicCluster``."""
        return {
            name: topic.partitions
            for name, topic in self._topics.items()
            if name.startswith(f"{self._prefix}.")
        }

    async def create_topics(self, specs: Sequence[TopicSpec]) -> None:
        """Create missing topics, see ``TopicCluster``."""
        async with self._changing:
            await self._create(specs)

    async def _create(self, specs: Sequence[TopicSpec]) -> None:
        made: dict[str, Topic] = {}

        def fill(batch: AtomicWrite) -> int:
            # Only here: a change whose caller was cancelled may have been written
            # meanwhile.
            for spec in specs:
                if spec.name not in self._topics and spec.name not in made:
                    made[spec.name] = Topic(self._next, spec.partitions)
                    self._next += spec.partitions
            for name, topic in made.items():
                batch.put(topic_key(name), topic.encode())
                for number in range(topic.first, topic.first + topic.partitions):
                    batch.put(bounds_key(number), Bounds().encode())
            return len(made)

        def settle() -> None:
            for name, topic in made.items():
                self._add(name, topic, {})

        await self.write(f"create {', '.join(spec.name for spec in specs)}", fill, settle)

    async def delete_topics(self, names: Sequence[str]) -> None:
        """Delete topics with all their entries, see ``TopicCluster``."""
        async with self._changing:
            await self._delete(names)

    async def _delete(self, names: Sequence[str]) -> None:
        gone: dict[str, Topic] = {}

        def fill(batch: AtomicWrite) -> int:
            # Only here, as in ``_create``.
            gone.update({name: self._topics[name] for name in names if name in self._topics})
            for name, (first, count) in gone.items():
                batch.delete(topic_key(name))
                after = first + count
                batch.delete_range(bounds_key(first), bounds_key(after))
                batch.delete_range(entry_key(first, 0), entry_key(after, 0))
                batch.delete_range(latest_key(first, b""), latest_key(after, b""))
                batch.delete_range(tombstone_key(first, 0), tombstone_key(after, 0))
            for partition in self._partitions_of(gone):
                partition.deleted = True
            return len(gone)

        def settle() -> None:
            for partition in self._partitions_of(gone):
                partition.wake()
            for name, topic in gone.items():
                del self._topics[name]
                for number in range(topic.partitions):
                    del self._partitions[name, number]

        await self.write(f"delete {', '.join(names)}", fill, settle)

    def _partitions_of(self, topics: dict[str, Topic]) -> list[LocalPartition]:
        places = [(name, n) for name, topic in topics.items() for n in range(topic.partitions)]
        return [self._partitions[place] for place in places if place in self._partitions]

    async def require_durable(self, specs: Sequence[TopicSpec], logs: Sequence[str]) -> None:
        """Return at once: every write is synced, whatever the topic."""

    def _reload(self) -> None:
        """Read the topics and their bounds from the store. Handles on them stay valid."""
        bounds = self.store.bounds()
        known = set(self._topics)
        self._topics = {}
        for name, topic in self.store.topics().items():
            self._add(name, topic, bounds)
        for name in sorted(known - set(self._topics)):
            for place in [place for place in self._partitions if place[0] == name]:
                self._partitions.pop(place).wake()

    def _add(self, name: str, topic: Topic, bounds: dict[int, Bounds]) -> None:
        self._topics[name] = topic
        self._next = max(self._next, topic.first + topic.partitions)
        for at in range(topic.partitions):
            number = topic.first + at
            partition = self._partitions.get((name, at))
            if partition is None or partition.number != number:
                partition = LocalPartition(number, f"{name}[{at}]", bounds.get(number, Bounds()))
                self._partitions[name, at] = partition
            partition.deleted = False
            partition.reload(bounds.get(number, Bounds()))
