"""A live edge on a free port, and a client of it that can send anything at all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest

from rowtide.core.protocol.authentication import Authenticator, Credential
from rowtide.core.protocol.signature import content_md5, request_signature_v2, string_to_sign
from rowtide.core.protocol.wire import ots_pb2 as wire
from rowtide.stream.http.edge import Edge, Handler
from rowtide.stream.http.limits import HttpLimits
from tests.support.waiting import SOON_S

SECRET = "testsecret"
DATE = "2026-01-02T03:04:05.678Z"
NOW_S = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC).timestamp()


@dataclass
class Answer:
    """One answer as a client sees it."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def error(self) -> str:
        """Status, code and text of an error answer in one line."""
        error = wire.Error.FromString(self.body)
        return f"{self.status} {error.code} {error.message}"


@dataclass
class LiveEdge:
    """A running edge, its port, and whatever the event loop complained of meanwhile."""

    edge: Edge
    port: int
    complaints: list[dict[str, Any]] = field(default_factory=list)

    async def connect(self) -> Client:
        """Open a connection."""
        return Client(*await asyncio.open_connection("127.0.0.1", self.port))

    async def ask(self, request: bytes) -> Answer:
        """Send one request on a connection of its own and return the answer."""
        async with await self.connect() as client:
            client.send(request)
            return await client.answer()


@dataclass
class Client:
    """One connection, byte by byte."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.transport.abort()

    def send(self, content: bytes) -> None:
        """Send bytes as they are."""
        self.writer.write(content)

    async def answer(self, *, headers_only: bool = False) -> Answer:
        """Read one answer."""
        async with asyncio.timeout(SOON_S):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            first, *lines = head.rstrip("\r\n").split("\r\n")
            pairs = (line.partition(":") for line in lines)
            headers = {name.lower(): value.strip() for name, _, value in pairs}
            size = 0 if headers_only else int(headers["content-length"])
            return Answer(int(first.split()[1]), headers, await self.reader.readexactly(size))

    async def rest(self) -> bytes:
        """Read until the server closes."""
        async with asyncio.timeout(SOON_S):
            return await self.reader.read()


def echo(_: object, body: bytes) -> bytes:
    """Answer with the request's body."""
    return body


Running = Callable[..., AbstractAsyncContextManager[LiveEdge]]
"""``running(handlers=..., limits=..., clock=...)`` starts an edge for a ``with`` block."""


@asynccontextmanager
async def run_edge(
    handlers: Mapping[str, Handler] | None = None,
    *,
    limits: HttpLimits | None = None,
    clock: Callable[[], float] = lambda: NOW_S,
) -> AsyncIterator[LiveEdge]:
    keys = {
        "testid": Credential("testid", SECRET),
        "disabled": Credential("disabled", SECRET, enabled=False),
        "elsewhere": Credential("elsewhere", SECRET, instances=frozenset({"other"})),
    }
    authenticator = Authenticator(keys.get, {"inst", "other"}.__contains__)
    async with asyncio.TaskGroup() as tasks:
        edge = Edge(authenticator, handlers or {"Echo": echo}, tasks, clock=clock, limits=limits)
        server = await edge.serve("127.0.0.1", 0)
        live = LiveEdge(edge, server.sockets[0].getsockname()[1])
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: live.complaints.append(context))
        try:
            yield live
        finally:
            await edge.drain(0.5)
            loop.set_exception_handler(None)
    assert live.complaints == []
    assert edge.budget.held == 0


@pytest.fixture
def running() -> Running:
    """Start edges."""
    return run_edge


def make_request(
    operation: str = "Echo",
    body: bytes = b"",
    *,
    method: str = "POST",
    unsigned: Mapping[str, str | None] | None = None,
    extra: str = "",
    **signed: str,
) -> bytes:
    """Return a request as a client would sign it.

    ``signed`` sets ``x-ots-`` headers before signing; ``unsigned`` sets or drops (None) headers
    after it; ``extra`` are further header lines.
    """
    headers = {
        b"x-ots-apiversion": b"2015-12-31",
        b"x-ots-accesskeyid": b"testid",
        b"x-ots-instancename": b"inst",
        b"x-ots-contentmd5": content_md5(body),
        b"x-ots-date": DATE.encode(),
    }
    headers |= {b"x-ots-" + name.encode(): value.encode() for name, value in signed.items()}
    path = f"/{operation}".encode()
    text = string_to_sign(path, headers)
    headers[b"x-ots-signature"] = request_signature_v2(SECRET.encode(), text)
    for name, value in (unsigned or {}).items():
        headers[name.encode()] = (value or "").encode()
    lines = [name + b": " + value for name, value in headers.items() if value]
    if "Transfer-Encoding" not in extra and "Content-Length" not in extra:
        lines.append(b"Content-Length: %d" % len(body))
    first = f"{method} /{operation} HTTP/1.1\r\nHost: 127.0.0.1\r\n{extra}".encode()
    return first + b"\r\n".join(lines) + b"\r\n\r\n" + body


@pytest.fixture
def request_bytes() -> Callable[..., bytes]:
    """Make requests."""
    return make_request
