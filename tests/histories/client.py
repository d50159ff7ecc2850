"""A light client of one worker: keep-alive connections, no retries, one error per kind of failure.

A connection carries one request at a time. One whose answer did not come in time is closed: the
answer, should it come, is nobody's. Requests are signed for the second in which they are sent.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import cast

from google.protobuf.message import DecodeError

from rowtide.cli.client import Access, sign_headers
from rowtide.core.protocol.wire import ots_pb2 as pb

__all__ = ["Answer", "NoAnswer", "NotSent", "WorkerClient"]

Answer = tuple[str, bytes]
"""An error code, empty for none, and the body of an answer without error."""

CONNECT_S_MAX = 1.0


class NotSent(Exception):
    """No connection could be made, so nothing was asked."""


class NoAnswer(Exception):
    """The request left, no answer came: it may have been done."""


class WorkerClient:
    """Connections to the worker that listens on ``port`` of this machine at the moment.

    Its clock is ``skew_s`` ahead: requests are signed for the time that it believes in. Codes that
    are ``passing`` come from what is being done to it, and mean "not done".
    """

    def __init__(self, access: Access) -> None:
        self.port = 0
        self.skew_s = 0.0
        self.passing: frozenset[str] = frozenset()
        self._access = access
        self._idle: list[Connection] = []

    async def call(
        self, operation: str, body: bytes, *, timeout_s: float, bound_s: float | None = None
    ) -> Answer:
        """Send one request and return its answer; it may be stale by a bound, where one is given.

        Raises ``NotSent``, ``NoAnswer``.
        """
        connection = await self._connection()
        waiting = connection.ask(self._request(operation, body, bound_s))
        try:
            async with asyncio.timeout(timeout_s):
                answer = await waiting
        except TimeoutError as error:
            connection.close()
            raise NoAnswer(f"none within {timeout_s} s") from error
        except BaseException:
            connection.close()
            raise
        if connection.open:
            self._idle.append(connection)
        return answer

    def close(self) -> None:
        """Close what is idle; the next request opens anew."""
        for connection in self._idle:
            connection.close()
        self._idle.clear()

    async def _connection(self) -> Connection:
        while self._idle:
            connection = self._idle.pop()
            if connection.open:
                return connection
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_S_MAX):
                _, made = await loop.create_connection(Connection, "127.0.0.1", self.port)
        except (OSError, TimeoutError) as error:
            raise NotSent(str(error)) from error
        return made

    def _request(self, operation: str, body: bytes, bound_s: float | None) -> bytes:
        now = datetime.now(UTC) + timedelta(seconds=self.skew_s)
        more = {} if bound_s is None else {b"x-ots-max-staleness-ms": b"%d" % (bound_s * 1000)}
        headers = sign_headers(self._access, operation, body, now, more)
        lines = [f"POST /{operation} HTTP/1.1", "Host: 127.0.0.1"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        lines += [f"Content-Length: {len(body)}", "", ""]
        return "\r\n".join(lines).encode() + body


class Connection(asyncio.Protocol):
    """One connection; ``open`` says whether it may be used again."""

    def __init__(self) -> None:
        self.open = False
        self._received = bytearray()
        self._transport: asyncio.Transport | None = None
        self._waiting: asyncio.Future[Answer] | None = None

    def ask(self, request: bytes) -> asyncio.Future[Answer]:
        """Send one request; the former's answer must have come."""
        assert self._transport is not None, "not connected"
        self._waiting = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return self._waiting

    def close(self) -> None:
        """Close at once."""
        self.open = False
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport; uvloop's is one in all but its class."""
        self._transport = cast("asyncio.Transport", transport)
        self.open = True

    def connection_lost(self, error: Exception | None) -> None:
        """Tell whoever waits."""
        self.open = False
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(NoAnswer(f"the connection was lost: {error}"))

    def data_received(self, data: bytes) -> None:
        """Collect an answer, which may come in pieces."""
        self._received += data
        body_at = self._received.find(b"\r\n\r\n") + 4
        if body_at < 4:
            return
        head = bytes(self._received[:body_at]).lower()
        at = head.index(b"content-length:") + 15
        end = body_at + int(head[at : head.index(b"\r", at)])
        if len(self._received) < end:
            return
        body = bytes(self._received[body_at:end])
        del self._received[:]
        if b"connection:close" in head:
            self.close()
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(_decode_answer(head[9:12], body))


def _decode_answer(status: bytes, body: bytes) -> Answer:
    if status == b"200":
        return "", body
    try:
        return pb.Error.FromString(body).code or f"HTTP{status.decode()}", b""
    except DecodeError:
        return f"HTTP{status.decode()}", b""
