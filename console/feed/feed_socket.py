"""``GET /stream`` as WebSocket: many feeds on one connection, so that a browser needs no other.

| the viewer sends | meaning |
|---|---|
| ``{"open": NAME, "path": "/stream/INSTANCE/TABLE?..."}`` | open a feed; NAME is the viewer's own |
| ``{"close": NAME}`` | close it; nothing more comes under its name |

Each event has the feed's name: ``{"feed": NAME, "event": ..., "id": ..., "data": ...}``. A feed
that cannot be opened gets ``error`` with a status and a message. After ``error``, ``slow``,
``expired`` and ``end`` the name is free again.
"""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from aiohttp import WSMsgType, web
from multidict import MultiDict

from rowtide.console.feed.access import authorize
from rowtide.console.feed.feed_request import parse_request
from rowtide.console.feed.feed_viewer import FeedViewer
from rowtide.console.feed.feed_wire import FeedWire, WebSocketEncoding
from rowtide.console.feed.open_feed import FeedOver, OpenFeeds
from rowtide.console.feed.record_text import json_bytes
from rowtide.console.languages.texts import translate
from rowtide.console.web.refusals import RequestRefused
from rowtide.console.web.render import language_of
from rowtide.core.values.errors import StoreError, invalid

__all__ = ["MESSAGE_BYTES_MAX", "FeedSocket"]

logger = logging.getLogger(__name__)

MESSAGE_BYTES_MAX = 64 * 1024
NAME_CHARS_MAX = 64
PATH_PARTS = 3
"""``stream``, the instance and the table."""


class FeedSocket:
    """The feeds of one connection, each a task of ``tasks``."""

    def __init__(
        self, request: web.Request, feeds: OpenFeeds, wire: FeedWire, tasks: asyncio.TaskGroup
    ) -> None:
        self._request = request
        self._feeds = feeds
        self._wire = wire
        self._tasks = tasks
        self._running: dict[str, asyncio.Task[None]] = {}

    async def run(self, messages: web.WebSocketResponse) -> None:
        """Do what the viewer sends, until it closes the connection; then close all feeds."""
        try:
            async for message in messages:
                if message.type is WSMsgType.TEXT:
                    self._take(message.data)
        finally:
            for running in self._running.values():
                running.cancel()

    def _take(self, text: str) -> None:
        try:
            document = json.loads(text)
        except (ValueError, RecursionError):
            document = None
        name = find_name(document)
        if name is None:
            self._refuse(
                "",
                400,
                f'A message is {{"open": NAME, "path": PATH}} or {{"close": NAME}}, and NAME has 1 '
                f"to {NAME_CHARS_MAX} characters.",
            )
        elif "close" in document:
            running = self._running.pop(name, None)
            if running is not None:
                running.cancel()
        elif name in self._running:
            self._refuse(name, 409, "A feed of this name is open on this connection.")
        else:
            running = self._tasks.create_task(self._run(name, document), name="feed of a socket")
            self._running[name] = running
            running.add_done_callback(lambda task: self._forget(name, task))

    def _forget(self, name: str, task: asyncio.Task[None]) -> None:
        if self._running.get(name) is task:
            del self._running[name]

    async def _run(self, name: str, document: dict[str, Any]) -> None:
        """Open a feed and run it, or say why not."""
        encoding = WebSocketEncoding(json_bytes(name))
        try:
            instance, table, parameters = parse_path(document.get("path"))
            access = await authorize(self._request, instance, table)
            wanted = parse_request(parameters, "", "")
            async with self._feeds.open(access, wanted) as feed:
                loop = asyncio.get_running_loop()
                await feed.run(FeedViewer(self._wire, encoding, loop.time))
        except FeedOver:
            self._refuse(name, 204, "The position is that of a feed that has ended.")
        except StoreError as error:
            self._refuse(name, error.status, error.message)
        except RequestRefused as error:
            words = translate(language_of(self._request), error.text, **error.values)
            self._refuse(name, error.status, words)

    def _refuse(self, name: str, status: int, message: str) -> None:
        content = json_bytes({"status": status, "message": message})
        encoding = WebSocketEncoding(json_bytes(name))
        self._wire.write(encoding.encode("error", "", content))


def find_name(document: Any) -> str | None:
    """Return the name of the feed that a message opens or closes, None if it is no such message."""
    if not isinstance(document, dict) or ("open" in document) == ("close" in document):
        return None
    name = document.get("open", document.get("close"))
    return name if isinstance(name, str) and 0 < len(name) <= NAME_CHARS_MAX else None


def parse_path(path: Any) -> tuple[str, str, MultiDict[str]]:
    """Return instance, table and parameters of a feed's address. Raises OTSParameterInvalid."""
    parts = urlsplit(path if isinstance(path, str) else "")
    names = [unquote(part) for part in parts.path.split("/")[1:]]
    if len(names) != PATH_PARTS or names[0] != "stream" or not all(names):
        raise invalid("path must be /stream/INSTANCE/TABLE, with parameters behind a '?'.")
    return names[1], names[2], MultiDict(parse_qsl(parts.query, keep_blank_values=True))
