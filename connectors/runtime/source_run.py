"""One source connector in this process, or waiting for the process that is the source to leave."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from rowtide.connectors.fields import Fields
from rowtide.connectors.registry import make_source
from rowtide.connectors.rows import Key, SourceRow, TableShape
from rowtide.connectors.runtime.connector_run import ConnectorRun
from rowtide.connectors.runtime.table_target import TableTarget
from rowtide.connectors.source import Measurable, Source, SourceTarget

__all__ = ["SourceRun"]

logger = logging.getLogger(__name__)

MEASURE_S = 1.0
STOP_S_MAX = 20.0
"""For so long a source may take to come to a place from which nothing is repeated."""


class SourceRun(ConnectorRun):
    """Runs a source's ``declaration``."""

    async def measure(self) -> None:
        """A source is asked all the while: what reaches for its server keeps nobody waiting."""

    async def _once(self) -> None:
        declaration, place = self.declaration, self._place
        where = f"connectors.{declaration.name}.source"
        fields = Fields(declaration.source, where, environment=place.environment)
        source = make_source(fields, place.surroundings(declaration.name))
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(self._follow(source), name=f"source {declaration.name}")
            stopped = tasks.create_task(self._stopping.wait(), name="stopping")
            measuring = tasks.create_task(self._measure_often(source), name="lag")
            await asyncio.wait([running, stopped], return_when=asyncio.FIRST_COMPLETED)
            stopped.cancel()
            measuring.cancel()
            if not running.done():
                await self._end(source, running)

    async def _measure_often(self, source: Source) -> None:
        try:
            while isinstance(source, Measurable):
                try:
                    self.behind = await source.behind()
                except Exception as error:  # noqa: BLE001 - it ends a number, not the source.
                    self.behind = None
                    logger.debug("lag of %s is asked later: %s", self.declaration.name, error)
                await asyncio.sleep(MEASURE_S)
        finally:
            self.behind = None

    async def _end(self, source: Source, running: asyncio.Task[None]) -> None:
        if self.state == "running":
            source.stop()
            await asyncio.wait([running], timeout=STOP_S_MAX)
        running.cancel()

    async def _follow(self, source: Source) -> None:
        declaration = self.declaration
        self.state = "waiting"
        target = TableTarget(
            self._place.endpoint,
            declaration.name,
            lease_s=max(declaration.lease_ms / 1000, 1.0),
            max_versions=declaration.max_versions,
            stream_hours=declaration.stream_hours,
        )
        async with target:
            self.state = "running"
            await source.run(_Counted(target, self))

    def written(self, rows: int) -> None:
        """Count rows that are durable."""
        self.progress.counted(rows)
        self.back_off.succeeded()


class _Counted:
    """A target that counts what was written."""

    def __init__(self, target: SourceTarget, run: SourceRun) -> None:
        self._target = target
        self._run = run

    async def ensure_table(self, table: TableShape) -> None:
        """See ``SourceTarget``."""
        await self._target.ensure_table(table)

    async def write(self, rows: Sequence[SourceRow]) -> None:
        """See ``SourceTarget``."""
        await self._target.write(rows)
        self._run.written(len(rows))

    async def keys(self, table: str, after: Key | None, *, limit: int) -> Sequence[Key]:
        """See ``SourceTarget``."""
        return await self._target.keys(table, after, limit=limit)

    async def checkpoint(self) -> bytes:
        """See ``SourceTarget``."""
        return await self._target.checkpoint()

    async def keep(self, checkpoint: bytes) -> None:
        """See ``SourceTarget``."""
        await self._target.keep(checkpoint)
