"""One partition of the local log in memory: how far it goes, and who waits for more.

``planned`` is what the batches made so far lead to, ``bounds`` what is on the disk. A batch is
filled from ``planned``. Readers use ``bounds``, but they do not read below the planned start.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress

from rowtide.core.values.errors import LogTrimmed, Unavailable
from rowtide.stream.log.local.layout import Bounds, bounds_key
from rowtide.stream.log.local.store import AtomicWrite

__all__ = ["LocalPartition", "growth"]


class LocalPartition:
    """A partition. ``number`` is its place in the database, ``name`` is for people."""

    def __init__(self, number: int, name: str, bounds: Bounds) -> None:
        self.number = number
        self.name = name
        self.bounds = bounds
        self.planned = bounds
        self.deleted = False
        self.compacting = asyncio.Lock()
        """Held by whoever makes each key of a changelog stand once."""
        self._waiters: dict[asyncio.Future[None], None] = {}
        """Woken in the order in which they came."""

    @property
    def start(self) -> int:
        """Return the first offset that may be read.

        The thread may have deleted what a trim has planned, before the trim is settled.
        """
        return max(self.bounds.start, self.planned.start)

    def plan(self, batch: AtomicWrite, bounds: Bounds) -> None:
        """Let a batch make ``bounds`` ours."""
        self.planned = bounds
        batch.put(bounds_key(self.number), bounds.encoded())

    def settle(self) -> None:
        """Take what is planned for done: its batch is on the disk. Wakes who waits."""
        grown = self.planned.end > self.bounds.end
        self.bounds = self.planned
        if grown:
            self.wake()

    def reload(self, bounds: Bounds) -> None:
        """Take what was read from the disk after a failure."""
        self.bounds = self.planned = bounds
        self.wake()

    def wake(self) -> None:
        """Let whoever waits look again."""
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    def require(self, offset: int) -> None:
        """Raise ``LogTrimmed`` or ``Unavailable`` unless ``offset`` lies within, or at the end."""
        if self.deleted:
            raise Unavailable(f"{self.name}: the topic was deleted")
        if offset < self.start:
            raise LogTrimmed(
                f"{self.name}: offset {offset} is trimmed, the log starts at {self.start}"
            )
        if offset > self.bounds.end:
            raise Unavailable(f"{self.name}: offset {offset} lies beyond the end {self.bounds.end}")

    def add_waiter(self, waiter: asyncio.Future[None]) -> None:
        """Have ``waiter`` woken by what comes next."""
        self._waiters[waiter] = None

    def remove_waiter(self, waiter: asyncio.Future[None]) -> None:
        """Wake it no more."""
        self._waiters.pop(waiter, None)


async def growth(partitions: Iterable[LocalPartition], wait_s: float) -> None:
    """Return when one of the partitions has grown, or after ``wait_s``."""
    waiting = list(partitions)
    waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    for partition in waiting:
        partition.add_waiter(waiter)
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await waiter
    finally:
        for partition in waiting:
            partition.remove_waiter(waiter)
