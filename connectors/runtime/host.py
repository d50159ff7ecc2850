"""Runs an instance's connectors in this process, as they are declared from moment to moment.

Each is a task of its own: what happens to one is no other's business.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection

from rowtide.connectors.runtime.declarations import Declarations, Declared
from rowtide.connectors.runtime.sink_run import Place, SinkRun
from rowtide.core.errors import StoreError

__all__ = ["Host"]

logger = logging.getLogger(__name__)

LOOK_S = 1.0


class Host:
    """Runs those of ``names``, or all."""

    def __init__(self, place: Place, names: Collection[str] = ()) -> None:
        self._declarations = Declarations(place.endpoint)
        self._place = place
        self._names = frozenset(names)
        self._runs: dict[str, SinkRun] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    @property
    def runs(self) -> dict[str, SinkRun]:
        """Return what runs now, by name."""
        return dict(self._runs)

    async def run(self, stop: asyncio.Event) -> None:
        """Run until ``stop`` is set."""
        async with asyncio.TaskGroup() as tasks:
            while not stop.is_set():
                try:
                    self._fit(await self._declarations.all(), tasks)
                except StoreError as error:
                    logger.warning("the declarations can't be read: %s", error)
                try:
                    async with asyncio.timeout(LOOK_S):
                        await stop.wait()
                except TimeoutError:
                    pass
            for run in self._runs.values():
                run.stop()

    def _fit(self, declared: dict[str, Declared], tasks: asyncio.TaskGroup) -> None:
        """Stop what is not wanted so any more, and start what is and does not run."""
        wanted = {
            name: found.declaration
            for name, found in declared.items()
            if found.declaration is not None and found.declaration.sink and not found.paused
            if not self._names or name in self._names
        }
        for name, run in self._runs.items():
            found = wanted.get(name)
            if found is None or found.text != run.declaration.text:
                run.stop()
        for name, declaration in wanted.items():
            if name not in self._runs:
                run = self._runs[name] = SinkRun(declaration, self._place)
                self._tasks[name] = tasks.create_task(self._run(run), name=f"connector {name}")

    async def _run(self, run: SinkRun) -> None:
        name = run.declaration.name
        logger.info("%s starts", name)
        try:
            await run.run()
        finally:
            del self._runs[name], self._tasks[name]
        logger.info("%s stopped", name)
