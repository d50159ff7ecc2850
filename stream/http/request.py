"""Reads requests from the bytes of one connection: parsed, bounded, and judged early.

A request is judged as soon as its headers are complete, before any of its body is kept.
The body of a rejected request is read and dropped, so that the connection stays usable. A
request is *fatal* if it cannot be read further: malformed, oversized or too slow. It is
the last one of its connection, and the remaining bytes are dropped unparsed.

Memory: ``head_bytes_max`` plus one feed bounds the headers. ``body_bytes_max`` bounds
each body, and the budget bounds the bodies of all connections. Nothing here writes or
waits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NoReturn

import httptools

from rowtide.core.protocol.authentication import Identity
from rowtide.core.protocol.body_compression import body_too_large
from rowtide.core.values.errors import Rejected, StoreError, Unavailable, invalid
from rowtide.stream.http.head_form import HeadForm
from rowtide.stream.http.learned_heads import KnownHead, KnownSender, LearnedHeads
from rowtide.stream.http.limits import HttpLimits
from rowtide.stream.http.pages import Page
from rowtide.stream.http.tally import Operation

__all__ = ["BodyBudget", "Request", "RequestReader"]


class BodyBudget:
    """Bytes of request bodies in memory at one time, over all connections."""

    __slots__ = ("_bytes_max", "held")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self.held = 0

    def take(self, size: int) -> None:
        """Count ``size`` more bytes. Raises ``Unavailable`` beyond the limit."""
        if self.held + size > self._bytes_max:
            raise Unavailable("Server is busy.", code="OTSServerBusy")
        self.held += size

    def give_back(self, size: int) -> None:
        """Count ``size`` bytes as freed."""
        self.held -= size


class Request:
    """One request, as far as it has arrived.

    A request with a ``failure`` is rejected. ``last`` means that its connection closes
    after the answer. The function that judges it sets ``request_id``, ``identity`` and
    either ``operation`` or ``page``. The function that starts its answer sets ``content``
    (the body, checked and inflated) and ``begun_s``. A request with a ``known`` head has a
    right signature and body, and no header asks for anything special.
    """

    __slots__ = (
        "_headers",
        "begun_s",
        "content",
        "failure",
        "held",
        "identity",
        "known",
        "last",
        "method",
        "operation",
        "page",
        "path",
        "pieces",
        "query",
        "received",
        "request_id",
    )

    def __init__(self) -> None:
        self.known: KnownHead | None = None
        self._headers: dict[bytes, bytes] | None = {}
        self.request_id = b""
        self.method = b""
        self.path = b""  # Without the query.
        self.query = b""  # The part after the question mark; no SDK sends one.
        self.pieces: list[bytes] = []
        self.received = 0  # Bytes of the body, kept or dropped.
        self.held = 0  # Bytes of the body that count in the budget.
        self.failure: StoreError | None = None
        self.last = False
        self.operation: Operation | None = None
        self.page: Page | None = None
        self.identity: Identity | None = None
        self.content = b""
        self.begun_s = 0.0

    @property
    def headers(self) -> dict[bytes, bytes]:
        """Headers by name in lower case."""
        if self._headers is None:
            assert self.known is not None, "a request without a head"
            self._headers = self.known.read_headers()
        return self._headers

    @headers.setter
    def headers(self, headers: dict[bytes, bytes]) -> None:
        self._headers = headers

    def take_known(self, known: KnownHead, path: bytes) -> None:
        """Take a head that a kernel has accepted."""
        self.known, self._headers = known, None
        self.method, self.path = b"POST", path

    def drop_known(self) -> None:
        """Treat the request like one of an unknown sender."""
        self._headers, self.known = self.headers, None

    def body(self) -> bytes:
        """Return the whole body."""
        return self.pieces[0] if len(self.pieces) == 1 else b"".join(self.pieces)


class RequestReader:
    """Turns fed bytes into ``complete`` requests, in order.

    A request that arrives whole, with a head like the previous one, bypasses the parser.
    ``judge`` is called once per request, with its headers complete; it rejects a request
    by setting its ``failure``. If ``learned`` learns senders, a kernel reads the requests of
    a sender that was authenticated; they have a ``known`` head. The methods named ``on_``
    are the parser's callbacks.
    """

    __slots__ = (
        "_budget",
        "_fatal",
        "_head_bytes",
        "_headers",
        "_in_body",
        "_judge",
        "_learned",
        "_limits",
        "_parser",
        "_progress",
        "_stalled_bytes",
        "_target",
        "arriving",
        "complete",
        "continue_due",
        "stopped",
    )

    def __init__(
        self,
        judge: Callable[[Request], None],
        limits: HttpLimits,
        budget: BodyBudget,
        learned: LearnedHeads | None = None,
    ) -> None:
        self._judge = judge
        self._learned = learned or LearnedHeads(limits)
        self._target = b""
        self._limits = limits
        self._budget = budget
        self._in_body = False
        self._head_bytes = 0
        self._headers = 0
        self._parser = httptools.HttpRequestParser(self)
        self._fatal: StoreError | None = None
        self._progress = False
        self._stalled_bytes = 0
        self.complete: deque[Request] = deque()
        self.arriving: Request | None = None
        self.continue_due = False  # The client waits for "100 Continue" before it sends the body.
        self.stopped = False  # After a fatal request: all other bytes are dropped.

    def feed(self, piece: bytes | memoryview) -> None:
        """Parse the bytes that arrived. Never raises for bytes that a client sent."""
        if self.stopped:
            return
        if self.arriving is not None or type(piece) is not bytes:
            return self._parse(piece)
        learned = self._learned
        if learned.sender is not None and self._take_signed(learned.sender, piece):
            return None
        if learned.form is not None and self._take_formed(learned.form, piece):
            return None
        before = len(self.complete)
        self._parse(piece)
        if len(self.complete) == before + 1 and self.arriving is None:
            request = self.complete[-1]
            if request.failure is None and request.identity is not None and not request.last:
                learned.learn(piece)
        return None

    def _take_signed(self, sender: KnownSender, piece: bytes) -> bool:
        """Take a whole request that a kernel accepts; else change nothing."""
        found = self._learned.read(sender, piece)
        if found is None:
            return False
        path, head, body = found
        request = Request()
        request.take_known(KnownHead(sender, head), path)
        request.received = len(body)
        self._stalled_bytes = 0
        self._judge(request)
        if request.known is None:
            self._learned.sender = None  # Its key has changed: it is learned anew.
        if body and request.failure is None:
            self._keep(request, body)
        self.complete.append(request)
        return True

    def _take_formed(self, form: HeadForm, piece: bytes) -> bool:
        """Take a request that arrived whole, if its head has the form; else change nothing."""
        limits = self._limits
        head = form.pattern.match(piece)
        if head is None or head.end() > limits.head_bytes_max:
            return False
        path, *values = head.groups()
        length = int(head[form.length_group])
        if len(piece) != head.end() + length or length > limits.body_bytes_max:
            return False
        request = Request()
        request.method = b"POST"
        request.path = path
        request.headers = dict(zip(form.names, values, strict=True))
        request.received = length
        self._stalled_bytes = 0
        self._judge(request)
        if length and request.failure is None:
            self._keep(request, piece[head.end() :])
        self.complete.append(request)
        if request.failure is None and request.identity is not None and not request.last:
            self._learned.learn_sender(piece, request.identity)
        return True

    def _parse(self, piece: bytes | memoryview) -> None:
        self._progress = False
        try:
            self._parser.feed_data(piece)
        except httptools.HttpParserCallbackError:
            if self._fatal is None:
                raise  # Our own error: the event loop reports it and cuts the connection.
            self.stop(self._fatal)
            return
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self.stop(self._fatal or invalid("Malformed HTTP request."))
            return
        # The parser keeps an unfinished header (or trailer) until it ends. So bytes that
        # finish nothing are counted here.
        self._stalled_bytes = 0 if self._progress else self._stalled_bytes + len(piece)
        if self._stalled_bytes > self._limits.head_bytes_max:
            self.stop(self._head_too_large())

    def stop(self, failure: StoreError) -> None:
        """Make the arriving request, or an empty one, the last one: rejected with ``failure``."""
        request = self.arriving or Request()
        self.arriving = None
        self.stopped = True
        self.continue_due = False
        self.release(request)
        request.failure, request.last = failure, True
        self.complete.append(request)

    def release(self, request: Request) -> None:
        """Drop a request's body and give its bytes back to the budget."""
        self._budget.give_back(request.held)
        request.held = 0
        request.content = b""
        request.pieces.clear()

    def on_message_begin(self) -> None:
        self.arriving = Request()
        self._target = b""
        self._in_body = False
        self._head_bytes = self._headers = 0

    def on_url(self, piece: bytes) -> None:
        assert self.arriving is not None, "a URL outside a message"
        self._target += piece

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_body:
            return  # A trailer: never signed, never used.
        assert self.arriving is not None, "a header outside a message"
        self._head_bytes += len(name) + len(value)
        self._headers += 1
        self.arriving.headers[name.lower()] = value.strip()

    def on_headers_complete(self) -> None:
        request = self.arriving
        assert request is not None, "headers outside a message"
        self._progress = self._in_body = True
        limits = self._limits
        request.method = self._parser.get_method()
        request.path, _, request.query = self._target.partition(b"?")
        request.last = not self._parser.should_keep_alive()
        if request.last:  # The bytes after it are malformed, which the parser detects.
            self._learned.forget()
        head_bytes = self._head_bytes + len(self._target)
        if head_bytes > limits.head_bytes_max or self._headers > limits.headers_max:
            self._stop_parser(self._head_too_large())
        if self._parser.should_upgrade():
            self._stop_parser(invalid("Malformed HTTP request."))
        # The parser has checked that the length is a number.
        length = int(request.headers.get(b"content-length", b"0"))
        if length > limits.body_bytes_max:
            self._stop_parser(body_too_large())
        self._judge(request)
        if length or b"transfer-encoding" in request.headers:
            self._note_expectation(request)

    def on_chunk_header(self) -> None:
        self._progress = True

    def on_body(self, piece: bytes) -> None:
        request = self.arriving
        assert request is not None, "a body outside a message"
        self._progress = True
        self.continue_due = False
        request.received += len(piece)
        if request.received > self._limits.body_bytes_max:
            self._stop_parser(body_too_large())
        if request.failure is None:
            self._keep(request, piece)

    def on_message_complete(self) -> None:
        request = self.arriving
        assert request is not None, "an end outside a message"
        self._progress = True
        self.continue_due = False
        self.arriving = None
        self.complete.append(request)

    def _keep(self, request: Request, piece: bytes) -> None:
        try:
            self._budget.take(len(piece))
        except StoreError as failure:
            self.release(request)
            request.failure = failure
        else:
            request.held += len(piece)
            request.pieces.append(piece)

    def _note_expectation(self, request: Request) -> None:
        if request.headers.get(b"expect", b"").lower() != b"100-continue":
            return
        if request.failure is not None:
            # The client may or may not send the body now, so the next request's start is
            # unknown.
            self._stop_parser(request.failure)
        self.continue_due = True

    def _stop_parser(self, failure: StoreError) -> NoReturn:
        self._fatal = failure
        raise failure

    def _head_too_large(self) -> Rejected:
        limits = self._limits
        return invalid(
            f"The request's headers exceed the limit: {limits.headers_max} headers, "
            f"{limits.head_bytes_max} bytes."
        )
