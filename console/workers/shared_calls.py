"""Calls of a worker that serve all who wait for the same thing.

When a console starts again, its viewers come back within a second, and each needs the same few
facts. Those who ask while a call is under way share the next one. So no answer is older than its
question, and any number of questions at once take two calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from rowtide.core.values.errors import StoreError

__all__ = ["SharedCalls"]

Answer = TypeVar("Answer")


@dataclass(slots=True, eq=False)
class _Question(Generic[Answer]):
    """What some wait for. Calls are counted from 1; ``outcome`` is that of call ``answered``."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: int = 0
    begun: int = 0
    answered: int = 0
    outcome: Answer | StoreError | None = None


class SharedCalls(Generic[Answer]):
    """Questions by name. A failure is shared like an answer."""

    def __init__(self) -> None:
        self._questions: dict[Hashable, _Question[Answer]] = {}

    async def ask(self, name: Hashable, call: Callable[[], Awaitable[Answer]]) -> Answer:
        """Return the answer of a call that began after this one. Raises its ``StoreError``."""
        question = self._questions.setdefault(name, _Question())
        wanted = question.begun + 1
        question.waiting += 1
        try:
            async with question.lock:
                if question.answered < wanted:
                    await self._answer(question, call)
                outcome = question.outcome
        finally:
            question.waiting -= 1
            if not question.waiting:
                self._questions.pop(name, None)
        if isinstance(outcome, StoreError):
            raise outcome
        assert outcome is not None, "set by the call that this one waited for"
        return outcome

    async def _answer(
        self, question: _Question[Answer], call: Callable[[], Awaitable[Answer]]
    ) -> None:
        question.begun += 1
        number = question.begun
        try:
            question.outcome = await call()
        except StoreError as error:
            question.outcome = error
        question.answered = number
