"""How a slot repeats its upkeep: a table of jobs, each with its name and its interval.

An interval is a function that returns once the job is due again: after a fixed time, or
earlier if the job has a reason. A job that fails for good ends the slot's life with its
error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial

__all__ = ["UpkeepJob", "every", "start_jobs"]


@dataclass(frozen=True, slots=True)
class UpkeepJob:
    """One row of the table. ``is_due_first`` jobs do not wait before their first run."""

    name: str
    interval: Callable[[], Awaitable[None]]
    job: Callable[[], Awaitable[None]]
    is_due_first: bool = False

    async def repeat(self) -> None:
        """Wait for the interval, then do the job, until cancelled."""
        if self.is_due_first:
            await self.job()
        while True:
            await self.interval()
            await self.job()


def every(seconds: float) -> Callable[[], Awaitable[None]]:
    """Return an interval of a fixed length."""
    return partial(asyncio.sleep, seconds)


def start_jobs(jobs: Iterable[UpkeepJob], tasks: asyncio.TaskGroup, slot: int) -> None:
    """Start a task for each job, in the order of the table."""
    for job in jobs:
        tasks.create_task(job.repeat(), name=f"{job.name}[{slot}]")
