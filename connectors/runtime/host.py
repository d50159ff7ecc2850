"""Runs an instance's connectors in this process, as they are declared.

Each connector is a task of its own, so one that fails does not affect the others. The
status of each goes to the status board, and its log lines go to the log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from rowtide.connectors.runtime.connector_log import ConnectorLog, LineBuffer, of_connector
from rowtide.connectors.runtime.connector_run import ConnectorRun, RunDeclaration
from rowtide.connectors.runtime.declaration import Declaration
from rowtide.connectors.runtime.declarations import Declarations
from rowtide.connectors.runtime.place import ProcessContext
from rowtide.connectors.runtime.sink_run import SinkRun
from rowtide.connectors.runtime.source_run import SourceRun
from rowtide.connectors.runtime.status_board import StatusBoard, report_of
from rowtide.core.values.errors import StoreError

__all__ = ["DeclaredRun", "Host", "RunKind"]

logger = logging.getLogger(__name__)

LOOK_S = 1.0
TELL_S = 2.0


class DeclaredRun(Protocol):
    """What is declared under a name, and whether it should run.

    ``asked`` rises when an operator asks to retry or skip parked rows.
    """

    @property
    def declaration(self) -> RunDeclaration | None:
        """What to run; None if this version cannot read it."""
        ...

    @property
    def paused(self) -> bool:
        """True if no process should run it."""
        ...

    @property
    def asked(self) -> int:
        """How often parked rows were requested."""
        ...


class RunKind(Protocol):
    """One kind of what is declared: where its declarations are, and what runs them."""

    async def all(self) -> Mapping[str, DeclaredRun]:
        """Return every declaration by its name. Names of two kinds differ."""
        ...

    def make_run(self, declaration: RunDeclaration, place: ProcessContext) -> ConnectorRun | None:
        """Return the run of a declaration; None if it is of another kind."""
        ...


class _Connectors:
    """Sinks and sources."""

    def __init__(self, place: ProcessContext) -> None:
        self._declarations = Declarations(place.endpoint)

    async def all(self) -> Mapping[str, DeclaredRun]:
        """Return the connectors, see ``RunKind.all``."""
        return await self._declarations.all()

    def make_run(self, declaration: RunDeclaration, place: ProcessContext) -> ConnectorRun | None:
        """Return the run of a connector, see ``RunKind.make_run``."""
        if not isinstance(declaration, Declaration):
            return None
        return SinkRun(declaration, place) if declaration.sink else SourceRun(declaration, place)


class Host:
    """Runs the connectors of ``names``, or all. ``on_report`` is called with the measured runs.

    ``kinds`` are what it runs besides connectors.
    """

    def __init__(
        self,
        place: ProcessContext,
        names: Collection[str] = (),
        on_report: Callable[[Collection[ConnectorRun]], None] | None = None,
        kinds: Collection[RunKind] = (),
    ) -> None:
        self._place = place
        self._names = frozenset(names)
        self._on_report = on_report
        self._kinds: Collection[RunKind] = (_Connectors(place), *kinds)
        self._board = StatusBoard(place.endpoint)
        self._log = ConnectorLog(place.endpoint)
        self._gathered = LineBuffer()
        self._runs: dict[str, ConnectorRun] = {}
        self._asked: dict[str, int] = {}
        self._reporting: dict[str, asyncio.Lock] = {}
        """By connector: orders writing and withdrawing its report, so that the later one counts."""

    async def run(self, stop: asyncio.Event) -> None:
        """Run until ``stop`` is set."""
        ours = logging.getLogger("rowtide")
        ours.addHandler(self._gathered)
        try:
            async with asyncio.TaskGroup() as tasks:
                telling = tasks.create_task(self._report_often(), name="status")
                async with asyncio.TaskGroup() as runs:
                    await self._fit_often(stop, runs)
                telling.cancel()
            await self._report()
        finally:
            ours.removeHandler(self._gathered)

    async def _fit_often(self, stop: asyncio.Event, tasks: asyncio.TaskGroup) -> None:
        failing = False
        while not stop.is_set():
            try:
                self._fit(await self._find_declared(), tasks)
                failing = False
            except StoreError as error:
                if not failing:
                    logger.warning(
                        "connectors' declarations can't be read, retrying: %s",
                        error,
                    )
                failing = True
            try:
                async with asyncio.timeout(LOOK_S):
                    await stop.wait()
            except TimeoutError:
                pass
        for run in self._runs.values():
            run.stop()

    async def _find_declared(self) -> dict[str, DeclaredRun]:
        """Return the declarations of all kinds by name."""
        found: dict[str, DeclaredRun] = {}
        for kind in self._kinds:
            found |= await kind.all()
        return found

    def _make_run(self, declaration: RunDeclaration) -> ConnectorRun:
        runs = (kind.make_run(declaration, self._place) for kind in self._kinds)
        return next(run for run in runs if run is not None)

    def _fit(self, declared: Mapping[str, DeclaredRun], tasks: asyncio.TaskGroup) -> None:
        """Stop runs whose declaration changed or is gone, and start those that are missing."""
        wanted = {
            name: found.declaration
            for name, found in declared.items()
            if found.declaration is not None and not found.paused
            if not self._names or name in self._names
        }
        for name, run in self._runs.items():
            found = wanted.get(name)
            if found is None or found.text != run.declaration.text:
                run.stop()
        for name, declaration in wanted.items():
            asked = declared[name].asked
            if name not in self._runs:
                run = self._runs[name] = self._make_run(declaration)
                tasks.create_task(self._run(run), name=f"connector {name}")
            elif self._asked.get(name) != asked:
                self._runs[name].request_retries()
            self._asked[name] = asked

    async def _run(self, run: ConnectorRun) -> None:
        name = run.declaration.name
        of_connector.set(name)
        try:
            if await self._announce(run):
                logger.info("%s starts: %s", name, run.declaration.described)
                await run.run()
                logger.info("%s stopped", name)
        finally:
            del self._runs[name]
        try:
            # Nothing is awaited before the lock, so a new run reports after this
            # withdrawal.
            async with self._turn(name):
                await self._board.withdraw(name, self._place.process)
        except StoreError as error:
            logger.debug("the report of %s could not be removed: %s", name, error)

    async def _announce(self, run: ConnectorRun) -> bool:
        """Report that a connector runs here. True if it should go on.

        ``rest`` changes the declaration and then reads the reports. We report and then
        read the declaration. So at least one side sees the other.
        """
        name = run.declaration.name
        try:
            await self._report_one(run)
            found = (await self._find_declared()).get(name)
        except StoreError as error:
            logger.debug("%s could not report its start, and starts later: %s", name, error)
            return False
        if found is None or found.paused or found.declaration is None:
            return False
        return found.declaration.text == run.declaration.text

    async def _report_one(self, run: ConnectorRun) -> None:
        name, process = run.declaration.name, self._place.process
        async with self._turn(name):
            if self._runs.get(name) is run:
                now_us = self._place.endpoint.answered_us
                await self._board.report(name, report_of(run, process, now_us))

    def _turn(self, name: str) -> asyncio.Lock:
        return self._reporting.setdefault(name, asyncio.Lock())

    # Reports.

    async def _report_often(self) -> None:
        while True:
            await asyncio.sleep(TELL_S)
            await self._report()

    async def _report(self) -> None:
        """Report the status of all runs. A failure to report stops no connector."""
        try:
            async with asyncio.timeout(TELL_S * 2):
                for run in list(self._runs.values()):
                    await self._report_one(run)
                for name, lines in self._gathered.take_lines().items():
                    for line in lines:
                        await self._log.write(name, line, self._place.process)
        except (StoreError, TimeoutError) as error:
            logger.debug("status is reported later: %s", error)
        if self._on_report is not None:
            await self._measure()
            self._on_report(list(self._runs.values()))

    async def _measure(self) -> None:
        try:
            async with asyncio.timeout(TELL_S * 2):
                for run in list(self._runs.values()):
                    await run.measure()
        except (StoreError, TimeoutError) as error:
            logger.debug("lag is measured later: %s", error)
