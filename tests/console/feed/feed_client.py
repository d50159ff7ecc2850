"""A program that follows a feed over HTTP, and reconnects with the last id that it got."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

__all__ = ["FeedClient", "Refusal", "parse_sse"]

EVENT_S_MAX = 60.0
LINE_BYTES_MAX = 1 << 23


class Refusal(Exception):
    """The console answered with another status than 200."""

    def __init__(self, status: int, text: str, headers: Mapping[str, str]) -> None:
        super().__init__(status, text)
        self.status = status
        self.text = text
        self.headers = headers


def parse_sse(lines: list[str]) -> dict[str, Any]:
    """Return one event of Server-Sent Events in the form of NDJSON."""
    fields = dict(line.split(": ", 1) for line in lines)
    event: dict[str, Any] = {"event": fields.get("event", "records" if "data" in fields else "")}
    event["event"] = event["event"] or "position"
    if "id" in fields:
        event["id"] = fields["id"]
    if "data" in fields:
        event["data"] = json.loads(fields["data"])
    return event


class FeedClient:
    """One follower of a table. ``token`` is the last id; ``records`` are all that came."""

    def __init__(self, path: str, *, headers: Mapping[str, str], **parameters: str) -> None:
        self.path = path
        self.parameters = {"format": "ndjson", **parameters}
        self.headers = dict(headers)
        self.token = ""
        self.events: list[dict[str, Any]] = []
        self.records: list[dict[str, Any]] = []

    @asynccontextmanager
    async def connect(self, url: str) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
        """Yield the events of one connection. Raises ``Refusal``."""
        headers = self.headers | ({"Last-Event-ID": self.token} if self.token else {})
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=EVENT_S_MAX)
        async with (
            aiohttp.ClientSession(
                timeout=timeout, read_bufsize=LINE_BYTES_MAX, cookie_jar=aiohttp.DummyCookieJar()
            ) as session,
            session.get(url + self.path, params=self.parameters, headers=headers) as answer,
        ):
            if answer.status != 200:
                raise Refusal(answer.status, await answer.text(), answer.headers)
            yield self._read(answer)

    async def _read(self, answer: aiohttp.ClientResponse) -> AsyncIterator[dict[str, Any]]:
        is_sse = answer.content_type == "text/event-stream"
        lines: list[str] = []
        async for line in answer.content:
            text = line.decode().rstrip("\n")
            if not is_sse:
                yield self._note(json.loads(text))
            elif text:
                lines.append(text)
            elif lines:
                yield self._note(parse_sse(lines))
                lines = []

    def _note(self, event: dict[str, Any]) -> dict[str, Any]:
        self.events.append(event)
        self.token = event.get("id", self.token)
        content = event.get("data") or {}
        self.records += content.get("records", [])
        return event

    async def take(self, url: str, *names: str) -> list[dict[str, Any]]:
        """Connect and return the events up to the first one with any of these names."""
        found = []
        async with asyncio.timeout(EVENT_S_MAX), self.connect(url) as events:
            async for event in events:
                found.append(event)
                if event["event"] in names:
                    return found
        raise AssertionError(f"the feed ended after {found}")
