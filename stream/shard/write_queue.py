"""Who waits at a shard for a place in its log: in the queue, or in the batch on its way.

A waiter is in one of the two until it is answered, and the order in which they came never changes.
A hidden record is a barrier: what comes behind it is evaluated once it stands, under what it
brings. It goes to the log alone, and a group goes whole.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator

from rowtide.stream.shard.waiting import Waiter

__all__ = ["WriteQueue"]


class WriteQueue:
    """The queue of one shard. ``evaluate`` evaluates a waiter on what came before it.

    ``records_max`` and ``bytes_max`` bound a batch.
    """

    def __init__(
        self, evaluate: Callable[[Waiter], None], *, records_max: int, bytes_max: int
    ) -> None:
        self.waiting: deque[Waiter] = deque()
        self.in_flight: list[Waiter] = []
        self.is_sent = False
        """Whether anything of the batch in flight may have reached the log."""
        self._evaluate = evaluate
        self._records_max = records_max
        self._bytes_max = bytes_max
        self._barriers = 0
        self._behind = False
        self._alone = 0
        """So many at the queue's head go alone, each a batch: as one they were refused."""
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    def __iter__(self) -> Iterator[Waiter]:
        """Yield everyone who is not answered yet, in order."""
        yield from (*self.in_flight, *self.waiting)

    @property
    def count(self) -> int:
        """How many are not answered yet."""
        return len(self.waiting) + len(self.in_flight)

    @property
    def has_barrier(self) -> bool:
        """Whether a hidden record was taken of which it is not known what becomes of it."""
        return self._barriers > 0

    # Going in.

    def add(self, waiter: Waiter) -> None:
        """Queue in order. Behind a hidden record evaluation waits until that one stands."""
        if self._barriers or self._behind:
            self._behind = True
        else:
            self._evaluate(waiter)
        self.waiting.append(waiter)
        if waiter.is_hidden:
            self._barriers += 1
        self._idle.clear()
        self._wake.set()

    def wake(self) -> None:
        """Let ``work`` return though nobody waits."""
        self._wake.set()

    async def work(self) -> None:
        """Return once there may be something to do."""
        await self._wake.wait()
        self._wake.clear()

    def rest(self) -> None:
        """Note that everyone is answered."""
        self._idle.set()

    async def idle(self) -> None:
        """Return once everyone is answered."""
        await self._idle.wait()

    # Going out.

    def take(self) -> list[Waiter]:
        """Take the next batch off the queue; it is in flight."""
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
                size += sum(len(part.body or b"") for part in head.many)
                count += len(head.many)
                if batch and (size > self._bytes_max or count > self._records_max):
                    break
            batch.append(waiting.popleft())
            if head.is_hidden:
                break
        return batch

    def end_batch(self) -> None:
        """Forget the batch in flight: it stands, or it was refused for good."""
        self._barriers -= sum(waiter.is_hidden for waiter in self.in_flight)
        self.in_flight = []

    def take_back(self) -> None:
        """Put the batch in flight back at the queue's head: it does not stand."""
        self.waiting.extendleft(reversed(self.in_flight))
        self.in_flight = []

    def take_back_one_by_one(self) -> bool:
        """Put a batch that was refused back, to try each one alone. False where it was one."""
        if len(self.in_flight) == 1:
            return False
        self._alone = len(self.in_flight)
        self.take_back()
        return True

    def take_all(self) -> list[Waiter]:
        """Return everyone, and forget them."""
        everyone = [*self]
        self.in_flight = []
        self.waiting.clear()
        self._barriers = self._alone = 0
        self._behind = False
        return everyone

    def clear(self) -> None:
        """Forget everyone: they are answered, and nobody waits any more."""
        self.in_flight = []
        self.waiting.clear()
        self._idle.set()

    # Evaluating.

    def evaluate_anew(self) -> None:
        """Evaluate who waits: what they were evaluated upon is not as it was."""
        for waiter in self.waiting:
            waiter.evaluated = waiter.error = None
            waiter.many = ()
        self._catch_up()

    def catch_up(self) -> None:
        """Evaluate what came behind a hidden record that stands by now."""
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
