"""A server's endpoint, asked from outside: an asynchronous client of the protocol.

It needs the standard library alone. As many requests may be under way as one likes; each has a
connection of its own while it lasts. What failed says what may be assumed, as the server's own
failures do: ``Rejected``, ``Unavailable``, ``OutcomeUnknown``. Only what the server answers that it
has not done is asked again, and only by one who has the patience.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from datetime import UTC, datetime
from typing import NamedTuple, Self, TypeVar
from urllib.parse import urlsplit

from google.protobuf.message import DecodeError, Message

from rowtide.core.protocol.read_operations import only_reads
from rowtide.core.protocol.signed_request import Access, signed_headers
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.values.errors import (
    STATUS,
    LogTrimmed,
    OutcomeUnknown,
    Rejected,
    StoreError,
    Unavailable,
)

__all__ = ["Endpoint", "failure_of"]

IDLE_S_MAX = 4.0
"""A connection idle for longer is made anew: the server may be closing it just now, and a write
sent on a closing connection has an unknown outcome."""

HEAD_BYTES_MAX = 64 * 1024

ASK_AGAIN_S = 0.05
"""A shard that is on its way to another worker is there after about a tenth of a second."""

Answer = TypeVar("Answer", bound=Message)

_NOT_APPLIED = frozenset(
    (
        "OTSPartitionUnavailable",
        "OTSServerBusy",
        "OTSServerUnavailable",
        "OTSTableNotReady",
        "OTSRowOperationConflict",
        "OTSNotEnoughCapacityUnit",
        "OTSCapacityUnitExhausted",
    )
)


class _Connection(NamedTuple):
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


class Endpoint:
    """Calls an instance with a key pair. Belongs to one event loop; close it when done.

    For up to ``patience_s`` a request is asked again that the server answers it has not done, as a
    shard is on its way to another worker; a server that isn't there is told at once.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        instance: str,
        access_key_id: str,
        access_key_secret: str,
        timeout_s: float = 30.0,
        patience_s: float = 0.0,
    ) -> None:
        address = urlsplit(endpoint)
        if address.scheme not in ("http", "https") or not address.hostname:
            raise ValueError(f"the endpoint must be http://HOST:PORT, not {endpoint!r}")
        self.endpoint = endpoint
        self._tls = ssl.create_default_context() if address.scheme == "https" else None
        self._host = address.hostname
        self._port = address.port or (443 if self._tls else 80)
        self._access = Access(instance, access_key_id, access_key_secret)
        self._timeout_s = timeout_s
        self._patience_s = patience_s
        self._idle: list[tuple[float, _Connection]] = []
        self.answered_us = 0
        """The server's time at its last answer, Unix microseconds; 0 before any."""
        self.changed = False
        """Whether something was done that may have changed something."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections that nobody uses."""
        for _, connection in self._idle:
            connection.writer.close()
        self._idle.clear()

    async def call(self, operation: str, request: Message, answer: type[Answer]) -> Answer:
        """Send one request and return its parsed answer.

        Raises what the server refused it with, ``Unavailable`` where nothing was sent, and
        ``OutcomeUnknown`` where no answer came.
        """
        return answer.FromString(await self.ask(operation, request.SerializeToString()))

    async def ask(self, operation: str, body: bytes) -> bytes:
        """Send a request's bytes and return its answer's. Raises what ``call`` raises."""
        until_s = time.monotonic() + self._patience_s
        while True:
            status, content = await self._answered(operation, body)
            if status == 200:
                self.changed = self.changed or not only_reads(operation)
                return content
            failure = _failure(status, content)
            if not isinstance(failure, Unavailable) or time.monotonic() >= until_s:
                raise failure
            await asyncio.sleep(ASK_AGAIN_S)

    async def _answered(self, operation: str, body: bytes) -> tuple[int, bytes]:
        connection = self._take() or await self._open()
        try:
            async with asyncio.timeout(self._timeout_s):
                status, content, keep = await self._exchange(connection, operation, body)
        except (OSError, EOFError, ValueError, TimeoutError, asyncio.LimitOverrunError) as error:
            connection.writer.transport.abort()
            raise OutcomeUnknown(self._silence(error)) from error
        except BaseException:
            # Cancelled: the answer would be taken for that of the next one's request.
            connection.writer.transport.abort()
            raise
        if keep:
            self._idle.append((time.monotonic(), connection))
        else:
            connection.writer.close()
        return status, content

    def _take(self) -> _Connection | None:
        while self._idle:
            used_s, connection = self._idle.pop()
            if time.monotonic() - used_s < IDLE_S_MAX and not connection.writer.is_closing():
                return connection
            connection.writer.close()
        return None

    async def _open(self) -> _Connection:
        try:
            async with asyncio.timeout(self._timeout_s):
                opened = await asyncio.open_connection(
                    self._host, self._port, ssl=self._tls, limit=HEAD_BYTES_MAX
                )
        except (OSError, TimeoutError) as error:
            raise Unavailable(self._silence(error), "OTSServerUnavailable") from error
        return _Connection(*opened)

    async def _exchange(
        self, connection: _Connection, operation: str, body: bytes
    ) -> tuple[int, bytes, bool]:
        """Return status, content, and whether the connection may be used again."""
        headers = signed_headers(self._access, operation, body, datetime.now(UTC))
        headers |= {"Host": f"{self._host}:{self._port}", "Content-Length": str(len(body))}
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        connection.writer.write(f"POST /{operation} HTTP/1.1\r\n{lines}\r\n".encode() + body)
        head = (await connection.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        status = int(head[0].split(" ", 2)[1])
        told = {
            name.strip().lower(): value.strip()
            for name, _, value in (line.partition(":") for line in head[1:] if line)
        }
        if "content-length" not in told:
            return status, await connection.reader.read(), False
        content = await connection.reader.readexactly(int(told["content-length"]))
        if date := told.get("x-ots-date"):
            self.answered_us = int(datetime.fromisoformat(date).timestamp() * 1_000_000)
        return status, content, told.get("connection", "").lower() != "close"

    def _silence(self, error: Exception) -> str:
        return f"no answer from {self.endpoint}: {error or type(error).__name__}"


def _failure(status: int, content: bytes) -> Exception:
    """Return the failure of an answer, whoever sent it: a proxy knows nothing of the protocol."""
    try:
        error = pb.Error.FromString(content)
    except DecodeError:
        return OutcomeUnknown(f"HTTP{status}: {content[:200].decode(errors='replace')}")
    return failure_of(error.code, error.message)


def failure_of(code: str, message: str) -> StoreError:
    """Return the failure that an answer tells, of a whole request or of one row."""
    if code == "OTSTrimmedDataAccess":
        return LogTrimmed(message)
    if code in _NOT_APPLIED:
        return Unavailable(message, code)
    if code in STATUS and STATUS[code] < 500:
        return Rejected(code, message)
    return OutcomeUnknown(f"{code}: {message}")
