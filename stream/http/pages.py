"""Pages that anybody who reaches the port may read: no signature, no operation, plain HTTP.

They exist for probes and scrapers, which cannot sign. What they tell is chosen so that it may be
read by anyone: no key, no row, no address.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, NamedTuple

__all__ = ["Page", "PageAnswer", "page_bytes", "said"]


class PageAnswer(NamedTuple):
    """A page as of now."""

    status: int
    content_type: bytes
    body: bytes


Page = Callable[[], Awaitable[PageAnswer]]


def said(status: int, document: dict[str, Any]) -> PageAnswer:
    """Return a page of one JSON document."""
    return PageAnswer(status, b"application/json", json.dumps(document).encode() + b"\n")


def page_bytes(answer: PageAnswer, *, last: bool) -> bytes:
    """Return a page as it goes over the wire; ``last`` closes the connection after it."""
    phrase = HTTPStatus(answer.status).phrase.encode()
    lines = [
        b"HTTP/1.1 %d %b" % (answer.status, phrase),
        b"Content-Type: " + answer.content_type,
        b"Content-Length: %d" % len(answer.body),
        b"Cache-Control: no-store",
    ]
    if last:
        lines.append(b"Connection: close")
    return b"\r\n".join((*lines, b"", answer.body))
