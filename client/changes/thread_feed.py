"""A table's changes as a plain iterator: the reader runs in a thread with its own event loop.

The thread renews the leases, for as long as the application takes to handle a change.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple, Self, TypeVar

from rowtide.client.changes.feed import FeedSpec, Reading
from rowtide.client.changes.worker import Batch
from rowtide.client.endpoint import Endpoint
from rowtide.core.records.change import Change

__all__ = ["ChangeFeed", "run_in_thread"]

_Result = TypeVar("_Result")


class _Running(NamedTuple):
    """A reading, the loop in which it runs, and the event that ends it."""

    loop: asyncio.AbstractEventLoop
    reading: Reading
    left: asyncio.Event


class ChangeFeed:
    """Changes of a table, one after another: ``for change in feed``.

    Fetching the next change finishes the previous one. Leaving the loop, also by an exception,
    hands the shards over after the last finished change. A feed can be iterated once.
    """

    def __init__(self, make_endpoint: Callable[[], Endpoint], spec: FeedSpec) -> None:
        self._thread = _ReadingThread(make_endpoint, spec)
        self._changes_finished = 0
        self._stopping = False
        self._began = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._leave()

    def stop(self) -> None:
        """End the loop at its next step. Changes that the loop has received do not come again.

        May be called from another thread, or from a signal handler.
        """
        self._stopping = True
        self._thread.stop()

    def __iter__(self) -> Iterator[Change]:
        try:
            for batch in self._batches():
                for number, change in enumerate(batch.changes):
                    self._changes_finished = number
                    yield change
                    if self._stopping:
                        self._changes_finished = number + 1
                        return
        finally:
            self._leave()

    def batches(self) -> Iterator[Batch]:
        """Yield batches of one shard each. Fetching the next one finishes a batch."""
        try:
            for batch in self._batches():
                yield batch
                if self._stopping:
                    self._changes_finished = len(batch)
                    return
        finally:
            self._leave()

    def _batches(self) -> Iterator[Batch]:
        if self._began:
            raise RuntimeError("a feed of changes is read once: call changes() again")
        self._began = True
        if self._stopping:
            return
        self._thread.start()
        while (batch := self._thread.next_batch()) is not None:
            self._changes_finished = 0
            yield batch

    def _leave(self) -> None:
        self._thread.leave(self._changes_finished)


class _ReadingThread:
    """Runs a ``Reading`` in a thread. Without ``leave`` its leases expire, as after a crash."""

    def __init__(self, make_endpoint: Callable[[], Endpoint], spec: FeedSpec) -> None:
        self._make_endpoint = make_endpoint
        self._spec = spec
        self._running: Future[_Running] = Future()
        self._changes_finished = 0
        # The thread must not delay the end of the process while it waits for a change.
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._run()), name=f"changes {spec.table}", daemon=True
        )

    def start(self) -> None:
        """Start to read; ``next_batch`` waits until it does."""
        self._thread.start()

    async def _run(self) -> None:
        left = asyncio.Event()
        async with self._make_endpoint() as endpoint, asyncio.TaskGroup() as tasks:
            reading = Reading(endpoint, self._spec)
            tasks.create_task(reading.run(), name="changes")
            self._running.set_result(_Running(asyncio.get_running_loop(), reading, left))
            await left.wait()
            reading.leave(self._changes_finished)

    def next_batch(self) -> Batch | None:
        """Return what ``Reading.next_batch`` returns."""
        loop, reading, _ = self._running.result()
        return asyncio.run_coroutine_threadsafe(reading.next_batch(), loop).result()

    def stop(self) -> None:
        """Do what ``Reading.stop`` does."""
        if self._thread.is_alive():
            loop, reading, _ = self._running.result()
            loop.call_soon_threadsafe(reading.stop)

    def leave(self, changes_finished: int) -> None:
        """Do what ``Reading.leave`` does; return when the shards are handed over."""
        if self._thread.is_alive():
            self._changes_finished = changes_finished
            loop, _, left = self._running.result()
            loop.call_soon_threadsafe(left.set)
            self._thread.join()


def run_in_thread(ask: Callable[[], Coroutine[Any, Any, _Result]]) -> _Result:
    """Return what a coroutine returns, even if this thread runs an event loop."""
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(lambda: asyncio.run(ask())).result()
