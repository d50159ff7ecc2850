"""Readers of one consumer that come, stop and crash, and what they were given, to be judged."""

from __future__ import annotations

import asyncio
import io
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from rowtide.client.changes.leases import TableLeases
from rowtide.client.changes.source import ChangeSource
from rowtide.client.changes.start import Begin
from rowtide.client.changes.worker import Batch, ChangeWorker, FollowerSettings
from rowtide.client.endpoint import Endpoint
from tests.support.waiting import until_async

__all__ = ["SETTINGS", "Delivered", "Readers"]

SETTINGS = FollowerSettings(lease_s=1.0, checkpoint_s=0.1, batch_changes_max=7)
LOOK_S = 0.02
ENDED_S_MAX = 30.0


@dataclass(slots=True)
class Delivered:
    """Numbers and stamps by the key's first column, in the order in which they were given."""

    numbers: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    stamps: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))

    async def take(self, batch: Batch) -> None:
        """Be given a batch; a crash may come between any two changes."""
        for change in batch:
            name, number = str(change.key[0][1]), change.columns["n"]
            assert isinstance(number, int)
            self.numbers[name].append(number)
            self.stamps[name].append(change.stamp)
            await asyncio.sleep(0)

    def once(self) -> dict[str, list[int]]:
        """Return the numbers by key without what came again, by the commit stamp."""
        found: dict[str, list[int]] = {}
        for name, numbers in self.numbers.items():
            last = 0
            found[name] = []
            for number, stamp in zip(numbers, self.stamps[name], strict=True):
                if stamp > last:
                    found[name].append(number)
                    last = stamp
        return found

    def count_repeated(self) -> int:
        """Return how many came again."""
        return sum(len(n) for n in self.numbers.values()) - sum(
            len(n) for n in self.once().values()
        )


class Readers:
    """The readers of one consumer, each a task of ``tasks``."""

    def __init__(
        self,
        tasks: asyncio.TaskGroup,
        source: Callable[[], ChangeSource],
        endpoint: Endpoint,
        consumer: str,
        *,
        begin: Begin = "oldest",
        settings: FollowerSettings = SETTINGS,
    ) -> None:
        self.delivered = Delivered()
        self.running: list[tuple[ChangeWorker, asyncio.Task[None]]] = []
        self.crashed = 0
        self._workers: list[ChangeWorker] = []
        self._tasks = tasks
        self._source = source
        self._endpoint = endpoint
        self._consumer = consumer
        self._begin = begin
        self._settings = settings
        self.take = self.delivered.take

    def start(self) -> ChangeWorker:
        """Start one more."""
        worker = self.worker()
        self.running.append((worker, self._tasks.create_task(worker.run())))
        return worker

    def worker(self) -> ChangeWorker:
        """Return one more, which does not run yet."""
        worker = ChangeWorker(
            self._source(),
            TableLeases(self._endpoint, self._consumer),
            lambda batch: self.take(batch),
            begin=self._begin,
            settings=self._settings,
        )
        self._workers.append(worker)
        return worker

    @property
    def interrupted(self) -> int:
        """Return how often changes may have come again: crashes, and leases that were lost."""
        return self.crashed + sum(worker.lost for worker in self._workers)

    async def stop(self, which: int = 0) -> None:
        """Let one finish."""
        worker, task = self.running.pop(which)
        worker.stop()
        await wait_for_end(task)
        task.result()

    async def crash(self, which: int = 0) -> None:
        """End one where it is: its leases stay as they are."""
        self.crashed += 1
        _, task = self.running.pop(which)
        task.cancel()
        await wait_for_end(task)

    async def stop_all(self) -> None:
        """Let all finish."""
        while self.running:
            await self.stop()

    async def until(self, holds: Callable[[], bool], *, s_max: float = 60.0) -> None:
        """Return once something holds; fail where it does not in time."""
        await asyncio.sleep(LOOK_S)
        await until_async(holds, s_max=s_max, poll_s=LOOK_S, meanwhile=self._raise)

    def _raise(self) -> None:
        """Raise what a reader failed with."""
        for _, task in self.running:
            if task.done():
                task.result()


async def wait_for_end(task: asyncio.Task[None]) -> None:
    """Return once a task has ended. On a time-out report where all tasks are."""
    done, _ = await asyncio.wait([task], timeout=ENDED_S_MAX)
    if not done:
        text = io.StringIO()
        for other in asyncio.all_tasks():
            other.print_stack(file=text)
        raise AssertionError(f"a reader does not end:\n{text.getvalue()}")
