"""The changes that wait for a place in a shard's log: in the queue, or in the batch in flight.

A waiter is in one of the two until it is answered, and their order never changes. A
hidden record is a barrier: later changes are evaluated once it is applied. It goes to the
log alone, and a group goes whole. Plain writes that arrive in one turn of the event loop are
evaluated together, before any other change is, and before a batch is taken.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from rowtide.core.values import key
from rowtide.stream.shard.waiting import PlainWaiter, Waiter

__all__ = ["WriteQueue"]

LOOKED_AT_MAX = 1000
"""Waiters among which one is searched. That takes about 100 us."""


class WriteQueue:
    """The queue of one shard. ``evaluate`` evaluates a waiter after all earlier ones.

    ``evaluate_together`` does the same for several plain writes; it never raises.
    ``records_max`` and ``bytes_max`` bound a batch.
    """

    def __init__(
        self,
        evaluate: Callable[[Waiter], None],
        evaluate_together: Callable[[Sequence[PlainWaiter]], None],
        *,
        records_max: int,
        bytes_max: int,
    ) -> None:
        self.waiting: deque[Waiter] = deque()
        self.in_flight: list[Waiter] = []
        self.is_sent = False
        """True if any record of the batch in flight may have reached the log."""
        self._evaluate = evaluate
        self._evaluate_together = evaluate_together
        self._arrived: list[PlainWaiter] = []
        """The last changes in the queue, if they are plain writes that are not evaluated yet."""
        self._records_max = records_max
        self._bytes_max = bytes_max
        self._barriers = 0
        self._behind = False
        self._alone = 0
        """Number of changes at the queue's head that go one per batch: together they were
        rejected.
        """
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    def __iter__(self) -> Iterator[Waiter]:
        """Yield all unanswered waiters, in order."""
        yield from (*self.in_flight, *self.waiting)

    @property
    def count(self) -> int:
        """The number of unanswered waiters."""
        return len(self.waiting) + len(self.in_flight)

    @property
    def has_barrier(self) -> bool:
        """True if the outcome of an accepted hidden record is not known yet."""
        return self._barriers > 0

    def may_write(self, partition_key: bytes) -> bool:
        """True if an unanswered waiter may write a row of this partition key, given as variant.

        A rejected change counts too: it is evaluated again if its batch is void, and may be
        accepted then. True also if there are too many waiters to look at.
        """
        if self.count > LOOKED_AT_MAX:
            return True
        encoded = key.encode([partition_key])
        return any(waiter.may_write(partition_key, encoded) for waiter in self)

    # Adding.

    def add(self, waiter: Waiter) -> None:
        """Queue in order. Behind a hidden record, evaluation waits until that one is valid."""
        if self._arrived:
            self.evaluate_arrived()
        if self._barriers or self._behind:
            self._behind = True
        else:
            self._evaluate(waiter)
        self.waiting.append(waiter)
        if waiter.is_hidden:
            self._barriers += 1
        self._idle.clear()
        self._wake.set()

    def add_plain(self, waiter: PlainWaiter) -> bool:
        """Queue a plain write; True if the caller must see that it is evaluated.

        That is so for the first write of a turn while a batch is in flight. If none is, the
        next batch is taken, and evaluates it.
        """
        self.waiting.append(waiter)
        if self._barriers or self._behind:
            self._behind = True
            return False
        self._arrived.append(waiter)
        if self.in_flight:
            return len(self._arrived) == 1
        self._idle.clear()
        self._wake.set()
        return False

    def wake(self) -> None:
        """Let ``work`` return although no change waits."""
        self._wake.set()

    async def work(self) -> None:
        """Wait until there may be work."""
        await self._wake.wait()
        self._wake.clear()

    def rest(self) -> None:
        """Record that all waiters are answered."""
        self._idle.set()

    async def idle(self) -> None:
        """Wait until all waiters are answered."""
        await self._idle.wait()

    # Taking.

    def take(self) -> list[Waiter]:
        """Take the next batch off the queue; it is now in flight."""
        self.evaluate_arrived()
        self.in_flight = self._next_batch()
        self.is_sent = False
        return self.in_flight

    def _next_batch(self) -> list[Waiter]:
        waiting = self.waiting
        if self._alone:
            self._alone -= 1
            return [waiting.popleft()]
        batch: list[Waiter] = []
        size = count = 0
        while waiting and len(batch) + count < self._records_max:
            head = waiting[0]
            if batch and head.is_hidden:
                break
            if (evaluated := head.logged) is not None and evaluated.body is not None:
                size += len(evaluated.body)
                if batch and size > self._bytes_max:
                    break
            elif head.many:
                size += sum([len(part.body or b"") for part in head.many])
                count += len(head.many)
                if batch and (size > self._bytes_max or count > self._records_max):
                    break
            batch.append(waiting.popleft())
            if head.is_hidden:
                break
        return batch

    def end_batch(self) -> None:
        """Drop the batch in flight: it is valid, or was rejected for good."""
        self._barriers -= sum(waiter.is_hidden for waiter in self.in_flight)
        self.in_flight = []

    def take_back(self) -> None:
        """Put the batch in flight back at the queue's head: it is not valid."""
        self.waiting.extendleft(reversed(self.in_flight))
        self.in_flight = []

    def take_back_one_by_one(self) -> bool:
        """Put a rejected batch back, to try each change alone. False if it had only one."""
        if len(self.in_flight) == 1:
            return False
        self._alone = len(self.in_flight)
        self.take_back()
        return True

    def take_all(self) -> list[Waiter]:
        """Remove and return all waiters."""
        everyone = [*self]
        self.in_flight = []
        self.waiting.clear()
        self._barriers = self._alone = 0
        self._behind = False
        self._arrived = []
        return everyone

    def clear(self) -> None:
        """Drop all waiters: they are answered."""
        self.in_flight = []
        self._arrived = []
        self.waiting.clear()
        self._idle.set()

    # Evaluating.

    def evaluate_arrived(self) -> None:
        """Evaluate the plain writes that have arrived since."""
        arrived, self._arrived = self._arrived, []
        if arrived:
            self._evaluate_together(arrived)

    def evaluate_anew(self) -> None:
        """Evaluate the waiting changes again, because their inputs have changed."""
        self._arrived = []
        for waiter in self.waiting:
            waiter.evaluated = waiter.error = None
            waiter.many = ()
        self._catch_up()

    def catch_up(self) -> None:
        """Evaluate the changes behind a hidden record that is valid by now."""
        if self._behind:
            self._catch_up()

    def _catch_up(self) -> None:
        """Evaluate, in order, what has not been; stop behind the first hidden record."""
        self._behind = False
        for waiter in self.waiting:
            if self._behind:
                return
            if waiter.evaluated is None and waiter.error is None:
                self._evaluate(waiter)
            self._behind = waiter.is_hidden
        self._behind = False
