"""A table's stream as an asynchronous iterator of batches.

Fetching the next batch finishes the previous one. One batch is out at a time, for any number of
shards. To work on several batches at once, give a ``ChangeWorker`` a function.
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
    """Return an iterator of batches; the arguments are those of ``ChangeWorker``.

    Without ``leases`` no position is kept: this reader reads all shards, each time from the
    beginning.
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
        except Exception as error:  # noqa: BLE001 - raised below, after the leases are released.
            failure = error
        finally:
            hand.leave()
            worker.stop()
    if failure is not None:
        raise failure


@dataclass(slots=True)
class _Given:
    """A batch on its way to the iterator."""

    batch: Batch
    finished: asyncio.Event = field(default_factory=asyncio.Event)
    changes_finished: int = 0
    """The number of finished changes in it; set when the iterator leaves."""


class Hand:
    """Passes one batch at a time from the worker to the iterator.

    The task that gives a batch may be cancelled, for example because its lease is lost. Then
    another reader gets the batch. If the iterator has not fetched it yet, it does not receive it.
    If it has, finishing that batch has no effect, also not on a later batch.
    """

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._given: _Given | None = None
        """The batch that is out, until it is finished or withdrawn."""
        self._is_fetched = False
        """True if the iterator has fetched ``_given``."""
        self._taken: _Given | None = None
        """The batch that the iterator fetched last, even if it was withdrawn."""
        self._changed = asyncio.Event()
        self._failure: Exception | None = None
        self._ended = False
        self._left = False

    async def run(self, reading: Awaitable[None]) -> None:
        """Await the reading that gives the batches; the iterator raises its failure."""
        try:
            await reading
        except Exception as error:  # noqa: BLE001 - the iterator raises it to its caller.
            self._failure = error
        finally:
            self._ended = True
            self._changed.set()

    async def give(self, batch: Batch) -> None:
        """Return when the batch is finished. Raises ``Unfinished`` if it will never be."""
        async with self._turn:
            if self._left:
                raise Unfinished
            given = self._given = _Given(batch)
            self._is_fetched = False
            self._changed.set()
            try:
                await given.finished.wait()
            finally:
                self._given = None
            # A page of rows may be empty. If the iterator leaves with it in hand, it comes again.
            if self._left and not 0 < len(batch) <= given.changes_finished:
                raise Unfinished(given.changes_finished)

    async def batches(self) -> AsyncIterator[Batch]:
        """Yield batches until the worker ends."""
        while (batch := await self.next_batch()) is not None:
            yield batch

    async def next_batch(self) -> Batch | None:
        """Finish the last batch and return the next one; None if the worker has ended.

        Raises the worker's failure.
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
        """Return the next batch that is given; None if the worker has ended."""
        while self._given is None or self._is_fetched:
            if self._ended:
                return None
            self._changed.clear()
            await self._changed.wait()
        self._is_fetched = True
        return self._given

    def leave(self, changes_finished: int = 0) -> None:
        """End the iteration with ``changes_finished`` changes of the batch in hand finished."""
        self._left = True
        if self._given is not None:
            if self._given is self._taken:
                self._given.changes_finished = changes_finished
            self._given.finished.set()
