"""The numbers of a dashboard as Server-Sent Events, for one viewer.

| event | content |
|---|---|
| ``numbers`` | positions, as-of time, lag, state, and the panels that changed since the last |
| ``behind`` | since when the numbers cannot be read, and why |
| ``end`` | why no more comes |

Every event ``numbers`` has an id. A viewer that comes back with the id of its last event gets the
panels that changed since. With an unknown id, or without one, it gets all panels.
"""

from __future__ import annotations

import asyncio
import time

from aiohttp import web

from rowtide.console.feed.feed_wire import PLAIN_SSE
from rowtide.console.feed.record_text import json_bytes
from rowtide.console.languages.texts import translate
from rowtide.console.numbers.dashboard_access import DashboardAccess
from rowtide.console.numbers.dashboard_reader import DashboardReader
from rowtide.console.web.refusals import RequestRefused
from rowtide.core.values.errors import Rejected, StoreError

__all__ = ["NumberEvents"]

QUIET_S = 3.0
"""Without news an event comes after this time, so that a viewer knows that it is connected."""
CONFIRM_S = 3.0
WRITE_S_MAX = 20.0
"""A viewer that takes nothing for so long loses its connection."""


class NumberEvents:
    """Writes events to one response until the viewer leaves, its right ends, or the console stops.

    ``version`` is what the viewer has; 0 for nothing.
    """

    def __init__(
        self,
        reader: DashboardReader,
        access: DashboardAccess,
        stopping: asyncio.Event,
        *,
        language: str,
    ) -> None:
        self.version = 0
        self._language = language
        self._reader = reader
        self._access = access
        self._stopping = stopping
        self._refusal = ""
        self._over = asyncio.Event()

    async def run(self, response: web.StreamResponse) -> None:
        """Write events to a response whose head was sent."""
        async with asyncio.TaskGroup() as tasks:
            beside = [
                tasks.create_task(self._confirm_often(), name="right of a viewer"),
                tasks.create_task(self._watch_stop(), name="stop of a viewer"),
            ]
            writing = tasks.create_task(self._write_all(response), name="numbers of a viewer")
            over = tasks.create_task(self._over.wait(), name="end of a viewer")
            await asyncio.wait((writing, over), return_when=asyncio.FIRST_COMPLETED)
            for task in (*beside, writing, over):
                task.cancel()
        try:
            if self._refusal:
                await _write(response, "end", {"code": "access_revoked", "reason": self._refusal})
            elif self._stopping.is_set():
                reason = "The console stops. Reconnect in a moment."
                await _write(response, "end", {"code": "server_stops", "reason": reason})
        except (ConnectionError, TimeoutError):
            pass

    async def _write_all(self, response: web.StreamResponse) -> None:
        """Write events until the viewer has left."""
        reader = self._reader
        try:
            while True:
                shown = reader.shown
                if reader.problem is not None:
                    behind_s = time.monotonic() - reader.answered_s
                    reason = _words(reader.problem, self._language)
                    content = {"behind_s": round(behind_s, 3), "reason": reason}
                    await _write(response, "behind", content)
                    await reader.wait(shown.version, QUIET_S)
                    continue
                content_bytes, event_id = shown.content_after(self.version), shown.event_id
                self.version = shown.version
                frame = PLAIN_SSE.encode("numbers", event_id, content_bytes)
                await _write_frame(response, frame)
                await reader.wait(self.version, QUIET_S)
        except (ConnectionError, TimeoutError):
            self._over.set()

    async def _confirm_often(self) -> None:
        while True:
            await asyncio.sleep(CONFIRM_S)
            try:
                await self._access.confirm()
            except Rejected as error:
                self._refusal = error.message
                self._over.set()
            except StoreError:
                pass  # No worker can tell. The reader says that it is behind.

    async def _watch_stop(self) -> None:
        await self._stopping.wait()
        self._over.set()


def _words(problem: StoreError | RequestRefused, language: str) -> str:
    if isinstance(problem, RequestRefused):
        return translate(language, problem.text, **problem.values)
    return problem.message


async def _write(response: web.StreamResponse, event: str, content: dict[str, object]) -> None:
    await _write_frame(response, PLAIN_SSE.encode(event, "", json_bytes(content)))


async def _write_frame(response: web.StreamResponse, frame: bytes) -> None:
    async with asyncio.timeout(WRITE_S_MAX):
        await response.write(frame)
