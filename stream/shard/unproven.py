"""Answers that wait for a lapsed lease: refusals that were decided while no lease held.

A refusal writes nothing, but it is a strong read: it tells what the shard decided it on. Where the
lease holds again, no other owner has served the shard since our claim. So the refusal was decided
on the newest rows, and is answered. Writes need no lease, and never wait here.
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
    """The unproven answers of one shard. All that they were decided on stands in the log."""

    def __init__(self, lease: ReadLease) -> None:
        self._lease = lease
        self._waiting: list[Waiter] = []
        self._task = SingleTask()
        self._stopped = False
        """Whether answers wait no more: they fail where no lease holds."""

    def add(self, batch: Sequence[Waiter], tasks: asyncio.TaskGroup) -> None:
        """Answer ``batch`` once the lease holds, or fail it. A task of ``tasks`` waits for that."""
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
        """Answer all that wait where the lease holds, else fail them."""
        batch, self._waiting = self._waiting, []
        proven = self._lease.holds()
        for waiting in batch:
            waiting.unproven = False
            if not proven:
                fail(waiting, Unavailable())
        answer(batch)

    def expire(self, oldest_s: float) -> None:
        """Fail those that have waited since before ``oldest_s``. They wrote nothing."""
        for waiting in self._waiting:
            if waiting.since_s < oldest_s:
                fail(waiting, Unavailable())

    def stop(self) -> None:
        """Answer or fail all that wait, and from now on each one at once."""
        self._stopped = True
        self._task.cancel()
        self._answer()
