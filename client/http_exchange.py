"""The bytes of one request and of its answer: signing and HTTP/1.1, without a socket.

Both forms of the client send ``request_bytes`` and feed the bytes they receive to an
``AnswerParser``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple
from urllib.parse import urlsplit

from rowtide.core.protocol.signed_request import Access, sign_headers

__all__ = [
    "IDLE_S_MAX",
    "RECEIVE_BYTES",
    "Access",
    "Address",
    "AnswerParser",
    "BrokenAnswer",
    "HttpAnswer",
    "parse_address",
    "request_bytes",
]

IDLE_S_MAX = 4.0
"""A connection that was idle for longer is replaced. The server may be closing it, and a write on a
closing connection has an unknown outcome.
"""

RECEIVE_BYTES = 256 * 1024
"""Bytes to read from a socket at once."""

HEAD_BYTES_MAX = 64 * 1024


class Address(NamedTuple):
    """The address of a server."""

    url: str
    host: str
    port: int
    is_tls: bool


def parse_address(url: str) -> Address:
    """Return the address of a URL. Raises ``ValueError``."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"the endpoint must be http://HOST:PORT, not {url!r}")
    is_tls = parts.scheme == "https"
    return Address(url, parts.hostname, parts.port or (443 if is_tls else 80), is_tls)


def request_bytes(
    address: Address,
    access: Access,
    operation: str,
    body: bytes,
    now: datetime,
    more: Mapping[bytes, bytes] | None = None,
) -> bytes:
    """Return a signed request; ``more`` are further ``x-ots-`` headers, names in lower case."""
    headers = sign_headers(access, operation, body, now, more)
    host = f"[{address.host}]" if ":" in address.host else address.host
    headers |= {"Host": f"{host}:{address.port}", "Content-Length": str(len(body))}
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"POST /{operation} HTTP/1.1\r\n{lines}\r\n".encode() + body


class BrokenAnswer(ValueError):
    """The received bytes are not an HTTP/1.1 answer, or the answer is incomplete."""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """An answer; header names are in lower case. ``keep``: the connection can be used again."""

    status: int
    headers: dict[str, str]
    content: bytes
    keep: bool

    @property
    def request_id(self) -> str:
        """Return the id under which the server logged the request; empty for a proxy's answer."""
        return self.headers.get("x-ots-requestid", "")

    @property
    def server_us(self) -> int:
        """Return the server's time at the answer in Unix microseconds; 0 without a date header."""
        date = self.headers.get("x-ots-date")
        return int(datetime.fromisoformat(date).timestamp() * 1_000_000) if date else 0


class AnswerParser:
    """Reads one answer from pieces of any size."""

    def __init__(self) -> None:
        self._received = bytearray()
        self._status = 0
        self._headers: dict[str, str] = {}
        self._at = 0
        """Offset of the first byte that is not parsed yet; 0 before the head is complete."""
        self._chunks: list[bytes] = []

    def feed(self, piece: bytes) -> HttpAnswer | None:
        """Add received bytes, empty at the stream's end; return the answer once it is complete.

        Raises ``BrokenAnswer``.
        """
        self._received += piece
        has_ended = not piece
        content = self._take_content(has_ended) if self._has_head() else None
        if content is None:
            if has_ended:
                raise BrokenAnswer("the connection was closed before the answer was complete")
            return None
        is_closed = self._headers.get("connection", "").lower() == "close"
        keep = not has_ended and not is_closed and len(self._received) == self._at
        return HttpAnswer(self._status, self._headers, content, keep)

    def _has_head(self) -> bool:
        """True if the head is complete; parses it then."""
        while not self._at:
            end = self._received.find(b"\r\n\r\n")
            if end < 0:
                if len(self._received) > HEAD_BYTES_MAX:
                    raise BrokenAnswer(f"the head has more than {HEAD_BYTES_MAX} bytes")
                return False
            self._read_head(bytes(self._received[:end]).decode("latin-1").split("\r\n"))
            if self._status < 200:
                del self._received[: end + 4]  # An interim answer: the final one follows.
            else:
                self._at = end + 4
        return True

    def _read_head(self, lines: list[str]) -> None:
        try:
            version, status = lines[0].split(" ", 2)[:2]
            self._status = int(status)
        except ValueError as error:
            raise BrokenAnswer(f"an answer that begins with {lines[0][:80]!r}") from error
        if not version.startswith("HTTP/1.") or self._status < 100:
            raise BrokenAnswer(f"an answer that begins with {lines[0][:80]!r}")
        self._headers = {
            name.strip().lower(): value.strip()
            for name, _, value in (line.partition(":") for line in lines[1:])
        }

    def _take_content(self, has_ended: bool) -> bytes | None:
        """Return the content, or None if more bytes must come."""
        if "chunked" in self._headers.get("transfer-encoding", "").lower():
            return self._take_chunks()
        length = self._headers.get("content-length")
        if length is None:
            return self._take(len(self._received) - self._at) if has_ended else None
        return self._take(_number(length, 10))

    def _take(self, size: int) -> bytes | None:
        end = self._at + size
        if len(self._received) < end:
            return None
        content = bytes(memoryview(self._received)[self._at : end])
        self._at = end
        return content

    def _take_chunks(self) -> bytes | None:
        while (line_end := self._received.find(b"\r\n", self._at)) >= 0:
            size = _number(self._received[self._at : line_end].partition(b";")[0].decode(), 16)
            if not size:
                # Our servers send no trailers: only the empty line follows.
                if len(self._received) < line_end + 4:
                    return None
                self._at = line_end + 4
                return b"".join(self._chunks)
            end = line_end + 2 + size
            if len(self._received) < end + 2:
                return None
            self._chunks.append(bytes(self._received[line_end + 2 : end]))
            self._at = end + 2
        return None


def _number(text: str, radix: int) -> int:
    try:
        number = int(text.strip(), radix)
    except ValueError as error:
        raise BrokenAnswer(f"a length of {text[:80]!r}") from error
    if number < 0:
        raise BrokenAnswer(f"a length of {text[:80]!r}")
    return number
