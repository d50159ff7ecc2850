"""How soon viewers of a console that was killed are back, each exactly where it was."""

from __future__ import annotations

import asyncio
import os
import random
import re
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from tests.support.consoles import RunningConsole
from tests.support.waiting import until_async

__all__ = ["measure_return_s"]

BACK_S_MAX = 60.0
RETRY_S = 0.1, 0.5
"""Between these a viewer waits before it connects again. A page of the console waits 0.25 s."""
RECEIVE_BYTES = 1 << 16
ID = re.compile(rb"^id: (\S+)\n", re.MULTILINE)
READY = b"event: ready"


@dataclass(slots=True)
class _Viewer:
    """One viewer, a plain socket. ``received`` is what all its connections brought."""

    request: str
    sought: bytes
    received: bytes = b""

    async def keep_following(self, port: int) -> None:
        """Follow, and come back by the last id as often as the connection is lost."""
        while True:
            with suppress(OSError):
                await self._follow(port)
            await asyncio.sleep(random.uniform(*RETRY_S))

    async def _follow(self, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            ids = ID.findall(self.received)
            head = f"Last-Event-ID: {ids[-1].decode()}\r\n" if ids else ""
            writer.write(f"{self.request}{head}\r\n".encode())
            while received := await reader.read(RECEIVE_BYTES):
                self.received += received
        finally:
            writer.close()

    @property
    def records(self) -> int:
        """Return how many of the records came that were written after the kill."""
        return self.received.count(self.sought)


async def measure_return_s(
    console: RunningConsole,
    token: str,
    paths: Sequence[str],
    write: Callable[[], Awaitable[None]],
    sought: bytes,
) -> float:
    """Kill the console; return the seconds until each viewer has what ``write`` wrote for it.

    ``write`` is called after the kill, and writes one record for each of ``paths``, whose text has
    ``sought``.
    """
    # A refusal ends the connection, too: places of viewers that have just left are not free yet.
    head = f" HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nAuthorization: Bearer {token}\r\n"
    viewers = [_Viewer(f"GET {path}{head}", sought) for path in paths]
    async with asyncio.TaskGroup() as tasks:
        running = [
            tasks.create_task(viewer.keep_following(console.port), name="viewer")
            for viewer in viewers
        ]
        await until_async(lambda: all(READY in viewer.received for viewer in viewers))
        killed = console.pid
        os.kill(killed, signal.SIGKILL)
        killed_s = time.perf_counter()
        await write()
        await until_async(
            lambda: all(viewer.records for viewer in viewers),
            lambda: f"{sum(1 for viewer in viewers if viewer.records)} viewers are back",
            s_max=BACK_S_MAX,
        )
        taken_s = time.perf_counter() - killed_s
        for task in running:
            task.cancel()
    assert console.pid != killed, "the console was not killed"
    assert all(viewer.records == 1 for viewer in viewers), "a record came twice"
    return taken_s
