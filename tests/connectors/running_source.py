"""A source that runs beside a test, as the runtime would run it, and what to wait for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Protocol, TypeVar

from rowtide.client.changes.api import ApiSource
from rowtide.client.endpoint import Endpoint
from rowtide.connectors.rows import SourceRow
from rowtide.connectors.runtime.table_target import TableTarget
from rowtide.connectors.sources.source import (
    Behind,
    ComparableSource,
    CopiesRows,
    Measurable,
    Source,
)
from rowtide.connectors.verify.scan import compare_scans
from rowtide.connectors.verify.table_rows import TableSide
from rowtide.core.values.errors import OutcomeUnknown, Unavailable
from rowtide.core.values.variant import Scalar
from tests.connectors.memory_target import Crash, MemoryTarget
from tests.support.waiting import until_async

__all__ = [
    "LOOK_S",
    "WAIT_S",
    "RunningSource",
    "Stoppable",
    "beside",
    "check_lag",
    "compare",
    "into_rowtide",
    "wait_for_checkpoint",
]

WAIT_S = 60.0
AGAIN_S = 0.05
KEPT_S = 120.0
LOOK_S = 0.01


class RunningSource:
    """A source that is run again whenever it ends by what a crash or an absent server does."""

    def __init__(self, make: Callable[[], Source], target: MemoryTarget) -> None:
        self.target = target
        self.lives = 0
        self._make = make
        self._source = make()
        self._stopping = False

    async def run(self) -> None:
        """Run it until ``stop``."""
        await self.wait_until_alone()
        while not self._stopping:
            self.lives += 1
            self._source = self._make()
            try:
                await self._source.run(self.target)
            except (Crash, Unavailable, OutcomeUnknown):
                await asyncio.sleep(AGAIN_S)
                await self.wait_until_alone()

    async def wait_until_alone(self) -> None:
        """Wait until the server has noticed the end of its former reader."""

    def stop(self) -> None:
        """Let ``run`` end where nothing is repeated."""
        self._stopping = True
        self._source.stop()

    async def until(self, true: Callable[[], bool], what: str) -> None:
        """Wait until something is so."""
        await until_async(true, what, s_max=WAIT_S, poll_s=LOOK_S)

    async def copy_again(self, table: str, *key: Scalar) -> bool:
        """Have one row copied again; return False where the source did not run, or crashed."""
        assert isinstance(self._source, CopiesRows), "it can do so"
        try:
            await self._source.copy_again(table, key, self._write)
        except Unavailable:
            await asyncio.sleep(LOOK_S)
            return False
        return True

    async def _write(self, row: SourceRow) -> None:
        await self.target.write([row])

    async def wait_until_behind(self, true: Callable[[Behind], bool]) -> Behind:
        """Wait until how far it is behind is so, and return that."""
        found: Behind | None = None
        async with asyncio.timeout(WAIT_S):
            while True:
                assert isinstance(self._source, Measurable), "it can tell"
                found = await self._source.behind()
                if found is not None and true(found):
                    return found
                await asyncio.sleep(LOOK_S)


async def check_lag(running: RunningSource, change: Callable[[], None]) -> None:
    """Check the lag that a source reports while rowtide takes nothing, and afterwards."""
    nothing = Behind(0.0, 0, 0)
    await running.wait_until_behind(lambda found: found == nothing)
    running.target.open.clear()
    change()
    first = await running.wait_until_behind(lambda found: found.bytes > 0)
    assert first.seconds is not None
    later = await running.wait_until_behind(
        lambda found: (found.seconds or 0) > (first.seconds or 0)
    )
    assert later.bytes > 0
    running.target.open.set()
    await running.wait_until_behind(lambda found: found == nothing)


R = TypeVar("R", bound=RunningSource)


@asynccontextmanager
async def beside(running: R) -> AsyncIterator[R]:
    """Run a source in the background; stopped at the end."""
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(running.run(), name="source")
        try:
            yield running
        except BaseException:
            task.cancel()
            raise
        running.stop()


class Stoppable(Source, Protocol):
    """A source that records whether it was stopped."""

    stopping: bool


S = TypeVar("S", bound=Stoppable)


@asynccontextmanager
async def into_rowtide(
    endpoint: Endpoint, name: str, source: S
) -> AsyncIterator[tuple[S, TableTarget]]:
    """Run a source; where it was not stopped it is cancelled in the middle of what it does."""
    async with (
        TableTarget(endpoint, name, lease_s=2.0) as target,
        asyncio.TaskGroup() as tasks,
    ):
        running = tasks.create_task(source.run(target), name="source")
        yield source, target
        if not source.stopping:
            running.cancel()


async def wait_for_checkpoint(target: TableTarget, true: Callable[[bytes], bool]) -> None:
    """Wait until what the source keeps is so."""
    async with asyncio.timeout(KEPT_S):
        while True:
            if true(await target.checkpoint()):
                return
            await asyncio.sleep(LOOK_S)


async def compare(endpoint: Endpoint, source: ComparableSource, table: str, *, least: int) -> None:
    """Have ``verify`` find a table equal on both ends, with so many rows at least."""
    side = await source.side(table)
    try:
        verdict = await compare_scans(side, TableSide(ApiSource(endpoint, table)))
    finally:
        await side.close()
    assert verdict.differences == []
    assert verdict.rows >= least
