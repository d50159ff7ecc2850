"""A process that runs beside a worker, calls it as any client does, and ends with it."""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio.subprocess import Process
from collections.abc import Sequence

from rowtide.cli.more_workers import PARENT, but_settings

__all__ = ["start_beside", "stop_beside"]

CONNECTION_VARIABLES = {
    "ROWTIDE_" + name for name in ("ENDPOINT", "INSTANCE", "ACCESS_KEY_ID", "ACCESS_KEY_SECRET")
}
"""Environment variables that would make it call another server than our worker."""


async def start_beside(command: Sequence[str], *, stdin: int, stdout: int | None = None) -> Process:
    """Start a process, which ends if ours does. Raises ``OSError``.

    ``stdin`` and ``stdout`` are constants of ``asyncio.subprocess``; None: our own.
    """
    environment = {
        name: value
        for name, value in but_settings(os.environ).items()
        if name not in CONNECTION_VARIABLES
    }
    return await asyncio.create_subprocess_exec(
        *command,
        stdin=stdin,
        stdout=stdout,
        env={**environment, PARENT: str(os.getpid())},
        # Ctrl-C of a terminal must reach it only through us, once.
        start_new_session=True,
    )


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
