"""A local cluster for tests, and a store whose writes they stop and fail."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from rowtide.stream.log.local.cluster import LocalCluster
from rowtide.stream.log.local.store import AtomicWrite, LogStore, WriteFailed
from rowtide.stream.log.topics import TopicSpec
from tests.support.waiting import SOON_S

LOG, CHANGELOG = "rowtide.shard.s1", "rowtide-rows-changelog"
SPECS = [TopicSpec(LOG, 2), TopicSpec(CHANGELOG, 2, "compacted")]


@asynccontextmanager
async def open_cluster(
    path: Path, clock_ms: Callable[[], int] = lambda: 0
) -> AsyncIterator[LocalCluster]:
    """Yield a cluster with its topics, which opens its database again after failures."""
    cluster = LocalCluster(LogStore(path), prefix="rowtide", clock_ms=clock_ms)
    async with cluster, asyncio.TaskGroup() as tasks:
        running = tasks.create_task(cluster.run(), name="cluster")
        await cluster.create_topics(SPECS)
        yield cluster
        running.cancel()


class CountingStore:
    """Counts the writes of a store, and fails the next one, before or after it is done."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.count = 0
        self.fails = ""
        self.gate = threading.Event()
        """Writes wait while it is not set."""
        self.gate.set()
        self.finished = threading.Event()
        """Set when a write has reached the disk, maybe before the event loop knows."""
        self._write = cluster.store.write
        cluster.store.write = self.write  # type: ignore[method-assign]

    def write(self, batch: AtomicWrite) -> None:
        self.count += 1
        self.gate.wait(SOON_S)
        fails, self.fails = self.fails, ""
        if fails == "before":
            raise WriteFailed("as asked")
        self._write(batch)
        self.finished.set()
        if fails == "after":
            raise WriteFailed("as asked")
