"""A table's stream as an asynchronous iterator of batches.

Asking for the next batch says that the one before is finished. One batch is out at a time, whatever
the number of shards: who wants to work on several at once gives a ``ChangeWorker`` a function.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from rowtide.client.changes.leases import Leases, MemoryLeases
from rowtide.client.changes.shard_follower import Unfinished
from rowtide.client.changes.source import ChangeSource
from rowtide.client.changes.start import Begin
from rowtide.client.changes.worker import Batch, ChangeWorker, FollowerSettings

__all__ = ["Hand", "read_changes"]


@asynccontextmanager
async def read_changes(
    source: ChangeSource,
    leases: Leases | None = None,
    *,
    begin: Begin = "oldest",
    settings: FollowerSettings | None = None,
) -> AsyncIterator[AsyncIterator[Batch]]:
    """Give an iterator of batches; the arguments are ``ChangeWorker``'s.

    Without ``leases`` nothing is kept: all shards are read here, and from the beginning each time.
    """
    hand = Hand()
    worker = ChangeWorker(
        source,
        leases or MemoryLeases(),
        hand.give,
        begin=begin,
        settings=settings,
    )
    failure: Exception | None = None
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(hand.run(worker.run()), name="changes")
        try:
            yield hand.batches()
        except Exception as error:  # noqa: BLE001 - raised below, when the leases are given up.
            failure = error
        finally:
            hand.leave()
            worker.stop()
    if failure is not None:
        raise failure


@dataclass(slots=True)
class _Given:
    """A batch on its way to whoever iterates."""

    batch: Batch
    finished: asyncio.Event = field(default_factory=asyncio.Event)
    changes_finished: int = 0
    """How many of its changes are finished; counted once the iterator has left."""


class Hand:
    """Passes one batch at a time from the worker to whoever iterates.

    A batch whose giver was cancelled, as with its lease, is another reader's: not asked for yet, it
    does not come; in the iterator's hands already, its end is nobody's, and no other batch's.
    """

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._given: _Given | None = None
        """The batch that is out, until it is finished or taken away."""
        self._asked = False
        """Whether ``_given`` is in the hands of whoever iterates."""
        self._taken: _Given | None = None
        """What whoever iterates was given last, also where it was taken away."""
        self._changed = asyncio.Event()
        self._failure: Exception | None = None
        self._ended = False
        self._left = False

    async def run(self, reading: Awaitable[None]) -> None:
        """Await what gives the batches; what ends it is told to whoever iterates."""
        try:
            await reading
        except Exception as error:  # noqa: BLE001 - raised by the iterator, in its caller's turn.
            self._failure = error
        finally:
            self._ended = True
            self._changed.set()

    async def give(self, batch: Batch) -> None:
        """Return when the batch is finished. Raises ``Unfinished`` where it never will be."""
        async with self._turn:
            if self._left:
                raise Unfinished
            given = self._given = _Given(batch)
            self._asked = False
            self._changed.set()
            try:
                await given.finished.wait()
            finally:
                self._given = None
            # A page of rows may be empty: left with it in hand, it comes again.
            if self._left and not 0 < len(batch) <= given.changes_finished:
                raise Unfinished(given.changes_finished)

    async def batches(self) -> AsyncIterator[Batch]:
        """Yield batches until the worker ends."""
        while (batch := await self.next_batch()) is not None:
            yield batch

    async def next_batch(self) -> Batch | None:
        """Return the next batch, None where nothing comes any more; the last one is finished.

        Raises what ended the worker.
        """
        if self._taken is not None:
            self._taken.finished.set()
        self._taken = await self._next()
        if self._taken is not None:
            return self._taken.batch
        if self._failure is not None:
            raise self._failure
        return None

    async def _next(self) -> _Given | None:
        """Return what is given next, None where nothing comes any more."""
        while self._given is None or self._asked:
            if self._ended:
                return None
            self._changed.clear()
            await self._changed.wait()
        self._asked = True
        return self._given

    def leave(self, changes_finished: int = 0) -> None:
        """Nobody iterates any more: of the batch in hand only so many changes are finished."""
        self._left = True
        if self._given is not None:
            if self._given is self._taken:
                self._given.changes_finished = changes_finished
            self._given.finished.set()
