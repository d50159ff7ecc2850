"""Pages that any client may read: no signature, no operation, plain HTTP.

They exist for probes and scrapers, which cannot sign. So pages contain only what any client may
read: no key, no row, no address. A browser cannot sign either. It is redirected to the web console
beside the worker, or gets the introduction if there is none. No page loads anything, and no page
may be shown within another.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any, NamedTuple

__all__ = [
    "ConsoleAddress",
    "Page",
    "PageAnswer",
    "introduction",
    "json_page",
    "page_bytes",
    "wants_introduction",
]

INTRODUCTION = """\
<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<title>rowtide</title>
<h1>rowtide {version}</h1>
<p>This is the endpoint of a rowtide server: a wide-column store that speaks the Table Store (OTS)
protocol. Its clients are the Table Store SDKs and the command <code>rowtide</code>. A browser
cannot use it: every operation is a signed POST request.</p>
<p>The documentation is in the folder <code>docs</code> of rowtide's source. The file
<code>README.md</code> beside it shows the first steps. <code>rowtide --help</code> lists all
commands.</p>
<p>Is the server up? See <a href="/healthz">/healthz</a> and <a href="/readyz">/readyz</a>.</p>
</html>
"""

GUARDS = (
    b"Cache-Control: no-store",
    b"Content-Security-Policy: default-src 'none'; base-uri 'none'; form-action 'none'; "
    b"frame-ancestors 'none'",
    b"X-Content-Type-Options: nosniff",
    b"X-Frame-Options: DENY",
    b"Referrer-Policy: no-referrer",
)
"""Headers of every page: browsers store, run, load, frame and pass on nothing."""


class PageAnswer(NamedTuple):
    """The present content of a page. ``location`` is where a redirect leads."""

    status: int
    content_type: bytes
    body: bytes
    location: bytes = b""


Page = Callable[[], Awaitable[PageAnswer]]

_HOST = re.compile(rb"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::\d{1,5})?")


def json_page(status: int, document: dict[str, Any]) -> PageAnswer:
    """Return a page of one JSON document."""
    return PageAnswer(status, b"application/json", json.dumps(document).encode() + b"\n")


def introduction(version: str) -> Page:
    """Return the page that explains an endpoint to its visitor."""

    async def page() -> PageAnswer:
        # Its table of entities is large, and few clients request this page.
        from html import escape

        body = INTRODUCTION.format(version=escape(version)).encode()
        return PageAnswer(HTTPStatus.OK, b"text/html; charset=utf-8", body)

    return page


class ConsoleAddress(NamedTuple):
    """Where the web console beside this worker is: at ``url``, or at ``port`` of the same host."""

    url: str
    port: int

    def redirect(self, host: bytes) -> Page | None:
        """Return the page that leads a browser to the console.

        ``host`` is the Host header: the browser reaches this machine by that name. None if it is
        no host.
        """
        found = _HOST.fullmatch(host)
        if self.url:
            location = self.url.encode()
        elif found is not None:
            location = b"http://%b:%d/" % (found[1], self.port)
        else:
            return None

        async def page() -> PageAnswer:
            return PageAnswer(HTTPStatus.FOUND, b"text/plain", b"The console is there.\n", location)

        return page


def wants_introduction(path: bytes, headers: Mapping[bytes, bytes]) -> bool:
    """True if a GET names the endpoint itself and accepts HTML: a browser, no SDK, no probe."""
    accepted = headers.get(b"accept", b"").lower().split(b",")
    return path == b"/" and any(
        kind.partition(b";")[0].strip() == b"text/html" for kind in accepted
    )


def page_bytes(answer: PageAnswer, *, last: bool) -> bytes:
    """Return a page as it is sent; ``last`` closes the connection after it."""
    phrase = HTTPStatus(answer.status).phrase.encode()
    lines = [
        b"HTTP/1.1 %d %b" % (answer.status, phrase),
        b"Content-Type: " + answer.content_type,
        b"Content-Length: %d" % len(answer.body),
        *GUARDS,
    ]
    if answer.location:
        lines.append(b"Location: " + answer.location)
    if last:
        lines.append(b"Connection: close")
    return b"\r\n".join((*lines, b"", answer.body))
