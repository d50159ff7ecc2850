"""The load generator: rows, signed requests, and connections that cost little.

Requests are encoded and signed before the clock runs, so that what is measured is the server. A
signature holds for 15 minutes, so one prepared request may also be sent many times. Rows are
those of the bars: a key of a 16-byte string and an integer, 10 strings of 20 bytes, 2 integers.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import NamedTuple, cast
from urllib.parse import urlsplit

from google.protobuf.message import Message

from rowtide.cli.client import Access, sign_headers
from rowtide.core.protocol import plainbuffer
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.values import variant
from rowtide.core.values.schema import INTEGER, STRING, KeyColumn
from rowtide.deploy.up import Ready

__all__ = [
    "KEY",
    "Channel",
    "Refused",
    "Requests",
    "Timings",
    "key_of",
    "row_of",
    "run_closed_loop",
]

KEY = (KeyColumn("id", STRING), KeyColumn("n", INTEGER))
PATTERNS = 64
SPREAD = 0x9E3779B97F4A7C15
"""An odd multiplier modulo 2^64: row numbers become keys in no order, each once."""


class Refused(Exception):
    """The server did not do what was measured; the numbers would mean nothing."""


class Timings(NamedTuple):
    """Seconds from first byte sent to last byte received, per call, and for all together."""

    calls: list[float]
    elapsed_s: float


def _cells(pattern: int) -> tuple[bytes, bytes]:
    """Return the bytes of 12 cells, and their checksums."""
    columns: list[tuple[bytes, int | str]] = [
        (b"text%d" % i, f"{pattern * SPREAD * (i + 3) % 10**20:020}") for i in range(10)
    ]
    columns += [(b"count", pattern), (b"total", pattern * 1_000_003)]
    cells = [plainbuffer.put_cell(name, variant.encode(value), None) for name, value in columns]
    return plainbuffer.cells_piece(cells), bytes(cell.checksum for cell in cells)


_PATTERNS = [_cells(pattern) for pattern in range(PATTERNS)]


def _key(number: int) -> list[tuple[bytes, bytes]]:
    text = f"{number * SPREAD % 2**64:016x}"
    return [(b"id", variant.encode(text)), (b"n", variant.encode(number))]


def key_of(number: int) -> bytes:
    """Return the PlainBuffer key of a row."""
    return plainbuffer.HEADER + plainbuffer.encode_row(_key(number), [])


def row_of(number: int) -> bytes:
    """Return the PlainBuffer of a row; only its key is encoded anew."""
    piece, checksums = _PATTERNS[number % PATTERNS]
    key, state = plainbuffer.key_piece(_key(number))
    end = bytes((0x09, plainbuffer.row_checksum(state, checksums)))
    return b"".join((plainbuffer.HEADER, key, b"\x02", piece, end))


class Requests:
    """Makes whole HTTP requests for one table of one instance."""

    def __init__(self, ready: Ready, table: str) -> None:
        self.table = table
        self._access = Access(ready.instance, ready.access_key_id, ready.access_key_secret)
        self._host = urlsplit(ready.endpoint).netloc

    def raw(self, operation: str, message: Message) -> bytes:
        """Return the bytes of one signed request."""
        body = message.SerializeToString()
        headers = sign_headers(self._access, operation, body, datetime.now(UTC))
        lines = [f"POST /{operation} HTTP/1.1", f"Host: {self._host}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        lines += [f"Content-Length: {len(body)}", "", ""]
        return "\r\n".join(lines).encode() + body

    def put(self, number: int) -> bytes:
        """Put one row."""
        condition = pb.Condition(row_existence=pb.IGNORE)
        message = pb.PutRowRequest(table_name=self.table, row=row_of(number), condition=condition)
        return self.raw("PutRow", message)

    def get(self, number: int) -> bytes:
        """Get one row."""
        message = pb.GetRowRequest(
            table_name=self.table, primary_key=key_of(number), max_versions=1
        )
        return self.raw("GetRow", message)

    def batch(self, numbers: Iterable[int]) -> bytes:
        """Put many rows in one BatchWriteRow."""
        message = pb.BatchWriteRowRequest()
        part = message.tables.add(table_name=self.table)
        condition = pb.Condition(row_existence=pb.IGNORE)
        for number in numbers:
            part.rows.add(type=pb.PUT, row_change=row_of(number), condition=condition)
        return self.raw("BatchWriteRow", message)

    def scan(self, start: bytes | None) -> bytes:
        """Get a page of the table from a key on."""
        ends = [
            plainbuffer.HEADER + plainbuffer.encode_row([(b"id", end), (b"n", end)], [])
            for end in (variant.V_INF_MIN, variant.V_INF_MAX)
        ]
        message = pb.GetRangeRequest(
            table_name=self.table,
            direction=pb.FORWARD,
            max_versions=1,
            inclusive_start_primary_key=start or ends[0],
            exclusive_end_primary_key=ends[1],
        )
        return self.raw("GetRange", message)

    def stream(self, iterator: str) -> bytes:
        """Read a shard from a position on."""
        return self.raw("GetStreamRecord", pb.GetStreamRecordRequest(shard_iterator=iterator))


class Channel(asyncio.Protocol):
    """One connection: a request, then its whole answer. asyncio sets TCP_NODELAY itself."""

    def __init__(self) -> None:
        self._received = bytearray()
        self._body_at = self._needed = 0
        self._transport: asyncio.Transport | None = None
        self._waiting: asyncio.Future[bytes] | None = None

    @classmethod
    async def open(cls, endpoint: str) -> Channel:
        """Connect to the server."""
        address = urlsplit(endpoint)
        loop = asyncio.get_running_loop()
        if address.hostname is None or address.port is None:
            raise ValueError(f"no host and port: {endpoint}")
        _, channel = await loop.create_connection(cls, address.hostname, address.port)
        return channel

    def ask(self, request: bytes) -> asyncio.Future[bytes]:
        """Send one request; the answer's body comes. The former's answer must have come."""
        assert self._transport is not None, "not connected"
        assert self._waiting is None, "an answer is awaited"
        self._waiting = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return self._waiting

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport; uvloop's is one in all but its class."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Collect an answer, which may come in pieces."""
        self._received += data
        if not self._needed:
            self._body_at = self._received.find(b"\r\n\r\n") + 4
            if self._body_at < 4:
                return
            head = self._received[: self._body_at].lower()
            at = head.index(b"content-length:") + 15
            self._needed = self._body_at + int(head[at : head.index(b"\r", at)])
        if len(self._received) >= self._needed:
            self._answer(bytes(self._received))
            del self._received[:]
            self._needed = 0

    def _answer(self, answer: bytes) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is None or waiting.done():
            return
        body = answer[self._body_at :]
        if answer[9:12] == b"200":
            waiting.set_result(body)
        else:
            error = pb.Error.FromString(body)
            waiting.set_exception(Refused(f"{answer[9:12]!r} {error.code}: {error.message}"))

    def connection_lost(self, error: Exception | None) -> None:
        """Fail the request that waits."""
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(Refused(f"the connection was lost: {error}"))

    def close(self) -> None:
        """Close the connection."""
        assert self._transport is not None, "not connected"
        self._transport.close()


async def run_closed_loop(
    endpoint: str,
    requests: Iterable[bytes],
    *,
    connections: int,
    check: Callable[[bytes], None],
) -> Timings:
    """Send every request, each connection one at a time; ``check`` sees every answer's body."""
    channels = [await Channel.open(endpoint) for _ in range(connections)]
    shared, calls = iter(requests), list[float]()

    async def run(channel: Channel) -> None:
        for request in shared:
            sent_at = time.perf_counter()
            body = await channel.ask(request)
            calls.append(time.perf_counter() - sent_at)
            check(body)
        channel.close()

    began = time.perf_counter()
    async with asyncio.TaskGroup() as tasks:
        for channel in channels:
            tasks.create_task(run(channel))
    return Timings(calls, time.perf_counter() - began)
