"""The process beside a worker that serves the web console.

A process of its own, because a page must not delay a write. It calls the worker as any client does.
The worker goes on without it if it does not start, and starts it again if it ends. It ends with the
worker.

With a local log the worker's process listens in its place until the first visitor connects. Then
the console starts and inherits the socket; the visitor waits in its queue meanwhile. Until then
`rowtide dev` is one process.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from socket import socket
from typing import Any

from rowtide.cli.beside_process import start_beside, stop_beside
from rowtide.cli.console_link import CONSOLE_FILE
from rowtide.cli.credentials import read_endpoint, write_private
from rowtide.cli.settings import Settings, flag, listening_url
from rowtide.stream.http.listening import bind

__all__ = ["ConsoleProcess"]

logger = logging.getLogger(__name__)

LOAD = "from rowtide.cli.preloaded_console import main; main()"

POLL_S = 0.02
"""How late its start may be noticed."""

AGAIN_S, AGAIN_S_MAX = 0.5, 30.0
"""Pauses before it is started again; each failed start doubles them."""
SERVED_S_MIN = 5.0
"""After a longer service it starts again at once: viewers wait for it."""

VISITORS_MAX = 128
"""Connections that wait while the console starts; it takes a second."""

STOP_S_MAX = 10.0
"""More than it takes to end its feeds and the requests under way."""


class ConsoleProcess:
    """``settings`` are the worker's. Its credentials are in their data directory."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._port = settings.console_port
        self._ready_file = settings.data_dir / CONSOLE_FILE
        self._listener: socket | None = None
        """The socket of a console that waits for its first visitor."""
        self._loader: Process | None = None
        """The process that loads the modules, and runs consoles (``preloaded_console.py``)."""
        self._is_stopping = False

    async def preload(self) -> None:
        """Begin to load its modules, unless it is turned off. A failure is found by ``run``."""
        if self._settings.console is not False and not self._settings.console_waits:
            with suppress(OSError):
                await self._load()

    async def run(
        self, *, started: Callable[[str, int], Awaitable[None]], ended: Callable[[], None]
    ) -> None:
        """Keep it running until cancelled or stopped; return at once if it is turned off.

        ``started`` gets the console's URL and port each time it serves, ``ended`` is called after.
        A console that waits for visitors counts as serving.
        """
        if self._settings.console is False:
            return
        try:
            if self._settings.console_waits:
                self._listener = await self._listen()
            await self._run(started, ended)
        finally:
            if self._listener is not None:
                self._listener.close()

    async def _run(
        self, started: Callable[[str, int], Awaitable[None]], ended: Callable[[], None]
    ) -> None:
        pause_s = AGAIN_S
        while not self._is_stopping:
            self._ready_file.unlink(missing_ok=True)
            if self._listener is not None:
                await self._wait_for_visitor(self._listener, started)
            if self._is_stopping:
                return
            try:
                loader = await self._load()
            except OSError as error:
                logger.warning("the console cannot be started now: %s", error)
            else:
                await self._start(loader)
                served_s, status = await self._watch(loader, started)
                if self._is_stopping:
                    return
                if served_s is None:
                    pause_s = min(pause_s * 2, AGAIN_S_MAX)
                    _log_failure(status, pause_s)
                else:
                    if self._listener is None:
                        ended()
                    logger.warning("the console ended with status %s, it starts again", status)
                    pause_s = 0.0 if served_s > SERVED_S_MIN else AGAIN_S
            await asyncio.sleep(pause_s)

    async def _listen(self) -> socket:
        """Return the console's socket; retry while another program has its port."""
        pause_s = AGAIN_S
        while True:
            try:
                listener = bind(self._settings.host, self._port)
                break
            except OSError as error:
                pause_s = min(pause_s * 2, AGAIN_S_MAX)
                logger.warning(
                    "the console cannot listen on port %d of %s: %s. The server works without it "
                    "and tries again in %.0f s; --console false turns it off",
                    self._port,
                    self._settings.host,
                    error.strerror,
                    pause_s,
                )
                await asyncio.sleep(pause_s)
        listener.setblocking(False)
        listener.listen(VISITORS_MAX)
        self._port = int(listener.getsockname()[1])
        return listener

    async def _wait_for_visitor(
        self, listener: socket, started: Callable[[str, int], Awaitable[None]]
    ) -> None:
        """Return once a visitor connects to the console. Until then its URL is announced."""
        await self._wait_for_endpoint()
        url = listening_url(self._settings.host, self._port)
        write_private(self._ready_file, {"url": url, "port": self._port, "pid": os.getpid()})
        await started(url, self._port)
        loop, connected = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(listener, connected.set)
        try:
            await connected.wait()
        finally:
            loop.remove_reader(listener)

    async def _load(self) -> Process:
        """Return the process that has loaded the modules, or does so, and waits for a command."""
        if self._loader is None or self._loader.returncode is not None:
            command = [sys.executable, "-c", LOAD, "console"]
            self._loader = await start_beside(
                command, stdin=PIPE, stdout=PIPE, listener=self._listener
            )
        return self._loader

    async def _wait_for_endpoint(self) -> str | None:
        """Return the worker's endpoint once it serves; None if the console is to stop."""
        while (endpoint := read_endpoint(self._settings.data_dir)) is None:
            if self._is_stopping:
                return None
            await asyncio.sleep(POLL_S)
        return endpoint

    async def _start(self, loader: Process) -> None:
        """Let it run a console once the worker has a port."""
        endpoint = await self._wait_for_endpoint()
        if endpoint is None:
            return
        words = _words(self._settings, endpoint, self._port, self._ready_file)
        assert loader.stdin is not None
        if not loader.stdin.is_closing():  # It may have died meanwhile, which ``_watch`` finds.
            loader.stdin.write(json.dumps(words).encode() + b"\n")

    async def _watch(
        self, loader: Process, started: Callable[[str, int], Awaitable[None]]
    ) -> tuple[float | None, int]:
        """Wait until the console has ended. Return how long it served, or None, and its status."""
        async with asyncio.TaskGroup() as tasks:
            ending = tasks.create_task(_wait_end(loader), name="end of the console")
            has_served = await self._is_ready(ending, started)
            began_s = asyncio.get_running_loop().time()
            status = await ending
        served_s = asyncio.get_running_loop().time() - began_s
        return served_s if has_served else None, status

    async def _is_ready(
        self, ending: asyncio.Task[int], started: Callable[[str, int], Awaitable[None]]
    ) -> bool:
        """Wait until the console serves, and say so; False if it ends before."""
        while (found := self._read_ready_file()) is None:
            if ending.done():
                return False
            await asyncio.sleep(POLL_S)
        # Open pages find a console that starts again at the same port.
        self._port = int(found["port"])
        await started(str(found["url"]), self._port)
        return True

    def _read_ready_file(self) -> dict[str, Any] | None:
        """Return what the console wrote when it began to serve; None before."""
        if not self._ready_file.exists():
            return None
        found: dict[str, Any] = json.loads(self._ready_file.read_text(encoding="utf-8"))
        return None if found["pid"] == os.getpid() else found

    async def stop(self) -> None:
        """End it: its feeds say so to their viewers."""
        self._is_stopping = True
        self._ready_file.unlink(missing_ok=True)
        await stop_beside(self._loader, within_s=STOP_S_MAX)


async def _wait_end(loader: Process) -> int:
    """Return the status of the console that a process runs, once it has ended."""
    assert loader.stdout is not None
    line = await loader.stdout.readline()
    return int(line) if line else await loader.wait()


def _log_failure(status: int, pause_s: float) -> None:
    logger.warning(
        "the console does not start (status %s): the server works without it. "
        "It tries again in %.0f s; --console false turns it off",
        status,
        pause_s,
    )


def _words(settings: Settings, endpoint: str, port: int, ready_file: Path) -> list[str]:
    """Return the console's command line, without the program."""
    words = ["console", "run", "--endpoint", endpoint, "--data-dir", str(settings.data_dir)]
    words += ["--host", settings.host, "--port", str(port), "--ready-file", str(ready_file)]
    words += ["--log-format", settings.log_format]
    for name in ("console_url", "console_hide"):
        if value := getattr(settings, name):
            words += [flag(name), value]
    return words
