"""Work for many callers is done once for all that called before it began."""

from __future__ import annotations

import asyncio

import pytest

from rowtide.core.values.errors import Unavailable
from rowtide.stream.log.shared_work import SharedWork


class Work:
    """Counts how often it was begun; continues when allowed."""

    def __init__(self) -> None:
        self.shared = SharedWork()
        self.begun = 0
        self.going_on = asyncio.Event()
        self.fails = 0

    async def ask(self) -> None:
        await self.shared.since(self._work)

    async def _work(self) -> None:
        self.begun += 1
        await self.going_on.wait()
        if self.fails:
            self.fails -= 1
            raise Unavailable


async def test_who_asks_while_one_is_under_way_shares_the_next_one() -> None:
    work = Work()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(work.ask(), name="first")
        await asyncio.sleep(0)
        others = [tasks.create_task(work.ask(), name=f"other {n}") for n in range(5)]
        await asyncio.sleep(0)
        assert work.begun == 1
        work.going_on.set()
    assert all(other.done() for other in others)
    assert work.begun == 2, "what had begun says nothing of what was asked for later"


async def test_one_that_fails_is_nobody_elses() -> None:
    work = Work()
    work.fails = 1
    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(is_refused(work), name="first")
        await asyncio.sleep(0)
        tasks.create_task(work.ask(), name="other")
        work.going_on.set()
    assert first.result()
    assert work.begun == 2


async def is_refused(work: Work) -> bool:
    """True if the work failed."""
    with pytest.raises(Unavailable):
        await work.ask()
    return True
