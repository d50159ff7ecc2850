"""A cluster of logs, as those use it who own slots.

It has three implementations: Kafka (``stream/log/kafka/cluster.py``), one local database
(``stream/log/local/cluster.py``) and the broker of the simulation (``tests/simulation``). Topic
names are full names, prefix included.
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
"""What goes out together: per log the (key, value) pairs of one batch."""

Reads = Sequence[tuple[Log, int]]
"""What is read together: logs, and from which offset on each."""


class LogCluster(Protocol):
    """Gives handles on logs and changelogs. Cheap; nothing is opened."""

    def log(self, topic: str, partition: int = 0) -> Log:
        """Return a handle of its own on a log."""
        ...

    def leader(self, log: Log) -> Hashable:
        """Return who answers for a log, as far as is known; None where nobody knows just now.

        Who asks together only what has one leader never waits for a broker about another's logs.
        """
        ...

    async def exists(self, topic: str) -> bool:
        """True if a broker knows the topic. Raises ``Unavailable``."""
        ...

    async def append_many(self, items: Appends, *, deadline_s: float) -> list[int | StoreError]:
        """Append to several logs of this cluster at once; one result each, in order.

        Failures are returned, not raised: one log's says nothing of another's. No log may occur
        twice.
        """
        ...

    async def read_many(
        self, items: Reads, *, bytes_max: int, wait_s: float
    ) -> list[list[Entry] | StoreError]:
        """Read several logs of this cluster at once; one result each, in order.

        Where none has entries at its offset they are waited for, at most ``wait_s``; those of the
        first may come alone. An empty list says that the log ended there when or after the call
        began. Failures are returned, not raised: one log's says nothing of another's.
        """
        ...

    def changelog_writer(
        self, topic: str, partition: int, transactional_id: str
    ) -> ChangelogWriter:
        """Return a writer; whoever fences last under ``transactional_id`` may flush."""
        ...

    def changelog_reader(self, topic: str, partition: int) -> ChangelogReader:
        """Return a reader of what is committed."""
        ...


class TopicCluster(LogCluster, Protocol):
    """A cluster whose topics a worker makes and deletes. Start it before use, stop it after."""

    @property
    def answered_s(self) -> float | None:
        """Return when it last answered, by ``time.monotonic``; None where it never did."""
        ...

    async def start(self) -> None:
        """Wait until it answers. May be called again. Raises ``Unavailable``."""
        ...

    async def run(self) -> None:
        """Do what it needs in the background, until cancelled."""
        ...

    async def stop(self) -> None:
        """Release what ``start`` took."""
        ...

    async def topics(self) -> dict[str, int]:
        """Return the topics of our prefix with their numbers of partitions."""
        ...

    async def create_topics(self, specs: Sequence[TopicSpec]) -> None:
        """Create topics where they are missing. They take appends when this returns."""
        ...

    async def delete_topics(self, names: Sequence[str]) -> None:
        """Delete topics with all they hold. One that does not exist is no error."""
        ...

    async def require_durable(self, specs: Sequence[TopicSpec], logs: Sequence[str]) -> None:
        """Raise where a setting of an existing topic could lose an acknowledged write.

        ``logs`` are the shards' topics that exist.
        """
        ...
