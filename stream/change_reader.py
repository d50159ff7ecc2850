"""A table's stream as an asynchronous iterator of batches.

Asking for the next batch says that the one before is finished. One batch is out at a time, whatever
the number of shards: who wants to work on several at once gives a ``ChangeWorker`` a function.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from rowtide.stream.change_leases import Leases, MemoryLeases
from rowtide.stream.change_source import ChangeSource
from rowtide.stream.change_start import Begin
from rowtide.stream.change_worker import Batch, ChangeWorker, FollowerSettings
from rowtide.stream.shard_follower import Unfinished

__all__ = ["read_changes"]


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
    hand = _Hand()
    worker = ChangeWorker(
        source,
        leases or MemoryLeases(),
        hand.give,
        begin=begin,
        settings=settings,
    )
    failure: Exception | None = None
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(hand.run(worker), name="changes")
        try:
            yield hand.batches()
        except Exception as error:  # noqa: BLE001 - raised below, when the leases are given up.
            failure = error
        finally:
            hand.leave()
            worker.stop()
    if failure is not None:
        raise failure


class _Hand:
    """Passes one batch at a time from the worker to whoever iterates."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._given: asyncio.Queue[Batch | None] = asyncio.Queue(1)
        self._finished = asyncio.Event()
        self._failure: Exception | None = None
        self._left = False

    async def run(self, worker: ChangeWorker) -> None:
        """Run the worker; what ends it is told to whoever iterates."""
        try:
            await worker.run()
        except Exception as error:  # noqa: BLE001 - raised by the iterator, in its caller's turn.
            self._failure = error
        finally:
            if not self._left:
                await self._given.put(None)

    async def give(self, batch: Batch) -> None:
        """Return when the batch is finished. Raises ``Unfinished`` where it never will be."""
        async with self._turn:
            if self._left:
                raise Unfinished
            self._finished.clear()
            await self._given.put(batch)
            await self._finished.wait()
            if self._left:
                raise Unfinished

    async def batches(self) -> AsyncIterator[Batch]:
        """Yield batches until the worker ends."""
        while (batch := await self._given.get()) is not None:
            yield batch
            self._finished.set()
        if self._failure is not None:
            raise self._failure

    def leave(self) -> None:
        """Nobody iterates any more: what is in hand is not finished."""
        self._left = True
        self._finished.set()
