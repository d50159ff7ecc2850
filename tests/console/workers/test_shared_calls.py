"""Calls that serve all who wait for the same thing."""

from __future__ import annotations

import asyncio

import pytest

from rowtide.console.workers.shared_calls import SharedCalls
from rowtide.core.values.errors import Unavailable
from tests.support.waiting import until_async


class Worker:
    """Counts calls; each is answered with its number once ``may_answer`` is set."""

    def __init__(self) -> None:
        self.calls = 0
        self.may_answer = asyncio.Event()
        self.failure: Unavailable | None = None

    async def call(self) -> int:
        self.calls += 1
        number = self.calls
        await self.may_answer.wait()
        if self.failure is not None:
            raise self.failure
        return number


async def test_who_asks_during_a_call_gets_the_answer_of_the_next_one() -> None:
    worker, shared = Worker(), SharedCalls[int]()
    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(shared.ask("t", worker.call))
        await until_async(lambda: worker.calls == 1)
        others = [tasks.create_task(shared.ask("t", worker.call)) for _ in range(100)]
        apart = tasks.create_task(shared.ask("u", worker.call))
        await until_async(lambda: worker.calls == 2)
        worker.may_answer.set()
    assert (first.result(), apart.result()) == (1, 2)
    assert {task.result() for task in others} == {3}
    assert await shared.ask("t", worker.call) == 4


async def test_a_failure_is_shared_and_not_kept() -> None:
    worker, shared = Worker(), SharedCalls[int]()
    worker.failure = Unavailable("no worker")

    async def fail() -> None:
        with pytest.raises(Unavailable, match="no worker"):
            await shared.ask("t", worker.call)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(100):
            tasks.create_task(fail())
        await until_async(lambda: worker.calls == 1)
        worker.may_answer.set()
    assert worker.calls == 2
    worker.failure = None
    assert await shared.ask("t", worker.call) == worker.calls


async def test_who_leaves_during_its_call_leaves_the_others_theirs() -> None:
    worker, shared = Worker(), SharedCalls[int]()
    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(shared.ask("t", worker.call))
        await until_async(lambda: worker.calls == 1)
        second = tasks.create_task(shared.ask("t", worker.call))
        await asyncio.sleep(0)
        first.cancel()
        await until_async(lambda: worker.calls == 2)
        worker.may_answer.set()
    with pytest.raises(asyncio.CancelledError):
        first.result()
    assert second.result() == 2
