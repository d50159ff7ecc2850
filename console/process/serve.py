"""Runs a console until it has to stop."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable

from aiohttp import web

from rowtide.console.process.app import make_app
from rowtide.console.web.console_settings import ConsoleSettings
from rowtide.console.web.routes import STOPPING
from rowtide.console.workers.calls import WorkerCalls

__all__ = ["serve_console"]

logger = logging.getLogger(__name__)

REQUEST_LINE_BYTES_MAX = 128 * 1024
"""An address may have a long filter; its handler says what is too long."""

STOP_S_MAX = 5.0
"""Requests under way have this long to end. Feeds end at once, with an event that says why."""

BACKLOG = 1024


class _Stopped(Exception):
    """Ends the tasks of the console with their group."""


async def serve_console(
    settings: ConsoleSettings,
    listener: socket.socket,
    *,
    stop: asyncio.Event,
    ready: Callable[[], None],
) -> None:
    """Serve pages and feeds on ``listener`` until ``stop`` is set; call ``ready`` once it does."""
    try:
        async with WorkerCalls(settings.endpoint) as calls, asyncio.TaskGroup() as tasks:
            app = make_app(settings, calls, tasks)
            runner = web.AppRunner(
                app,
                access_log=None,
                handle_signals=False,
                shutdown_timeout=STOP_S_MAX,
                max_line_size=REQUEST_LINE_BYTES_MAX,
            )
            await runner.setup()
            try:
                await web.SockSite(runner, listener, backlog=BACKLOG).start()
                ready()
                await stop.wait()
                app[STOPPING].set()
            finally:
                await runner.cleanup()
            raise _Stopped
    except* _Stopped:
        logger.info("the console has stopped")
