"""One source connector in this process. It waits while another process is the source."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from rowtide.connectors.fields import Fields
from rowtide.connectors.registry import make_source
from rowtide.connectors.runtime.connector_run import ConnectorRun
from rowtide.connectors.runtime.declaration import Declaration, resolve_columns
from rowtide.connectors.runtime.masking import MaskedCopies, Masking, MaskingTarget
from rowtide.connectors.runtime.source_parking import ParkingTarget
from rowtide.connectors.runtime.table_target import TableTarget
from rowtide.connectors.sources.source import (
    CopiesRows,
    Measurable,
    Source,
    SourceTarget,
    TableReporting,
    TableState,
)
from rowtide.core.values.errors import OutcomeUnknown, Unavailable

__all__ = ["SourceRun"]

logger = logging.getLogger(__name__)

MEASURE_S = 1.0
LOOK_AGAIN_S = 1.0
STOP_S_MAX = 20.0
"""How long a source may take to reach a position from which nothing is repeated."""


class SourceRun(ConnectorRun):
    """Runs the source of a ``declaration``."""

    declaration: Declaration
    _running: Source | None = None

    @property
    def tables(self) -> Sequence[TableState]:
        """The states that the source reports, empty while it does not run."""
        source = self._running
        if not isinstance(source, TableReporting):
            return ()
        try:
            return source.table_states()
        except Exception as error:  # noqa: BLE001 - it hides the states only.
            logger.debug("tables of %s are reported later: %s", self.declaration.name, error)
            return ()

    async def measure(self) -> None:
        """Do nothing: the lag of a source is measured all the time, because its server
        may be slow.
        """

    async def _once(self) -> None:
        declaration, place = self.declaration, self._place
        where = f"connectors.{declaration.name}.source"
        fields = Fields(declaration.source, where, environment=place.environment)
        source = make_source(fields, place.surroundings(declaration.name))
        masking = Masking(resolve_columns(declaration, source, place.environment))
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(
                self._follow(source, masking), name=f"source {declaration.name}"
            )
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
                except Exception as error:  # noqa: BLE001 - it hides the lag only.
                    self.behind = None
                    logger.debug("lag of %s is measured later: %s", self.declaration.name, error)
                await asyncio.sleep(MEASURE_S)
        finally:
            self.behind = None

    async def _end(self, source: Source, running: asyncio.Task[None]) -> None:
        if self.state == "running":
            source.stop()
            await asyncio.wait([running], timeout=STOP_S_MAX)
        running.cancel()

    async def _follow(self, source: Source, masking: Masking) -> None:
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
            await self._parked.begin_term(target.term)
            self.state = "running"
            self._running = source
            try:
                await self._run_into(target, source, masking)
            finally:
                self._running = None

    async def _run_into(self, target: SourceTarget, source: Source, masking: Masking) -> None:
        """Run a source. Retry or skip parked rows when an operator asks for it."""
        parking = ParkingTarget(
            target,
            self._parked,
            self.progress,
            most=self.declaration.parked_max,
            written=self.count_written,
        )
        await self._parked.load()
        self._look.set()
        async with asyncio.TaskGroup() as tasks:
            copies = MaskedCopies(source, masking) if isinstance(source, CopiesRows) else source
            looking = tasks.create_task(self._look_often(parking, copies), name="parked rows")
            await source.run(MaskingTarget(parking, masking))
            looking.cancel()

    async def _look_often(self, parking: ParkingTarget, source: object) -> None:
        while True:
            await self._look.wait()
            self._look.clear()
            try:
                await parking.retry_or_skip(source)
            except (Unavailable, OutcomeUnknown) as error:
                logger.debug("parked rows are retried or skipped later: %s", error)
                await asyncio.sleep(LOOK_AGAIN_S)
                self._look.set()

    def count_written(self, rows: int) -> None:
        """Count durable rows."""
        self.progress.count_changes(rows)
        self.back_off.reset()
