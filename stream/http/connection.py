"""One client's connection: requests in, answers out, in order and one at a time.

While a request is being answered, the next ones are read ahead, up to ``pipeline_max``.
Then reading pauses, and the client cannot send more. No request is answered while the
client does not read what was written. A result of type bytes is answered in the same
call, without a task. A Future is answered from its callback. Any other awaitable runs as
a task in the edge's group. Answers are sent at the end of the event loop's turn, because
a client that wakes on the first one takes the processor from the rest.

A handler is never cancelled because its client has disconnected: a write may already be
in the log.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Coroutine
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, cast

from rowtide.core.protocol.body_compression import DEFLATE
from rowtide.core.values.errors import (
    STATUS,
    OutcomeUnknown,
    Rejected,
    StoreError,
    Unavailable,
    invalid,
)
from rowtide.stream.http.answer import CONTINUE, error_body
from rowtide.stream.http.learned_heads import MAX_STALENESS, LearnedHeads
from rowtide.stream.http.pages import Page, PageAnswer, page_bytes, wants_introduction
from rowtide.stream.http.request import Request, RequestReader
from rowtide.stream.http.tally import FAULT, OK, UNKNOWN, UnknownWithin, outcome_of

if TYPE_CHECKING:
    from rowtide.stream.http.edge import Edge

__all__ = ["Connection"]

SLICE_BYTES = 32 * 1024
"""Bytes that are parsed at once. Bounds the tiny requests that one read can put into the queue."""

OPERATION_SHOWN_MAX = 128
"""Characters of an unknown operation that are repeated in the error."""

UNSENT_BYTES_MAX = 2 * 1024
"""Bytes of a connection's answers that may wait for the end of the event loop's turn.
More are sent at once. A large answer took long to make, so its client does not wait for
the requests of others. The transport limits a client that does not read.
"""

NOTHING = memoryview(b"")


class Connection(asyncio.Protocol):
    """The server's side of one connection."""

    __slots__ = (
        "_answering",
        "_closing_since",
        "_edge",
        "_ended",
        "_idle_since",
        "_paused",
        "_reader",
        "_receiving",
        "_receiving_since",
        "_stalled_since",
        "_surplus",
        "_transport",
        "_unparsed",
        "_unsent",
        "_unsent_bytes",
    )

    def __init__(self, edge: Edge) -> None:
        self._edge = edge
        learned = LearnedHeads(edge.limits, edge.authenticator, edge.clock)
        self._reader = RequestReader(self._judge, edge.limits, edge.budget, learned)
        self._transport: asyncio.Transport | None = None
        self._answering: Request | None = None
        self._unparsed = NOTHING
        self._unsent: list[bytes] = []
        self._unsent_bytes = 0
        self._paused = False
        self._ended = False  # The client will send nothing more.
        self._surplus = False  # Beyond the limit: gets an error, unless it requests a page.
        self._receiving: Request | None = None  # The request that _receiving_since times.
        # Loop times in seconds; None: not in that state.
        self._idle_since = edge.now()
        self._receiving_since = 0.0
        self._stalled_since: float | None = None
        self._closing_since: float | None = None

    # ---- What the transport calls ----

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        connected = transport.get_extra_info("socket")
        if connected is not None:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._surplus = not self._edge.admit(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        reader = self._reader
        reader.stopped = True
        for request in (*reader.complete, reader.arriving):
            if request is not None:
                reader.release(request)
        reader.complete.clear()
        reader.arriving = None
        self._unparsed = NOTHING
        self._unsent.clear()
        self._edge.forget(self)

    def data_received(self, data: bytes) -> None:
        if self._reader.stopped:
            return  # Lingering: the client still sends what no one reads.
        self._edge.tally.bytes_in += len(data)
        if not self._unparsed and len(data) <= SLICE_BYTES:
            self._reader.feed(data)
        else:
            joined = b"".join((self._unparsed, data)) if self._unparsed else data
            self._unparsed = memoryview(joined)
        self._pump()

    def eof_received(self) -> bool:
        """Finish the requests that have arrived: the client sends no more, but may still read."""
        self._ended = True
        self._pump()
        # True keeps the writing side open: _pump closes it once every request is
        # answered.
        return self._closing_since is None

    def pause_writing(self) -> None:
        self._stalled_since = self._edge.now()

    def resume_writing(self) -> None:
        self._stalled_since = None
        self._pump()

    # ---- What the edge calls ----

    def expire(self, now_s: float) -> None:
        """Close the connection or fail its request if a time limit has passed."""
        limits, transport = self._edge.limits, self._transport
        if transport is None:
            return
        if self._closing_since is not None:
            # A client that has not read its answer gets longer than one that only stays
            # connected.
            taken = transport.get_write_buffer_size() == 0
            patience_s = limits.linger_s if taken else limits.receive_timeout_s
            if now_s - self._closing_since > patience_s:
                transport.abort()
        elif self._stalled_since is not None:
            if now_s - self._stalled_since > limits.receive_timeout_s:
                transport.abort()
        elif self._paused or self._answering is not None:
            pass  # The client waits for us.
        elif self._receiving is not None:
            if now_s - self._receiving_since > limits.receive_timeout_s:
                self._reader.stop(Rejected("OTSRequestTimeout", "Request timeout."))
                self._pump()
        elif self._surplus and now_s - self._idle_since > limits.linger_s:
            self._reader.stop(_busy())
            self._pump()
        elif now_s - self._idle_since > limits.idle_timeout_s:
            self._close(linger=False)

    def wind_down(self) -> None:
        """Close now if idle; otherwise `_pump` closes after the answer to the last request."""
        self._pump()

    def send(self) -> None:
        """Write all waiting answers to the transport in one call."""
        unsent = self._unsent
        if not unsent or self._transport is None:
            return
        self._unsent, self._unsent_bytes = [], 0
        if len(unsent) == 1:
            self._transport.write(unsent[0])
        else:
            self._transport.writelines(unsent)

    def abort(self) -> None:
        """Cut the connection."""
        if self._transport is not None:
            self._transport.abort()

    # ---- From bytes to answers ----

    def _pump(self) -> None:
        """Answer and parse requests until neither can go on."""
        reader = self._reader
        complete = reader.complete
        while True:
            while complete and self._may_answer():
                self._start(complete.popleft())
            if not self._unparsed or len(complete) >= self._edge.limits.pipeline_max:
                break
            reader.feed(self._unparsed[:SLICE_BYTES])
            # An empty slice would keep the whole read alive on an idle connection.
            self._unparsed = self._unparsed[SLICE_BYTES:] or NOTHING
        if not (
            complete
            or reader.arriving is not None
            or self._receiving is not None
            or self._unparsed
            or self._paused
            or self._ended
            or self._edge.ending
        ):
            return  # The usual case: whole requests, each answered or running.
        transport = self._transport
        if transport is not None and self._closing_since is None and not transport.is_closing():
            self._regulate(transport)

    def _may_answer(self) -> bool:
        return (
            self._answering is None and self._stalled_since is None and self._closing_since is None
        )

    def _regulate(self, transport: asyncio.Transport) -> None:
        """Pause or resume reading, time the arriving request, and close a finished connection."""
        reader = self._reader
        arriving = reader.arriving
        if arriving is not None and self._ended and not self._unparsed:
            reader.stop(invalid("The request ended before its body was complete."))
            return self._pump()
        full = bool(self._unparsed) or len(reader.complete) >= self._edge.limits.pipeline_max
        if full != self._paused and not self._ended:
            self._paused = full
            (transport.pause_reading if full else transport.resume_reading)()
            self._receiving = None  # Our pause does not count against the client.
        if arriving is not self._receiving:
            self._receiving, self._receiving_since = arriving, self._edge.now()
        if self._busy():
            return None
        if reader.continue_due:
            reader.continue_due = False
            self.send()
            transport.write(CONTINUE)
        elif arriving is None and (self._ended or self._edge.ending):
            self._close(linger=False)
        return None

    def _busy(self) -> bool:
        """True if a request that has arrived whole still waits for its answer."""
        return self._answering is not None or bool(self._reader.complete) or bool(self._unparsed)

    def _judge(self, request: Request) -> None:
        """Find what answers a request, by its headers, or set its failure."""
        edge = self._edge
        if request.method in (b"GET", b"HEAD"):
            request.page = edge.pages.get(request.path)
            if wants_introduction(request.path, request.headers):
                request.page = self._visitor_page(request)
        if self._surplus:  # Probes still get an answer: a full server is not a dead one.
            request.last = True
            if request.page is None:
                request.failure = _busy()
                return
        request.request_id = edge.request_ids()
        if request.page is not None:
            return
        try:
            if request.method != b"POST":
                raise Rejected("OTSMethodNotAllowed", "Only POST method for requests is supported.")
            if not edge.admitting:
                raise Unavailable("The server is starting.", code="OTSServerUnavailable")
            request.operation = edge.tally.by_path.get(request.path)
            if request.operation is None:
                raise _make_operation_error(request.path)
            if request.known is not None:
                sender = request.known.sender
                if sender.is_granted(edge.authenticator, request.path):
                    request.identity = sender.identity
                    return
                request.drop_known()
            request.identity = edge.authenticator.check_head(
                request.path, request.headers, now_s=edge.clock(), query=request.query
            )
        except StoreError as failure:
            request.failure = failure
        except Exception as error:  # noqa: BLE001 - The key look-up failed; logged by _report.
            self._report(request, error)
            request.headers.clear()  # Its key cannot be looked up, so its answer is not signed.
            request.failure = _internal()

    def _start(self, request: Request) -> None:
        """Pass a request to its handler; answer it now if the result is ready."""
        request.begun_s = perf_counter()
        if request.failure is not None:
            return self._fail(request, request.failure)
        if request.page is not None:
            return self._begin(request, self._show(request, request.page))
        assert request.operation is not None, "a request that was not judged"
        assert request.identity is not None, "a request that was not judged"
        try:
            request.content = self._body(request)
            operation, identity, content = request.operation, request.identity, request.content
            if request.known or operation.bounded is None or MAX_STALENESS not in request.headers:
                result = operation.handler(identity, content)
            else:
                result = operation.bounded(identity, content, request.headers[MAX_STALENESS])
        except Exception as error:  # noqa: BLE001 - Logged with the request's id in _raised.
            return self._answer_error(request, error)
        if isinstance(result, bytes):
            return self._answer_success(request, result)
        if isinstance(result, asyncio.Future) and result.done():
            return self._outcome(request, result)
        if isinstance(result, asyncio.Future):
            self._answering = request
            self._edge.begin_request()
            result.add_done_callback(partial(self._finish, request))
            return None
        return self._begin(request, self._run(request, result))

    def _begin(self, request: Request, answering: Coroutine[None, None, None]) -> None:
        """Answer a request in a task."""
        self._answering = request
        self._edge.begin_request()
        name = f"request[{request.request_id.decode()}]"
        self._edge.tasks.create_task(answering, name=name)

    def _body(self, request: Request) -> bytes:
        """Return the checked and inflated body; the inflated bytes count as held too."""
        if request.known is not None:
            return request.body()
        edge = self._edge
        body = edge.authenticator.check_body(
            request.headers, request.body(), body_bytes_max=edge.limits.body_bytes_max
        )
        request.pieces.clear()
        if len(body) > request.held:
            edge.budget.take(len(body) - request.held)
            request.held = len(body)
        return body

    async def _run(self, request: Request, awaitable: Awaitable[bytes]) -> None:
        """Answer with the result of an awaitable. Passes no error on to the task group."""
        try:
            body = await awaitable
        except asyncio.CancelledError:
            self._fail(request, OutcomeUnknown())
            raise
        except Exception as error:  # noqa: BLE001 - Logged with the request's id in _raised.
            self._answer_error(request, error)
        else:
            self._answer_success(request, body)
        finally:
            self._edge.end_request()
            self._pump()

    def _visitor_page(self, request: Request) -> Page | None:
        """Return the page of a browser that opened the endpoint."""
        console = self._edge.console
        page = console.redirect(request.headers.get(b"host", b"")) if console else None
        return page or self._edge.introduction

    async def _show(self, request: Request, page: Page) -> None:
        """Answer with a page. Passes no error on to the task group."""
        try:
            answer = await page()
        except Exception as error:  # noqa: BLE001 - Logged with the request's id in _raised.
            self._answer_error(request, error)
        else:
            self._answer_page(request, answer)
        finally:
            self._answering = None
            self._edge.end_request()
            self._pump()

    def _finish(self, request: Request, future: asyncio.Future[bytes]) -> None:
        self._outcome(request, future)
        self._edge.end_request()
        self._pump()

    def _outcome(self, request: Request, future: asyncio.Future[bytes]) -> None:
        if future.cancelled():
            self._fail(request, OutcomeUnknown())
        elif (error := future.exception()) is not None:
            self._answer_error(request, error)
        else:
            self._answer_success(request, future.result())

    # ---- Answers ----

    def _answer_error(self, request: Request, error: BaseException) -> None:
        if isinstance(error, StoreError):
            return self._fail(request, error)
        self._report(request, error)
        return self._fail(request, _internal())

    def _report(self, request: Request, error: BaseException) -> None:
        self._edge.request_log.log_fault(request, error)

    def _answer_success(self, request: Request, body: bytes) -> None:
        if type(body) is bytes:
            self._count(request, OK)
        elif type(body) is UnknownWithin:
            self._count(request, UNKNOWN)
            self._edge.request_log.log_unknown_rows(request)
        else:
            return self._answer_error(
                request, TypeError(f"a handler answered {type(body).__name__}")
            )
        identity = request.identity
        assert identity is not None, "an answer to a request that was not judged"
        deflate = request.known is None and (
            request.headers.get(b"x-ots-response-compress-type", b"").lower() == DEFLATE
        )
        key = (identity.access_key_id, identity.response_key)
        return self._answer(request, 200, body, key=key, deflate=deflate)

    def _fail(self, request: Request, failure: StoreError) -> None:
        status, edge = STATUS.get(failure.code), self._edge
        if status is None:
            edge.request_log.log_fault(request, f"no status for {failure.code}")
            failure, status = _internal(), 500
        outcome = outcome_of(failure)
        self._count(request, outcome)
        edge.tally.count_error(failure.code)
        if status >= 500 and outcome != FAULT:  # A fault was logged when it occurred.
            edge.request_log.log_failure(request, failure)
        key = None
        if failure.code != "OTSAuthFailed":
            key = edge.authenticator.answer_key(request.headers)
        return self._answer(request, status, error_body(failure), key=key)

    def _count(self, request: Request, outcome: int) -> None:
        edge = self._edge
        now_s = perf_counter()
        seconds = now_s - request.begun_s if request.begun_s else 0.0
        operation = request.operation or edge.tally.other
        operation.count_request(outcome, seconds)
        naming, identity = operation.naming, request.identity
        if naming is not None and identity is not None and request.content:
            edge.table_tally.count(
                naming, identity.instance, request.content, seconds, now_s, outcome == OK
            )
        if seconds > edge.request_log.slow_s:
            edge.request_log.log_slow(request, seconds)

    def _answer_page(self, request: Request, answer: PageAnswer) -> None:
        self._reader.release(request)
        if self._transport is None or self._closing_since is not None:
            return  # The client has gone.
        last = request.last or (self._edge.draining and not self._expects_more())
        parts = [page_bytes(answer, last=last)]
        self._write(parts, headers_only=request.method == b"HEAD")
        self._idle_since = self._edge.now()
        if last:
            self._close(linger=True)

    def _answer(
        self,
        request: Request,
        status: int,
        body: bytes,
        *,
        key: tuple[str, bytes] | None,
        deflate: bool = False,
    ) -> None:
        self._answering = None
        self._reader.release(request)
        if self._transport is None or self._closing_since is not None:
            return  # The client has gone.
        edge = self._edge
        last = request.last or (edge.draining and not self._expects_more())
        parts = edge.writer.answer(
            status,
            body,
            request_id=request.request_id or edge.request_ids(),
            path=request.path,
            key=key,
            deflate=deflate,
            last=last,
        )
        self._write(parts, headers_only=request.method == b"HEAD")
        self._idle_since = self._edge.now()
        if last:
            # Even a client that asked to close may still send; a reset would lose its
            # answer.
            self._close(linger=True)

    def _expects_more(self) -> bool:
        reader = self._reader
        return bool(reader.complete or self._unparsed or reader.arriving)

    def _write(self, parts: list[bytes], *, headers_only: bool) -> None:
        """Queue an answer; all answers of an event loop's turn are sent at its end."""
        if headers_only:
            head, blank, _ = b"".join(parts).partition(b"\r\n\r\n")
            parts = [head + blank]
        size = len(parts[0]) if len(parts) == 1 else sum(map(len, parts))
        self._edge.tally.bytes_out += size
        begins = not self._unsent
        self._unsent += parts
        self._unsent_bytes += size
        if self._unsent_bytes > UNSENT_BYTES_MAX:
            self.send()
        elif begins:
            self._edge.send_soon(self)

    def _close(self, *, linger: bool) -> None:
        """Close after the queued answers. ``linger`` lets a client that still sends read
        them first.
        """
        transport = self._transport
        if transport is None:
            return
        self.send()
        self._closing_since = self._edge.now()
        self._reader.stopped = True
        self._unparsed = NOTHING
        for request in self._reader.complete:
            self._reader.release(request)
        self._reader.complete.clear()
        if linger and not self._ended and transport.can_write_eof():
            if self._paused:
                transport.resume_reading()  # To read the client's end of stream, and drop the rest.
            transport.write_eof()
        else:
            transport.close()


def _make_operation_error(path: bytes) -> Rejected:
    operation = path[1 : OPERATION_SHOWN_MAX + 1].decode("utf-8", "replace")
    return invalid(f"Unsupported operation: {operation}.")


def _busy() -> StoreError:
    return Unavailable("Server is busy.", code="OTSServerBusy")


def _internal() -> StoreError:
    return StoreError("OTSInternalServerError", "Internal server error.")
