"""One partition of the local log in memory: its bounds, and the tasks that wait for more.

``planned`` has the bounds after all batches that were made so far, ``bounds`` those on
the disk. A batch is filled from ``planned``. Readers use ``bounds``, but do not read
below the planned start.
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
    """A partition. ``number`` is its number in the database, ``name`` is for people."""

    def __init__(self, number: int, name: str, bounds: Bounds) -> None:
        self.number = number
        self.name = name
        self.bounds = bounds
        self.planned = bounds
        self.deleted = False
        self.compacting = asyncio.Lock()
        """Held during the compaction of a changelog."""
        self._waiters: dict[asyncio.Future[None], None] = {}
        """Woken in the order in which they were added."""

    @property
    def start(self) -> int:
        """Return the first offset that may be read.

        The thread may have deleted the entries of a planned trim before that is settled.
        """
        return max(self.bounds.start, self.planned.start)

    def plan(self, batch: AtomicWrite, bounds: Bounds) -> None:
        """Add ``bounds`` to a batch, and make them the planned ones."""
        self.planned = bounds
        batch.put(bounds_key(self.number), bounds.encode())

    def settle(self) -> None:
        """Make the planned bounds valid: their batch is on the disk. Wakes the waiting tasks."""
        grown = self.planned.end > self.bounds.end
        self.bounds = self.planned
        if grown:
            self.wake()

    def reload(self, bounds: Bounds) -> None:
        """Set the bounds that were read from the disk after a failure."""
        self.bounds = self.planned = bounds
        self.wake()

    def wake(self) -> None:
        """Wake every waiting task."""
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
        """Wake ``waiter`` at the next change."""
        self._waiters[waiter] = None

    def remove_waiter(self, waiter: asyncio.Future[None]) -> None:
        """Stop waking ``waiter``."""
        self._waiters.pop(waiter, None)


async def growth(partitions: Iterable[LocalPartition], wait_s: float) -> None:
    """Wait until one of the partitions has grown, or for ``wait_s``."""
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
