"""Who waits at a shard for what becomes of a change, and how they are told: once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rowtide.core.records import record
from rowtide.core.rows.mutation import ChangeRequest, Outcome
from rowtide.core.shard.evaluated import Evaluated
from rowtide.core.shard.group import Group
from rowtide.core.values.errors import StoreError

__all__ = ["Reply", "Tell", "Waiter", "answer", "fail"]

Tell = Callable[[Outcome | StoreError], None]
"""Called once, with what became of a change."""


@dataclass(slots=True)
class Waiter:
    """Someone who waits for a change or a group, or one of us who waits for a hidden record.

    Exactly one of ``change``, ``hidden`` and ``group`` is set. ``error`` is a refusal, which holds
    once its turn comes. Neither ``evaluated`` nor ``error`` is set while the evaluation still has
    to wait. A group's records are ``many``; its ``tell`` may be called with ``OutcomeUnknown``
    several times before it is called with what became of it.
    """

    tell: Tell
    since_s: float
    change: ChangeRequest | None = None
    hidden: record.Body | None = None
    group: Group | None = None
    evaluated: Evaluated | None = None
    many: Sequence[Evaluated] = ()
    error: StoreError | None = None
    told: bool = False
    unproven: bool = False
    """Whether the answer changes nothing and was decided while no lease held."""

    @property
    def logged(self) -> Evaluated | None:
        """Return the evaluation where it has a record for the log."""
        evaluated = self.evaluated
        return evaluated if evaluated is not None and evaluated.body is not None else None

    @property
    def writes(self) -> bool:
        """Whether it has a record for the log, or several."""
        return self.logged is not None or bool(self.many)


class Reply:
    """A future that is told what became of a change."""

    __slots__ = ("future",)

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.future: asyncio.Future[Outcome] = loop.create_future()

    def __call__(self, told: Outcome | StoreError) -> None:
        if self.future.done():
            return
        if isinstance(told, StoreError):
            self.future.set_exception(told)
        else:
            self.future.set_result(told)


def answer(batch: Sequence[Waiter]) -> None:
    """Tell those of a batch that stands what became of them, save those that are unproven."""
    for waiting in batch:
        if waiting.told or waiting.unproven:
            continue
        waiting.told = True
        if waiting.error is not None:
            waiting.tell(waiting.error)
        elif waiting.evaluated is not None:
            waiting.tell(waiting.evaluated.outcome)


def fail(waiting: Waiter, error: StoreError) -> None:
    """Tell one that it came to nothing, or that nobody knows."""
    if not waiting.told:
        waiting.told = True
        waiting.tell(error)
