"""A process that runs beside a worker, calls it as any client does, and ends with it."""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio.subprocess import Process
from collections.abc import Sequence
from socket import socket

from rowtide.cli.more_workers import PARENT, but_settings

__all__ = ["find_listener", "start_beside", "stop_beside"]

LISTENER = "ROWTIDE_LISTENER"
"""Environment variable of such a process: the number of the socket that it inherits, if any."""

CONNECTION_VARIABLES = {
    "ROWTIDE_" + name for name in ("ENDPOINT", "INSTANCE", "ACCESS_KEY_ID", "ACCESS_KEY_SECRET")
}
"""Environment variables that would make it call another server than our worker."""


async def start_beside(
    command: Sequence[str],
    *,
    stdin: int,
    stdout: int | None = None,
    listener: socket | None = None,
) -> Process:
    """Start a process, which ends if ours does. Raises ``OSError``.

    ``stdin`` and ``stdout`` are constants of ``asyncio.subprocess``; None: our own. The process
    gets a copy of ``listener``, see ``find_listener``.
    """
    environment = {
        name: value
        for name, value in but_settings(os.environ).items()
        if name not in CONNECTION_VARIABLES
    }
    if listener is not None:
        environment[LISTENER] = str(listener.fileno())
    return await asyncio.create_subprocess_exec(
        *command,
        stdin=stdin,
        stdout=stdout,
        env={**environment, PARENT: str(os.getpid())},
        pass_fds=() if listener is None else (listener.fileno(),),
        # Ctrl-C of a terminal must reach it only through us, once.
        start_new_session=True,
    )


def find_listener() -> socket | None:
    """Return the socket on which the parent wants this process to listen, None if there is none."""
    number = os.environ.get(LISTENER)
    return None if number is None else socket(fileno=int(number))


async def stop_beside(child: Process | None, *, within_s: float) -> None:
    """Let a process end by itself, if it runs; kill it after ``within_s``."""
    if child is None or child.returncode is not None:
        return
    child.send_signal(signal.SIGTERM)
    try:
        async with asyncio.timeout(within_s):
            await child.wait()
    except TimeoutError:
        child.kill()
        await child.wait()
