"""Who waits at a shard for what becomes of a change, and how they are told: once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from rowtide.core.records import record
from rowtide.core.rows.mutation import ChangeRequest, Outcome
from rowtide.core.shard.evaluated import Evaluated
from rowtide.core.shard.group import Group
from rowtide.core.shard.shard import Shard
from rowtide.core.values.errors import OutcomeUnknown, StoreError

__all__ = [
    "NOTHING",
    "ChangeWaiter",
    "GroupWaiter",
    "HiddenWaiter",
    "Reply",
    "Tell",
    "Waiter",
    "answer",
    "fail",
]

Tell = Callable[[Outcome | StoreError], None]
"""Called once, with what became of a change."""

NOTHING = Outcome(b"", 0, 0)
"""The outcome of what returns no row and costs no units."""


@dataclass(slots=True)
class Waiter:
    """What every kind of waiter has.

    ``error`` is a refusal, which holds once its turn comes. Neither ``evaluated`` nor ``error`` is
    set while the evaluation still has to wait. ``many`` are the records of a group.
    """

    is_hidden: ClassVar[bool] = False
    tell: Tell
    since_s: float
    evaluated: Evaluated | None = field(default=None, kw_only=True)
    many: Sequence[Evaluated] = field(default=(), kw_only=True)
    error: StoreError | None = field(default=None, kw_only=True)
    told: bool = field(default=False, kw_only=True)
    unproven: bool = field(default=False, kw_only=True)
    """Whether the answer changes nothing and was decided while no lease held."""

    def evaluate(self, shard: Shard, now_us: int) -> None:
        """Evaluate what is waited for. Raises what refuses it."""
        raise NotImplementedError

    def expire(self) -> None:
        """Tell that it is not known what becomes of it: it has waited too long."""
        fail(self, OutcomeUnknown())

    @property
    def logged(self) -> Evaluated | None:
        """Return the evaluation where it has a record for the log."""
        evaluated = self.evaluated
        return evaluated if evaluated is not None and evaluated.body is not None else None

    @property
    def writes(self) -> bool:
        """Whether it has a record for the log, or several."""
        return self.logged is not None or bool(self.many)


@dataclass(slots=True)
class ChangeWaiter(Waiter):
    """Someone who waits for a change."""

    change: ChangeRequest

    def evaluate(self, shard: Shard, now_us: int) -> None:
        self.evaluated = shard.evaluate(self.change, now_us)


@dataclass(slots=True)
class GroupWaiter(Waiter):
    """Someone who waits for changes that are logged together.

    ``tell`` may be called with ``OutcomeUnknown`` several times before it is called with what
    became of them.
    """

    group: Group

    def evaluate(self, shard: Shard, now_us: int) -> None:
        self.many = self.group.evaluate(shard, now_us)
        self.evaluated = Evaluated(NOTHING, 0)

    def expire(self) -> None:
        self.tell(OutcomeUnknown())


@dataclass(slots=True)
class HiddenWaiter(Waiter):
    """One of us who waits for a hidden record."""

    is_hidden: ClassVar[bool] = True
    body: record.Body

    def evaluate(self, shard: Shard, now_us: int) -> None:
        self.evaluated = shard.control(self.body, now_us)


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
