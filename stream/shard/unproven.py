"""Answers that wait for a lapsed lease: rejections that were decided without a valid lease.

A rejection writes nothing, but it is a strong read: it shows the rows on which the shard
decided. Once the lease holds again, no other owner has served the shard since our claim.
So the rejection was decided on the newest rows, and is answered. Writes need no lease,
and never wait here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from rowtide.core.values.errors import Unavailable
from rowtide.stream.shard.lapsed_lease import LeaseLapsed
from rowtide.stream.shard.read_lease import ReadLease
from rowtide.stream.shard.single_task import SingleTask
from rowtide.stream.shard.waiting import Waiter, answer, fail

__all__ = ["Unproven"]


class Unproven:
    """The unproven answers of one shard. Everything that they were decided on is in the log."""

    def __init__(self, lease: ReadLease) -> None:
        self._lease = lease
        self._waiting: list[Waiter] = []
        self._task = SingleTask()
        self._stopped = False
        """True if answers no longer wait: without a valid lease they fail."""

    def add(self, batch: Sequence[Waiter], tasks: asyncio.TaskGroup) -> None:
        """Answer ``batch`` once the lease holds, or fail it. A task in ``tasks`` waits for that."""
        self._waiting += batch
        if self._stopped or self._lease.holds():
            self._answer()
        else:
            self._task.start(self._prove, tasks, "unproven")

    async def _prove(self) -> None:
        while self._waiting:
            failure = self._lease.failure()
            if isinstance(failure, LeaseLapsed):
                await failure.renewed()
            self._answer()

    def _answer(self) -> None:
        """Answer all waiting ones if the lease holds, else fail them."""
        batch, self._waiting = self._waiting, []
        proven = self._lease.holds()
        for waiting in batch:
            waiting.is_unproven = False
            if not proven:
                fail(waiting, Unavailable())
        answer(batch)

    def expire(self, oldest_s: float) -> None:
        """Fail those that have waited since before ``oldest_s``. They wrote nothing."""
        for waiting in self._waiting:
            if waiting.since_s < oldest_s:
                fail(waiting, Unavailable())

    def stop(self) -> None:
        """Answer or fail all waiting ones, and from now on each one at once."""
        self._stopped = True
        self._task.cancel()
        self._answer()
