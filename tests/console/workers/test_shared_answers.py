"""Answers that viewers share: asked once, renewed when they are old, and bounded in number."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rowtide.console.workers.shared_answers import ANSWERS_MAX, FRESH_S, SharedAnswers
from rowtide.core.values.errors import OutcomeUnknown, Rejected, StoreError, Unavailable
from tests.console.workers.scripted_calls import KEY, ScriptedCalls
from tests.support.waiting import SOON_S

OPERATION = "RowtideConsumption"


class Counting:
    """Answers that are numbered, and the time."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.number = 0
        self.failure: StoreError | None = None
        self.calls = ScriptedCalls(**{OPERATION: self.answer})
        self.shared = SharedAnswers(self.calls, KEY, "demo", now_s=lambda: self.now_s)

    def answer(self, _: Any) -> dict[str, int]:
        if self.failure is not None:
            raise self.failure
        self.number += 1
        return {"number": self.number}

    async def ask(self, **fields: object) -> Any:
        return (await self.shared.ask(OPERATION, fields))["number"]


async def test_an_answer_is_shared_until_it_is_old() -> None:
    counting = Counting()
    assert [await counting.ask(), await counting.ask()] == [1, 1]
    counting.now_s += FRESH_S
    assert await counting.ask() == 1
    counting.now_s += 0.1
    assert await counting.ask() == 2


async def test_another_request_has_another_answer() -> None:
    counting = Counting()
    assert [await counting.ask(table="a"), await counting.ask(table="b")] == [1, 2]
    assert await counting.ask(table="a") == 1


async def test_many_at_once_ask_once() -> None:
    counting = Counting()
    async with asyncio.TaskGroup() as tasks:
        asked = [tasks.create_task(counting.ask()) for _ in range(100)]
    assert {task.result() for task in asked} == {1}


async def test_a_slow_operation_delays_no_other() -> None:
    called, answer = asyncio.Event(), asyncio.Event()

    async def answer_late(_request: object) -> dict[str, int]:
        called.set()
        await answer.wait()
        return {"hours": 1}

    calls = ScriptedCalls(RowtideListLoads=lambda _: {"loads": 1}, **{OPERATION: answer_late})
    shared = SharedAnswers(calls, KEY, "demo")
    async with asyncio.TaskGroup() as tasks:
        slow = tasks.create_task(shared.ask(OPERATION))
        await called.wait()
        async with asyncio.timeout(SOON_S):
            assert await shared.ask("RowtideListLoads") == {"loads": 1}
        second = tasks.create_task(shared.ask(OPERATION))
        assert not slow.done()
        answer.set()
    assert slow.result() == second.result() == {"hours": 1}
    assert [operation for operation, _ in calls.asked] == [OPERATION, "RowtideListLoads"]


async def test_answers_are_bounded() -> None:
    counting = Counting()
    for number in range(ANSWERS_MAX + 1):
        await counting.ask(number=number)
    assert await counting.ask(number=ANSWERS_MAX) == ANSWERS_MAX + 1
    assert await counting.ask(number=0) == ANSWERS_MAX + 2


@pytest.mark.parametrize(
    ("failure", "raised"),
    [
        (Unavailable("away"), Unavailable),
        (OutcomeUnknown("late"), OutcomeUnknown),
        # It is not the viewer's key that the worker refused.
        (Rejected("OTSAuthFailed", "gone"), Unavailable),
    ],
)
async def test_a_failure_is_not_kept(failure: StoreError, raised: type[StoreError]) -> None:
    counting = Counting()
    counting.failure = failure
    with pytest.raises(raised):
        await counting.ask()
    counting.failure = None
    assert await counting.ask() == 1
