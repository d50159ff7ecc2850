"""Callers that wait for a change's outcome at a shard.

Each gets one report. Only a group's caller may get ``OutcomeUnknown`` several times before it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from rowtide.core.records import record
from rowtide.core.rows.mutation import ChangeRequest, Outcome
from rowtide.core.shard.evaluated import Evaluated
from rowtide.core.shard.group import AtomicBatch, Group, Transaction
from rowtide.core.shard.plain_batch import PlainWrite, evaluate_together, is_independent
from rowtide.core.shard.shard import Shard
from rowtide.core.shard.unique_put import UniquePut
from rowtide.core.values.errors import OutcomeUnknown, StoreError
from rowtide.stream.shard.open_transactions import Nothing

__all__ = [
    "NOTHING",
    "ChangeWaiter",
    "GroupWaiter",
    "HiddenWaiter",
    "PlainWaiter",
    "Reply",
    "Tell",
    "Waiter",
    "answer",
    "fail",
]

Tell = Callable[[Outcome | StoreError], None]
"""Called with the outcome of a change: once, except for a ``GroupWaiter``."""

NOTHING = Outcome(b"", 0, 0)
"""The outcome of an operation that returns no row and costs no units."""


@dataclass(slots=True)
class Waiter:
    """The state that every kind of waiter has.

    ``error`` is a rejection. It is final once the waiter's batch is valid. Neither
    ``evaluated`` nor ``error`` is set before the evaluation. ``many`` has a group's records.
    """

    is_hidden: ClassVar[bool] = False
    tell: Tell
    since_s: float
    evaluated: Evaluated | None = field(default=None, kw_only=True)
    many: Sequence[Evaluated] = field(default=(), kw_only=True)
    error: StoreError | None = field(default=None, kw_only=True)
    is_answered: bool = field(default=False, kw_only=True)
    is_unproven: bool = field(default=False, kw_only=True)
    """True if the answer changes nothing and was decided without a valid lease."""

    def evaluate(self, shard: Shard, now_us: int) -> None:
        """Evaluate the change. Raises if it is rejected."""
        raise NotImplementedError

    def may_write(self, partition_key: bytes, encoded: bytes) -> bool:
        """True unless no row of this partition key, as variant and encoded, can be written."""
        return True

    def expire(self) -> None:
        """Report an unknown outcome: it has waited too long."""
        fail(self, OutcomeUnknown())

    @property
    def logged(self) -> Evaluated | None:
        """The evaluation, if it has a record for the log."""
        evaluated = self.evaluated
        return evaluated if evaluated is not None and evaluated.body is not None else None

    @property
    def has_records(self) -> bool:
        """True if it has a record for the log, or several."""
        return self.logged is not None or bool(self.many)


@dataclass(slots=True)
class ChangeWaiter(Waiter):
    """A caller that waits for a change."""

    change: ChangeRequest

    def evaluate(self, shard: Shard, now_us: int) -> None:
        self.evaluated = shard.evaluate(self.change, now_us)

    def may_write(self, partition_key: bytes, encoded: bytes) -> bool:
        return self.change.key[0][1] == partition_key


@dataclass(slots=True)
class PlainWaiter(Waiter):
    """A caller that waits for a plain write, which may be evaluated together with others."""

    write: PlainWrite

    def evaluate(self, shard: Shard, now_us: int) -> None:
        if not is_independent(shard, (self.write.row,)):
            self.evaluated = shard.evaluate(self.write.change(), now_us)
            return
        (result,) = evaluate_together(shard, (self.write,), now_us)
        self.take_result(result)
        if self.error is not None:
            raise self.error

    def may_write(self, partition_key: bytes, encoded: bytes) -> bool:
        return self.write.row[3].startswith(encoded)

    def take_result(self, result: Evaluated | StoreError) -> None:
        """Take the evaluation, or the rejection."""
        if isinstance(result, Evaluated):
            self.evaluated = result
        else:
            self.error = result


@dataclass(slots=True)
class GroupWaiter(Waiter):
    """A caller that waits for changes that are logged together.

    ``tell`` may get ``OutcomeUnknown`` several times before it gets the outcome.
    """

    group: Group

    def evaluate(self, shard: Shard, now_us: int) -> None:
        self.many = self.group.evaluate(shard, now_us)
        self.evaluated = Evaluated(NOTHING, 0)

    def may_write(self, partition_key: bytes, encoded: bytes) -> bool:
        group = self.group
        if isinstance(group, Transaction | AtomicBatch | UniquePut):
            return group.partition_key == partition_key
        return not isinstance(group, Nothing)

    def expire(self) -> None:
        self.tell(OutcomeUnknown())


@dataclass(slots=True)
class HiddenWaiter(Waiter):
    """Our own code that waits for a hidden record."""

    is_hidden: ClassVar[bool] = True
    body: record.Body

    def evaluate(self, shard: Shard, now_us: int) -> None:
        self.evaluated = shard.control(self.body, now_us)


class Reply:
    """A future that gets the outcome of a change."""

    __slots__ = ("future",)

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.future: asyncio.Future[Outcome] = loop.create_future()

    def __call__(self, outcome: Outcome | StoreError) -> None:
        if self.future.done():
            return
        if isinstance(outcome, StoreError):
            self.future.set_exception(outcome)
        else:
            self.future.set_result(outcome)


def answer(batch: Sequence[Waiter]) -> None:
    """Report the outcomes of a valid batch, except unproven ones."""
    for waiting in batch:
        if waiting.is_answered or waiting.is_unproven:
            continue
        waiting.is_answered = True
        if waiting.error is not None:
            waiting.tell(waiting.error)
        elif waiting.evaluated is not None:
            waiting.tell(waiting.evaluated.outcome)


def fail(waiting: Waiter, error: StoreError) -> None:
    """Report an error to a waiter: nothing was written, or the outcome is unknown."""
    if not waiting.is_answered:
        waiting.is_answered = True
        waiting.tell(error)
