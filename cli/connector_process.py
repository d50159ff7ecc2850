"""The process beside a worker that runs the connectors of its instance.

It is a separate process, so that connectors cannot delay the worker's requests, and a failure of
them cannot end the worker. The worker starts it once a connector is declared, restarts it if it
ends, and stops it before itself.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Callable
from pathlib import Path

from rowtide.cli.beside_process import start_beside, stop_beside
from rowtide.cli.credentials import read_endpoint
from rowtide.cli.more_workers import RUN
from rowtide.cli.settings import Settings
from rowtide.stream.measures.ticks import sleep_to_tick

__all__ = ["ConnectorProcess"]

logger = logging.getLogger(__name__)

LOOK_S = 0.5
"""Maximal time until a declaration, or the process's end, is noticed."""

AGAIN_S = 5.0
"""Pause before a retry if the machine has no process left."""

STOP_S_MAX = 25.0
"""More than a source may take to reach a position from which nothing is repeated."""


class ConnectorProcess:
    """Runs the process. ``config`` is the file of the settings.

    ``is_declared`` returns True if the instance has a connector.
    """

    def __init__(
        self,
        settings: Settings,
        bootstrap: str,
        config: Path | None,
        is_declared: Callable[[], bool],
    ) -> None:
        self._settings = settings
        self._bootstrap = bootstrap
        self._config = config
        self._is_declared = is_declared
        self._child: Process | None = None
        self._stopping = False

    async def run(self) -> None:
        """Keep the process running while a connector is declared, until cancelled or stopped."""
        while not self._stopping:
            await sleep_to_tick(LOOK_S)
            if self._stopping or not self._is_declared():
                continue
            if read_endpoint(self._settings.data_dir) is None:
                continue  # The worker may serve before its address is written.
            try:
                child = self._child = await start_beside(self._command(), stdin=DEVNULL)
            except OSError as error:
                logger.warning("connectors: start failed, retry in %g s: %s", AGAIN_S, error)
                await asyncio.sleep(AGAIN_S)
                continue
            status = await child.wait()
            if not self._stopping:
                logger.warning("connectors: ended with status %s; restarting them", status)

    async def stop(self) -> None:
        """Let it finish its work in progress, and end."""
        self._stopping = True
        await stop_beside(self._child, within_s=STOP_S_MAX)

    def _command(self) -> list[str]:
        # Imported here, because only a process with a worker needs it.
        from rowtide.stream.worker.assembly import METRICS_BESIDE

        settings = self._settings
        command = [sys.executable, "-c", RUN, "connector", "run"]
        command += ["--data-dir", str(settings.data_dir)]
        # Without --kafka, as with a local log, they read from our own worker.
        command += ["--kafka", self._bootstrap] if self._bootstrap else []
        command += ["--topic-prefix", settings.topic_prefix, "--log-format", settings.log_format]
        command += ["--folder", str(settings.connector_folder)]
        command += ["--metrics-file", str(settings.data_dir / METRICS_BESIDE)]
        if self._config is not None:
            command += ["--config", str(self._config)]
        return command
