"""The further worker processes of ``rowtide up --workers N``.

Each is ``rowtide up`` on the same Kafka, in its own folder below the data directory, with the same
key. It stops with its parent: at a signal, or when it finds that the parent has ended. One that
ends earlier is restarted. All are signalled at once: workers that drain first give their slots to
those that have not begun to, and the last ones do not wait (``stream/cluster/handover.py``).
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path

from rowtide.cli.credentials import CREDENTIALS, SavedCredentials, write_private
from rowtide.cli.settings import Settings, flag

__all__ = ["PARENT", "RUN", "MoreWorkers", "but_settings", "watch_parent"]

logger = logging.getLogger(__name__)

PARENT = "ROWTIDE_PARENT"
"""Environment variable of a child: its parent's process id."""

RUN = "from rowtide.cli.main import main; main()"

SLOW_S = 60.0
"""Time between warnings of a slow start. A worker that rebuilds many rows takes minutes."""

STOP_S_MAX = 75.0
"""Time for a worker to drain after its notice, including the time of its connectors."""

RESTART_S = 1.0
RESTART_S_MAX = 30.0
"""Pause between attempts to start a worker if the machine lacks processes or space."""

POLL_S = 0.05
WATCH_S = 0.5

_OWN = frozenset(
    {"data_dir", "port", "kafka", "workers", "kafka_security", "instance", "connector_dir"}
)
"""Settings that a child does not inherit unchanged."""


class MoreWorkers:
    """Workers 1 to ``settings.workers`` - 1. ``config`` is the file of the settings."""

    def __init__(
        self, settings: Settings, credentials: SavedCredentials, bootstrap: str, config: Path | None
    ) -> None:
        self._settings = settings
        self._credentials = credentials
        self._bootstrap = bootstrap
        self._config = config
        self._children: dict[int, Process] = {}
        self._killed_at_s: float | None = None
        """When the signalled workers are killed, by the event loop's clock."""

    async def start(self) -> list[str]:
        """Start all; return their endpoints once they serve. Raises ``ChildProcessError``."""
        numbers = range(1, self._settings.workers)
        for number in numbers:
            await self._start(number)
        return [await self._endpoint(number) for number in numbers]

    async def watch(self) -> None:
        """Restart workers that end, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for number in self._children:
                tasks.create_task(self._keep(number), name=f"worker[{number}]")

    async def _keep(self, number: int) -> None:
        while True:
            status = await self._children[number].wait()
            logger.warning("worker %d: ended with status %s; restarting it", number, status)
            await self._start_again(number)

    async def _start_again(self, number: int) -> None:
        """Start a worker; retry after each failure, which must not stop the others."""
        pause_s = RESTART_S
        while True:
            await asyncio.sleep(pause_s)
            try:
                return await self._start(number)
            except OSError as error:
                pause_s = min(pause_s * 2, RESTART_S_MAX)
                logger.warning("worker %d: start failed, retry in %g s: %s", number, pause_s, error)

    def signal_stop(self) -> None:
        """Signal all to drain. No task may be starting or watching them any more."""
        if self._killed_at_s is not None:
            return  # A second signal would end them at once.
        now_s = asyncio.get_running_loop().time()
        self._killed_at_s = now_s + self._settings.drain_notice_s + STOP_S_MAX
        for child in self._running():
            child.send_signal(signal.SIGTERM)

    async def stop(self) -> None:
        """Let them drain and stop."""
        self.signal_stop()
        try:
            async with asyncio.timeout_at(self._killed_at_s):
                for child in self._running():
                    await child.wait()
        except TimeoutError:
            for child in self._running():
                child.kill()

    def _running(self) -> list[Process]:
        return [child for child in self._children.values() if child.returncode is None]

    def _folder(self, number: int) -> Path:
        return self._settings.data_dir / "workers" / str(number)

    async def _start(self, number: int) -> None:
        folder = self._folder(number)
        folder.mkdir(parents=True, exist_ok=True)
        write_private(folder / CREDENTIALS, self._credentials._asdict())
        (folder / "ready.json").unlink(missing_ok=True)
        with (folder / "output").open("ab") as output:
            self._children[number] = await asyncio.create_subprocess_exec(
                *self._command(number),
                stdin=DEVNULL,
                stdout=output,
                stderr=output,
                env={**but_settings(os.environ), PARENT: str(os.getpid())},
                # Ctrl-C of a terminal must reach them only through us, once.
                start_new_session=True,
            )

    def _command(self, number: int) -> list[str]:
        settings, folder = self._settings, self._folder(number)
        port = settings.port + number if settings.port else 0
        command = [sys.executable, "-c", RUN, "up", "--kafka", self._bootstrap]
        command += ["--data-dir", str(folder), "--port", str(port)]
        command += ["--ready-file", str(folder / "ready.json")]
        command += [flag("connector_dir"), str(settings.connector_folder)]
        if self._config is not None:
            command += ["--config", str(self._config)]
        for field in fields(Settings):
            value = getattr(settings, field.name)
            if field.name not in _OWN and value not in (None, ""):
                command += [flag(field.name), str(value)]
        return command

    async def _endpoint(self, number: int) -> str:
        """Return a worker's endpoint once it serves. Raises ``ChildProcessError`` if it ends."""
        ready, output = self._folder(number) / "ready.json", self._folder(number) / "output"
        slow_s = asyncio.get_running_loop().time() + SLOW_S
        while not ready.exists():
            if self._children[number].returncode is not None:
                raise ChildProcessError(f"worker {number} failed to start; see {output}")
            if asyncio.get_running_loop().time() > slow_s:
                slow_s += SLOW_S
                logger.warning("worker %d: slow to start; see %s", number, output)
            await asyncio.sleep(POLL_S)
        return str(json.loads(ready.read_text())["endpoint"])


def but_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without settings: a child gets them as flags."""
    names = {"ROWTIDE_" + field.name.upper() for field in fields(Settings)}
    return {name: value for name, value in environment.items() if name not in names}


async def watch_parent(stop: asyncio.Event) -> None:
    """Set ``stop`` when the parent has ended, if there is one."""
    parent = os.environ.get(PARENT)
    while parent is not None:
        if os.getppid() != int(parent):
            stop.set()
            return
        await asyncio.sleep(WATCH_S)
