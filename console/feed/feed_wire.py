"""How events reach a viewer: their three forms, and the connection they are written to.

| form | an event is |
|---|---|
| SSE | lines ``event:``, ``id:`` and ``data:``; records have no ``event:`` line |
| NDJSON | one line: ``{"event": ..., "id": ..., "data": ...}`` |
| WebSocket | one text message with the same JSON |

A frame for many viewers is made once. So it is written to the transports of the connections, past
the buffers of aiohttp: those copy it for each viewer.
"""

from __future__ import annotations

import asyncio
from functools import lru_cache
from typing import Protocol

__all__ = [
    "NDJSON",
    "PLAIN_NDJSON",
    "PLAIN_SSE",
    "POSITION",
    "RECORDS",
    "SSE",
    "WEBSOCKET",
    "FeedEncoding",
    "FeedWire",
    "NdjsonEncoding",
    "SseEncoding",
    "TransportWire",
    "WebSocketEncoding",
]

RECORDS = "records"
POSITION = "position"
"""The event that has only an id."""
TEXT_MESSAGE = 0x81
"""First byte of an unmasked, unfragmented WebSocket text message."""


class FeedEncoding(Protocol):
    """Makes the bytes of events. Viewers with the same object as encoding share frames."""

    content_type: str

    def encode(self, event: str, token: str, data: bytes) -> bytes:
        """Return an event. Without ``data`` it has only an id; without ``token`` no id."""
        ...


class SseEncoding:
    """Server-Sent Events, in the chunks of HTTP/1.1 or without any."""

    content_type = "text/event-stream"

    def __init__(self, *, is_chunked: bool = True) -> None:
        self._is_chunked = is_chunked

    def encode(self, event: str, token: str, data: bytes) -> bytes:
        """Return an event, see ``FeedEncoding``."""
        head = _sse_head(event, token)
        content = b"%bdata: %b\n\n" % (head, data) if data else head + b"\n"
        return _chunk(content) if self._is_chunked else content


class NdjsonEncoding:
    """One JSON object a line, in the chunks of HTTP/1.1 or without any."""

    content_type = "application/x-ndjson"

    def __init__(self, *, is_chunked: bool = True) -> None:
        self._is_chunked = is_chunked

    def encode(self, event: str, token: str, data: bytes) -> bytes:
        """Return an event, see ``FeedEncoding``."""
        content = json_event(event, token, data) + b"\n"
        return _chunk(content) if self._is_chunked else content


class WebSocketEncoding:
    """WebSocket text messages. ``name`` is that of one feed of several on a connection."""

    content_type = ""

    def __init__(self, name: bytes = b"") -> None:
        self._head = b'{"feed":%b,' % name if name else b"{"

    def encode(self, event: str, token: str, data: bytes) -> bytes:
        """Return an event, see ``FeedEncoding``."""
        return _message(json_event(event, token, data, self._head))


SSE, NDJSON, WEBSOCKET = SseEncoding(), NdjsonEncoding(), WebSocketEncoding()
PLAIN_SSE, PLAIN_NDJSON = SseEncoding(is_chunked=False), NdjsonEncoding(is_chunked=False)
"""For HTTP/1.0, which some proxies speak and which has no chunks."""


def json_event(event: str, token: str, data: bytes, head: bytes = b"{") -> bytes:
    """Return an event as one JSON object."""
    parts = [head, b'"event":"%b"' % event.encode()]
    if token:
        parts.append(b',"id":"%b"' % token.encode())
    if data:
        parts += [b',"data":', data]
    return b"".join([*parts, b"}"])


@lru_cache(64)
def _sse_head(event: str, token: str) -> bytes:
    head = "" if event in (RECORDS, POSITION) else f"event: {event}\n"
    return (head + f"id: {token}\n" if token else head).encode()


def _chunk(content: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(content), content)


def _message(content: bytes) -> bytes:
    length = len(content)
    if length < 126:
        head = bytes((TEXT_MESSAGE, length))
    elif length < 1 << 16:
        head = bytes((TEXT_MESSAGE, 126)) + length.to_bytes(2, "big")
    else:
        head = bytes((TEXT_MESSAGE, 127)) + length.to_bytes(8, "big")
    return head + content


class FeedWire(Protocol):
    """A connection to one or more viewers."""

    @property
    def is_closed(self) -> bool:
        """True if nothing reaches the viewer any more."""
        ...

    @property
    def pending_bytes(self) -> int:
        """Return how many written bytes the kernel has not taken yet."""
        ...

    def write(self, frame: bytes) -> None:
        """Write a frame; what the kernel does not take waits in memory."""
        ...

    def abort(self) -> None:
        """Close the connection and drop what waits."""
        ...


class TransportWire:
    """The connection of an HTTP response or a WebSocket whose head was sent."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    @property
    def is_closed(self) -> bool:
        """True if nothing reaches the viewer any more."""
        return self._transport.is_closing()

    @property
    def pending_bytes(self) -> int:
        """Return how many written bytes the kernel has not taken yet."""
        return self._transport.get_write_buffer_size()

    def write(self, frame: bytes) -> None:
        """Write a frame; what the kernel does not take waits in memory."""
        if not self._transport.is_closing():
            self._transport.write(frame)

    def abort(self) -> None:
        """Close the connection and drop what waits."""
        self._transport.abort()
