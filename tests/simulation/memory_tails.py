"""The tails of logs in memory, as ``stream/log/kafka/tails.py`` follows them at brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from rowtide.core.values.errors import LogTrimmed, StoreError
from rowtide.stream.log.kafka.tails import PAUSE_S, WAIT_S
from rowtide.stream.log.tails import Tail, TailFollower
from tests.simulation.memory_cluster import MemoryCluster

__all__ = ["MemoryTails"]


class MemoryTails:
    """The logs that a worker follows, each with a task of its own."""

    def __init__(
        self, cluster: MemoryCluster, tasks: asyncio.TaskGroup, clock_s: Callable[[], float]
    ) -> None:
        self._cluster = cluster
        self._tasks = tasks
        self._clock_s = clock_s

    def follow(self, topic: str, offset: int, follower: TailFollower) -> Tail:
        """Report a log's entries from ``offset`` on to ``follower``."""
        tail = Tail(topic, offset, follower)
        following = self._follow(tail)
        try:
            self._tasks.create_task(following, name=f"tail of {topic}")
        except RuntimeError:  # The worker ends.
            following.close()
        return tail

    def leave(self, tail: Tail) -> None:
        """Stop following: the follower gets no more calls."""
        tail.left = True

    async def _follow(self, tail: Tail) -> None:
        log = self._cluster.log(tail.topic)
        while not tail.left:
            asked_s = self._clock_s()
            try:
                entries, end = await log.tail(tail.offset, wait_s=WAIT_S)
            except LogTrimmed:
                if not tail.left:
                    tail.follower.note_trim()
                return
            except StoreError:
                await asyncio.sleep(PAUSE_S)
                continue
            if tail.left:
                return
            if entries:
                tail.offset = entries[-1].offset + 1
            tail.follower.take(entries, end, asked_s)
