"""Joins what waits to be written into one synced batch: the group commit of the local log.

While one batch is written, in a thread of its own, the next one gathers. A job's ``fill`` adds what
it writes when its batch is made; where it raises, it has added nothing. Its ``settle`` runs when
the batch is on the disk, so whatever it changes is seen by readers only then.

A write that fails leaves the outcome of its whole batch unknown. The store is then closed and
opened again (``run``), and ``reload`` reads what stands. Until that has succeeded nothing is taken,
so what waits meanwhile is provably not written. An error that a job did not foresee is treated as
such a failure, so the writer survives it. All of it runs in one event loop, but the writes.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field

from rowtide.core.values.errors import OutcomeUnknown, StoreError, Unavailable
from rowtide.stream.log.changelog import Fenced
from rowtide.stream.log.local.store import AtomicWrite, Store, StoreBusy, WriteFailed

__all__ = ["GroupWriter", "Job"]

logger = logging.getLogger(__name__)

GROUP_BYTES_MAX = 32 << 20
"""What one batch holds, but for its last job."""
REOPEN_S = 1.0
"""Between attempts to open the store again after a failed write."""


@dataclass(slots=True, eq=False)
class Job:
    """Something to be written. ``done`` tells what ``fill`` has returned."""

    where: str
    fill: Callable[[AtomicWrite], int]
    settle: Callable[[], None]
    bytes: int
    done: asyncio.Future[int]
    begun: bool = field(default=False)
    result: int = 0


class GroupWriter:
    """Writes to one store, in ``thread``, whose calls run one after another.

    ``reload`` is called, in the loop, each time the store was opened.
    """

    def __init__(self, store: Store, reload: Callable[[], None], thread: Executor) -> None:
        self.answered_s: float | None = None
        """When a write last succeeded, by ``time.monotonic``."""
        self._store = store
        self._reload = reload
        self._thread = thread
        self._waiting: deque[Job] = deque()
        self._writing = False
        self._failure = "it is not open"
        """Why nothing is written now; empty where all is well."""
        self._failed = asyncio.Event()
        self._closed = False

    async def open(self) -> None:
        """Open the store. Raises what ``LogStore.open`` raises."""
        await asyncio.wrap_future(self._thread.submit(self._store.open))
        self._reload()
        self._failure = ""
        self.answered_s = time.monotonic()

    async def close(self) -> None:
        """Write what was begun, refuse the rest, and close the store."""
        if self._closed:
            return
        self._closed = True
        self._failure = "it is closed"
        self._refuse_waiting()
        await asyncio.wrap_future(self._thread.submit(self._store.close))
        self._thread.shutdown(wait=False)

    def require_open(self, where: str) -> None:
        """Raise ``Unavailable`` where nothing can be read or written now."""
        if self._failure:
            raise Unavailable(f"{where}: the log does not answer: {self._failure}")

    def submit(
        self,
        where: str,
        fill: Callable[[AtomicWrite], int],
        settle: Callable[[], None],
        *,
        size: int = 0,
    ) -> Job:
        """Take a job. Raises ``Unavailable`` where the store failed."""
        self.require_open(where)
        loop = asyncio.get_running_loop()
        job = Job(where, fill, settle, size, loop.create_future())
        # Nobody may be waiting for it any more when it fails.
        job.done.add_done_callback(_retrieve)
        self._waiting.append(job)
        if not self._writing:
            self._writing = True
            # Not now: what others submit in this turn of the loop is to join.
            loop.call_soon(self._begin)
        return job

    def give_up(self, job: Job, why: str) -> StoreError:
        """Return how a job stands that is waited for no more: never written, or unknown."""
        if not job.begun and job in self._waiting:
            self._waiting.remove(job)
            return Unavailable(f"{job.where}: not written, {why}")
        return OutcomeUnknown(f"{job.where}: may be written, {why}")

    # One batch.

    def _begin(self) -> None:
        """Hand the next batch to the thread, if there is anything to write."""
        batch = self._store.new_batch()
        group: list[Job] = []
        size = 0
        while self._waiting and size < GROUP_BYTES_MAX:
            job = self._waiting.popleft()
            if job.done.done():
                continue  # Its caller was cancelled.
            try:
                job.result = job.fill(batch)
            except (StoreError, Fenced) as error:
                job.done.set_exception(error)
                continue
            except Exception as error:  # noqa: BLE001 - A fault of ours; reported by _fail.
                # The job may have filled a part. Nothing of this batch is written.
                self._fail([*group, job], error)
                return
            job.begun = True
            size += job.bytes
            group.append(job)
        self._writing = bool(group)
        if not group:
            return
        loop = asyncio.get_running_loop()
        writing = self._thread.submit(self._store.write, batch)
        writing.add_done_callback(
            lambda written: loop.call_soon_threadsafe(self._finish, group, written)
        )

    def _finish(self, group: list[Job], written: Future[None]) -> None:
        failure = written.exception()
        if failure is not None:
            self._fail(group, failure)
            return
        self.answered_s = time.monotonic()
        try:
            for job in group:
                job.settle()
        except Exception as error:  # noqa: BLE001 - A fault of ours; reported by _fail.
            self._fail(group, error)
            return
        for job in group:
            if not job.done.done():
                job.done.set_result(job.result)
        self._begin()

    def _fail(self, group: list[Job], failure: BaseException) -> None:
        foreseen = isinstance(failure, WriteFailed)
        reason = str(failure) if foreseen else repr(failure)
        logger.error(
            "the log could not be written, it is opened again: %s",
            reason,
            exc_info=None if foreseen else failure,
        )
        self._writing = False
        self._failure = self._failure or reason
        for job in group:
            if not job.done.done():
                job.done.set_exception(OutcomeUnknown(f"{job.where}: {reason}"))
        self._refuse_waiting()
        self._failed.set()

    def _refuse_waiting(self) -> None:
        while self._waiting:
            job = self._waiting.popleft()
            if not job.done.done():
                job.done.set_exception(
                    Unavailable(f"{job.where}: the log does not answer: {self._failure}")
                )

    async def run(self) -> None:
        """Open the store again whenever a write failed, until cancelled."""
        while True:
            await self._failed.wait()
            await asyncio.sleep(REOPEN_S)
            try:
                await asyncio.wrap_future(self._thread.submit(self._store.close))
                await self.open()
            except (Unavailable, StoreBusy) as error:
                self._failure = str(error)
                logger.warning("the log cannot be opened, next try in %g s: %s", REOPEN_S, error)
                continue
            self._failed.clear()
            logger.warning("the log is open again")


def _retrieve(done: asyncio.Future[int]) -> None:
    """Take note of a failure, so that asyncio does not report it as never retrieved."""
    if not done.cancelled():
        done.exception()
