"""A cluster of logs, as slot owners use it.

There are three implementations: Kafka (``stream/log/kafka/cluster.py``), one local
database (``stream/log/local/cluster.py``) and the broker of the simulation
(``tests/simulation``). Topic names are full names, prefix included.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Protocol

from rowtide.core.values.errors import StoreError
from rowtide.stream.log.changelog import ChangelogReader, ChangelogWriter
from rowtide.stream.log.log import Entry, Log
from rowtide.stream.log.topics import TopicSpec

__all__ = ["Appends", "LogCluster", "Reads", "TopicCluster"]

Appends = Sequence[tuple[Log, Sequence[tuple[bytes, bytes]]]]
"""Batches that are sent together: per log, the (key, value) pairs of one batch."""

Reads = Sequence[tuple[Log, int]]
"""Reads that are sent together: logs, and the first offset of each."""


class LogCluster(Protocol):
    """Gives handles on logs and changelogs. Cheap; nothing is opened."""

    def log(self, topic: str, partition: int = 0) -> Log:
        """Return a separate handle on a log."""
        ...

    def leader(self, log: Log) -> Hashable:
        """Return the leader of a log, as far as known; None if unknown now.

        A caller that groups reads by leader never waits for a broker because of another's
        logs.
        """
        ...

    async def exists(self, topic: str) -> bool:
        """True if a broker knows the topic. Raises ``Unavailable``."""
        ...

    async def append_many(self, items: Appends, *, deadline_s: float) -> list[int | StoreError]:
        """Append to several logs of this cluster at once; one result each, in order.

        Failures are returned, not raised: one log's failure does not affect the others.
        No log may occur twice.
        """
        ...

    async def read_many(
        self, items: Reads, *, bytes_max: int, wait_s: float
    ) -> list[list[Entry] | StoreError]:
        """Read several logs of this cluster at once; one result each, in order.

        If none has entries at its offset, the call waits for at most ``wait_s``. It may
        return as soon as the first log has some. An empty list means that the log ended
        there when the call began or later. Failures are returned, not raised: one log's
        failure does not affect the others.
        """
        ...

    def changelog_writer(
        self, topic: str, partition: int, transactional_id: str
    ) -> ChangelogWriter:
        """Return a writer; the last one to fence under ``transactional_id`` may flush."""
        ...

    def changelog_reader(self, topic: str, partition: int) -> ChangelogReader:
        """Return a reader of committed entries."""
        ...


class TopicCluster(LogCluster, Protocol):
    """A cluster whose topics a worker creates and deletes. Start it before use, stop it after."""

    @property
    def answered_s(self) -> float | None:
        """Return when the cluster last answered, by ``time.monotonic``; None if it never did."""
        ...

    async def start(self) -> None:
        """Wait until the cluster answers. May be called again. Raises ``Unavailable``."""
        ...

    async def run(self) -> None:
        """Do the cluster's background work until cancelled."""
        ...

    async def stop(self) -> None:
        """Release the resources of ``start``."""
        ...

    async def topics(self) -> dict[str, int]:
        """Return the topics of our prefix with their numbers of partitions."""
        ...

    async def create_topics(self, specs: Sequence[TopicSpec]) -> None:
        """Create missing topics. They accept appends when this returns."""
        ...

    async def delete_topics(self, names: Sequence[str]) -> None:
        """Delete topics with all their entries; they are not listed when this returns.

        A missing topic is no error.
        """
        ...

    async def require_durable(self, specs: Sequence[TopicSpec], logs: Sequence[str]) -> None:
        """Raise if a setting of an existing topic could lose an acknowledged write.

        ``logs`` are the existing topics of shards.
        """
        ...
