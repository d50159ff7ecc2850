"""A cluster of logs, as those use it who own slots.

It has two implementations: Kafka (``kafka_cluster.py``) and the broker of the simulation
(``tests/simulation``). Topic names are full names, prefix included.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from rowtide.core.errors import StoreError
from rowtide.stream.changelog import ChangelogReader, ChangelogWriter
from rowtide.stream.log import Log

__all__ = ["Appends", "LogCluster"]

Appends = Sequence[tuple[Log, Sequence[tuple[bytes, bytes]]]]
"""What goes out together: per log the (key, value) pairs of one batch."""


class LogCluster(Protocol):
    """Gives handles on logs and changelogs. Cheap; nothing is opened."""

    def log(self, topic: str, partition: int = 0) -> Log:
        """Return a handle of its own on a log."""
        ...

    async def append_many(self, items: Appends, *, deadline_s: float) -> list[int | StoreError]:
        """Append to several logs of this cluster at once; one result each, in order.

        Failures are returned, not raised: one log's says nothing of another's. No log may occur
        twice.
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
