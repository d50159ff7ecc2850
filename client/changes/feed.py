"""A table's changes as an iterator for an event loop, shared by the readers of one consumer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import NamedTuple, Self

from rowtide.client.changes.api import ApiSource
from rowtide.client.changes.leases import MemoryLeases, TableLeases
from rowtide.client.changes.reader import Hand
from rowtide.client.changes.start import Begin, ShardPlace, rewind
from rowtide.client.changes.worker import Batch, ChangeWorker, FollowerSettings
from rowtide.client.endpoint import Endpoint
from rowtide.core.records.change import Change

__all__ = ["AsyncChangeFeed", "FeedSpec", "Reading", "rewind_consumer"]


class FeedSpec(NamedTuple):
    """Which changes of which table to read, and for which consumer."""

    table: str
    consumer: str | None
    begin: Begin = "oldest"
    columns: tuple[str, ...] = ()
    filter: bytes = b""
    settings: FollowerSettings | None = None


class Reading:
    """One running reader. One batch is out at a time; fetching the next one finishes it."""

    def __init__(self, endpoint: Endpoint, spec: FeedSpec) -> None:
        leases = TableLeases(endpoint, spec.consumer) if spec.consumer else MemoryLeases()
        self._hand = Hand()
        self._worker = ChangeWorker(
            ApiSource(endpoint, spec.table, columns=spec.columns, filter=spec.filter),
            leases,
            self._hand.give,
            begin=spec.begin,
            settings=spec.settings,
        )

    async def run(self) -> None:
        """Read until stopped or left. ``next_batch`` raises what fails here."""
        await self._hand.run(self._worker.run())

    async def next_batch(self) -> Batch | None:
        """Finish the previous batch and return the next one; None when reading has ended."""
        return await self._hand.next_batch()

    def stop(self) -> None:
        """Release the shards once the batches in hand are finished."""
        self._worker.stop()

    def leave(self, changes_finished: int) -> None:
        """Release the shards at once; ``changes_finished`` of the batch in hand are finished."""
        self._hand.leave(changes_finished)
        self._worker.stop()


class AsyncChangeFeed:
    """Changes of a table, one after another: ``async for change in feed``.

    Fetching the next change finishes the previous one. Leaving the loop, also by an exception,
    hands the shards over after the last finished change. A feed can be iterated once.
    """

    def __init__(self, endpoint: Endpoint, spec: FeedSpec, tasks: asyncio.TaskGroup) -> None:
        self._endpoint = endpoint
        self._spec = spec
        self._tasks = tasks
        self._reading: Reading | None = None
        self._task: asyncio.Task[None] | None = None
        self._changes_finished = 0
        self._stopping = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Wait until the shards are handed over."""
        self.leave()
        if self._task is not None:
            await self._task

    def stop(self) -> None:
        """End the loop at its next step. Changes that the loop has received do not come again."""
        self._stopping = True
        if self._reading is not None:
            self._reading.stop()

    async def __aiter__(self) -> AsyncIterator[Change]:
        try:
            async for batch in self._batches():
                for number, change in enumerate(batch.changes):
                    self._changes_finished = number
                    yield change
                    if self._stopping:
                        self._changes_finished = number + 1
                        return
        finally:
            self.leave()

    async def batches(self) -> AsyncIterator[Batch]:
        """Yield batches of one shard each. Fetching the next one finishes a batch."""
        try:
            async for batch in self._batches():
                yield batch
                if self._stopping:
                    self._changes_finished = len(batch)
                    return
        finally:
            self.leave()

    async def _batches(self) -> AsyncIterator[Batch]:
        if self._reading is not None:
            raise RuntimeError("a feed of changes is read once: call changes() again")
        if self._stopping:
            return
        reading = self._reading = Reading(self._endpoint, self._spec)
        self._task = self._tasks.create_task(reading.run(), name=f"changes {self._spec.table}")
        while (batch := await reading.next_batch()) is not None:
            self._changes_finished = 0
            yield batch

    def leave(self) -> None:
        """Hand the shards over after the last finished change, without waiting."""
        if self._reading is not None:
            self._reading.leave(self._changes_finished)


async def rewind_consumer(
    endpoint: Endpoint, table: str, consumer: str, to: Begin | ShardPlace
) -> None:
    """Make a consumer start again from another position, see ``rewind``."""
    await rewind(ApiSource(endpoint, table), TableLeases(endpoint, consumer), to)
