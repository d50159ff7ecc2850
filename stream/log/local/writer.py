"""Joins waiting writes into one synced batch: the group commit of the local log.

While a thread writes one batch, the next one gathers. A job's ``fill`` adds its changes
when its batch is made; if it raises, it must have added nothing. Its ``settle`` runs once
the batch is on the disk, so readers see its changes only then.

After a failed write the outcome of its whole batch is unknown. The store is then closed
and opened again (``run``), and ``reload`` reads what is on the disk. Until then no job is
accepted, so waiting jobs are certainly not written. An unexpected error of a job counts
as such a failure, so the writer survives it. Everything but the writes runs in one event
loop.
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
"""Bytes in one batch, without its last job."""
REOPEN_S = 1.0
"""Pause between attempts to open the store again after a failed write."""


@dataclass(slots=True, eq=False)
class Job:
    """A write. ``done`` has the result of ``fill``."""

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
        """Why nothing is written now; empty if writes work."""
        self._failed = asyncio.Event()
        self._closed = False

    async def open(self) -> None:
        """Open the store. Raises the errors of ``LogStore.open``."""
        await asyncio.wrap_future(self._thread.submit(self._store.open))
        self._reload()
        self._failure = ""
        self.answered_s = time.monotonic()

    async def close(self) -> None:
        """Finish the running batch, fail the other jobs, and close the store."""
        if self._closed:
            return
        self._closed = True
        self._failure = "it is closed"
        self._refuse_waiting()
        await asyncio.wrap_future(self._thread.submit(self._store.close))
        self._thread.shutdown(wait=False)

    def require_open(self, where: str) -> None:
        """Raise ``Unavailable`` if reads and writes fail now."""
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
        """Accept a job. Raises ``Unavailable`` if the store failed."""
        self.require_open(where)
        loop = asyncio.get_running_loop()
        job = Job(where, fill, settle, size, loop.create_future())
        # Its caller may have stopped waiting when it fails.
        job.done.add_done_callback(_retrieve)
        self._waiting.append(job)
        if not self._writing:
            self._writing = True
            # Not now: jobs that are submitted in this turn of the loop are to join.
            loop.call_soon(self._begin)
        return job

    def give_up(self, job: Job, why: str) -> StoreError:
        """Return the error of an abandoned job: never written, or outcome unknown."""
        if not job.begun and job in self._waiting:
            self._waiting.remove(job)
            return Unavailable(f"{job.where}: not written, {why}")
        return OutcomeUnknown(f"{job.where}: may be written, {why}")

    # One batch.

    def _begin(self) -> None:
        """Pass the next batch to the thread, if there is anything to write."""
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
            except Exception as error:  # noqa: BLE001 - Our own error; reported by _fail.
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
        except Exception as error:  # noqa: BLE001 - Our own error; reported by _fail.
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
            "local log: write failed, reopening the store: %s",
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
        """Open the store again after each failed write, until cancelled."""
        while True:
            await self._failed.wait()
            await asyncio.sleep(REOPEN_S)
            try:
                await asyncio.wrap_future(self._thread.submit(self._store.close))
                await self.open()
            except (Unavailable, StoreBusy) as error:
                self._failure = str(error)
                logger.warning(
                    "local log: cannot open the store, retrying in %g s: %s", REOPEN_S, error
                )
                continue
            self._failed.clear()
            logger.warning("local log: the store is open again")


def _retrieve(done: asyncio.Future[int]) -> None:
    """Retrieve a failure, so that asyncio does not report it as never retrieved."""
    if not done.cancelled():
        done.exception()
