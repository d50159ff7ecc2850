"""Connections: order, bounds, time-outs, and the odd corners of HTTP/1.1 that clients use."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import pytest
import uvloop

from rowtide.stream.http.limits import HttpLimits
from rowtide.stream.http.pages import PageAnswer
from tests.support.waiting import SOON_S, until_async

if TYPE_CHECKING:
    from tests.stream.http.conftest import Client, Running

RequestBytes = Callable[..., bytes]

CHUNKED = "Transfer-Encoding: chunked\r\n"
TOO_LARGE = "413 OTSRequestBodyTooLarge The size of POST data is too large."
MALFORMED = "400 OTSParameterInvalid Malformed HTTP request."
BUSY = "503 OTSServerBusy Server is busy."


class Gate:
    """A handler whose answers the test lets through one by one."""

    def __init__(self) -> None:
        self.waiting: asyncio.Queue[asyncio.Future[bytes]] = asyncio.Queue()
        self.started = 0

    def __call__(self, _: object, body: bytes) -> Awaitable[bytes]:
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.started += 1
        self.waiting.put_nowait(future)
        return future

    async def let(self, body: bytes) -> None:
        (await self.waiting.get()).set_result(body)


async def assert_refused_and_closed(client: Client, error: str) -> None:
    answer = await client.answer()
    assert answer.error == error
    assert answer.headers["connection"] == "close"
    client.writer.write_eof()
    assert await client.rest() == b""


# ---- Order ----


async def test_pipelined_requests_are_answered_in_order(
    running: Running, request_bytes: RequestBytes
) -> None:
    bodies = [b"%d" % number for number in range(200)]
    async with running() as live, await live.connect() as client:
        client.send(b"".join(request_bytes(body=body) for body in bodies))
        assert [(await client.answer()).body for _ in bodies] == bodies


async def test_one_request_of_a_connection_is_worked_on_at_a_time(
    running: Running, request_bytes: RequestBytes
) -> None:
    gate = Gate()
    async with running({"Echo": gate}) as live, await live.connect() as client:
        client.send(request_bytes() * 3)
        for number in (1, 2, 3):
            await gate.let(b"%d" % number)
            assert gate.started == number
            assert (await client.answer()).body == b"%d" % number


async def test_a_refused_request_waits_for_the_answers_before_it(
    running: Running, request_bytes: RequestBytes
) -> None:
    gate = Gate()
    async with running({"Echo": gate}) as live, await live.connect() as client:
        client.send(request_bytes() + request_bytes("Unknown") + b"no HTTP at all\r\n\r\n")
        await gate.let(b"first")
        assert (await client.answer()).body == b"first"
        assert (await client.answer()).error.endswith("Unsupported operation: Unknown.")
        await assert_refused_and_closed(client, MALFORMED)


async def test_reading_pauses_while_many_requests_wait(
    running: Running, request_bytes: RequestBytes
) -> None:
    """What a client can make us hold is bounded; the rest stays in its own socket."""
    gate, count = Gate(), 40
    limits = HttpLimits(pipeline_max=2, body_bytes_max=100_000, bodies_bytes_max=500_000)
    async with running({"Echo": gate}, limits=limits) as live, await live.connect() as client:
        for _ in range(count):
            client.send(request_bytes(body=b"x" * 100_000))
        for number in range(count):
            await gate.let(b"%d" % number)
            assert (await client.answer()).body == b"%d" % number
            assert live.edge.budget.held <= 500_000
            (connection,) = live.edge._connections
            assert len(connection._unparsed) <= 256 * 1024  # What asyncio reads at once.


async def test_nothing_is_answered_while_the_client_does_not_read(
    running: Running, request_bytes: RequestBytes
) -> None:
    started = 0
    all_sent = 50

    def large(_: object, body: bytes) -> bytes:
        nonlocal started
        started += 1
        return b"x" * 1_000_000

    async with running({"Large": large}) as live:
        with socket.create_connection(("127.0.0.1", live.port)) as raw:
            raw.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(raw, request_bytes("Large") * all_sent)
            assert await loop.sock_recv(raw, 10)
            async with await live.connect() as other:  # By then the first has long been parsed.
                other.send(request_bytes("Large"))
                await other.answer()
            assert started < all_sent / 2


# ---- Bodies ----


async def test_chunked_bodies_are_accepted(running: Running, request_bytes: RequestBytes) -> None:
    async with running() as live:
        head = request_bytes(body=b"content", extra=CHUNKED).removesuffix(b"content")
        answer = await live.ask(head + b"3;ext=1\r\ncon\r\n4\r\ntent\r\n0\r\n\r\n")
    assert answer.body == b"content"


async def test_trailers_are_not_headers(running: Running, request_bytes: RequestBytes) -> None:
    async with running() as live, await live.connect() as client:
        head = request_bytes(body=b"a", extra=CHUNKED).removesuffix(b"a")
        client.send(head + b"1\r\na\r\n0\r\nx-ots-date: never\r\n\r\n")
        assert (await client.answer()).body == b"a"
        client.send(request_bytes(body=b"b"))
        assert (await client.answer()).body == b"b"


async def test_a_length_over_the_bound_is_refused_before_any_of_the_body(
    running: Running, request_bytes: RequestBytes
) -> None:
    limits = HttpLimits(body_bytes_max=1000)
    async with running(limits=limits) as live, await live.connect() as client:
        client.send(request_bytes(extra="Content-Length: 1001\r\n"))
        await assert_refused_and_closed(client, TOO_LARGE)


async def test_a_body_at_the_bound_is_accepted(
    running: Running, request_bytes: RequestBytes
) -> None:
    async with running(limits=HttpLimits(body_bytes_max=1000)) as live:
        answer = await live.ask(request_bytes(body=b"x" * 1000))
    assert answer.status == 200


@pytest.mark.parametrize("operation", ["Echo", "Unknown"], ids=["kept", "dropped"])
async def test_chunks_beyond_the_bound_are_refused(
    operation: str, running: Running, request_bytes: RequestBytes
) -> None:
    limits = HttpLimits(body_bytes_max=1000)
    async with running(limits=limits) as live, await live.connect() as client:
        client.send(request_bytes(operation, extra=CHUNKED) + b"1f4\r\n%b\r\n" % (b"x" * 500) * 3)
        await assert_refused_and_closed(client, TOO_LARGE)


async def test_a_client_that_sends_on_after_a_refusal_still_reads_it(
    running: Running, request_bytes: RequestBytes
) -> None:
    """Closing at once would reset the connection, and the client would never see the answer."""
    limits = HttpLimits(body_bytes_max=1000)
    async with running(limits=limits) as live, await live.connect() as client:
        client.send(request_bytes(body=b"x" * 5_000_000))
        await client.writer.drain()
        await assert_refused_and_closed(client, TOO_LARGE)


async def test_a_refused_bodys_bytes_are_not_held(
    running: Running, request_bytes: RequestBytes
) -> None:
    async with running() as live, await live.connect() as client:
        refused = request_bytes(body=b"x" * 100_000, unsigned={"x-ots-signature": "AAAA"})
        client.send(refused[:-1])
        async with await live.connect() as other:
            other.send(request_bytes())
            await other.answer()
        assert live.edge.budget.held == 0
        client.send(refused[-1:])
        assert (await client.answer()).error == "403 OTSAuthFailed Signature mismatch."


async def test_all_bodies_together_are_bounded(
    running: Running, request_bytes: RequestBytes
) -> None:
    gate = Gate()
    limits = HttpLimits(body_bytes_max=60_000, bodies_bytes_max=100_000)
    large = request_bytes(body=b"x" * 60_000)
    async with running({"Echo": gate}, limits=limits) as live, await live.connect() as client:
        client.send(large)
        first = await gate.waiting.get()
        assert (await live.ask(large)).error == BUSY
        first.set_result(b"done")
        assert (await client.answer()).body == b"done"
        assert live.edge.budget.held == 0


# ---- Expectations ----


async def test_a_client_that_asks_is_told_to_send_its_body(
    running: Running, request_bytes: RequestBytes
) -> None:
    whole = request_bytes(body=b"content", extra="Expect: 100-continue\r\n")
    async with running() as live, await live.connect() as client:
        client.send(whole.removesuffix(b"content"))
        assert await client.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.send(b"content")
        assert (await client.answer()).body == b"content"


async def test_the_go_ahead_waits_for_the_answers_before_it(
    running: Running, request_bytes: RequestBytes
) -> None:
    gate = Gate()
    asking = request_bytes(body=b"content", extra="Expect: 100-continue\r\n")
    async with running({"Echo": gate}) as live, await live.connect() as client:
        client.send(request_bytes() + asking.removesuffix(b"content"))
        await gate.let(b"first")
        assert (await client.answer()).body == b"first"
        assert await client.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.send(b"content")
        await gate.let(b"second")
        assert (await client.answer()).body == b"second"


async def test_a_refused_client_is_told_so_instead(
    running: Running, request_bytes: RequestBytes
) -> None:
    extra = "Expect: 100-continue\r\nContent-Length: 7\r\n"
    async with running() as live, await live.connect() as client:
        client.send(request_bytes(extra=extra, unsigned={"x-ots-signature": "AAAA"}))
        await assert_refused_and_closed(client, "403 OTSAuthFailed Signature mismatch.")


# ---- What is not HTTP, or too much of it ----

TWO_LENGTHS = b"POST /Echo HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab"
SMUGGLED = (
    b"POST /Echo HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
)


@pytest.mark.parametrize(
    "content",
    [
        b"\x16\x03\x01\x02\x00\x01\x00",  # A TLS client hello.
        b"GARBAGE\r\n\r\n",
        b"POST /Echo HTTP/9.9\r\n\r\n",
        b"POST /Echo HTTP/1.1\r\nno colon\r\n\r\n",
        b"POST /Echo HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST /Echo HTTP/1.1\r\nContent-Length: 99999999999999999999999\r\n\r\n",
        b"POST /Echo HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        b"CONNECT example.org:80 HTTP/1.1\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"POST /Echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        TWO_LENGTHS,
        SMUGGLED,
    ],
)
async def test_malformed_http_is_refused_and_closed(content: bytes, running: Running) -> None:
    async with running() as live, await live.connect() as client:
        client.send(content)
        await assert_refused_and_closed(client, MALFORMED)


HEAD_LIMIT = (
    "400 OTSParameterInvalid The request's headers exceed the limit: 10 headers, 2000 bytes."
)
ENDLESS = [
    (b"POST /", b"a"),
    (b"POST /Echo HTTP/1.1\r\n", b"a"),
    (b"POST /Echo HTTP/1.1\r\nname:", b"a"),
    (b"POST /Echo HTTP/1.1\r\n", b"name: value\r\n"),
    (b"POST /Echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", b"name: value\r\n"),
    (b"POST /Echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1;", b"a"),
]


@pytest.mark.parametrize(("start", "more"), ENDLESS)
async def test_what_never_ends_is_cut_off(start: bytes, more: bytes, running: Running) -> None:
    limits = HttpLimits(head_bytes_max=2000, headers_max=10)
    async with running(limits=limits) as live, await live.connect() as client:
        client.send(start + more * 100_000)
        await assert_refused_and_closed(client, HEAD_LIMIT)


async def test_too_many_or_too_long_headers_are_refused(
    running: Running, request_bytes: RequestBytes
) -> None:
    limits = HttpLimits(head_bytes_max=2000, headers_max=10)
    many = "".join(f"name-{number}: value\r\n" for number in range(11))
    async with running(limits=limits) as live:
        for extra in (many, f"name: {'x' * 2000}\r\n"):
            assert (await live.ask(request_bytes(extra=extra))).error == HEAD_LIMIT
        assert (await live.ask(request_bytes(extra="one: more\r\n"))).status == 200


# ---- Ends ----


async def test_a_client_may_ask_to_close(running: Running, request_bytes: RequestBytes) -> None:
    async with running() as live, await live.connect() as client:
        client.send(request_bytes(body=b"last", extra="Connection: close\r\n"))
        answer = await client.answer()
        assert (answer.body, answer.headers["connection"]) == (b"last", "close")
        assert await client.rest() == b""


async def test_a_client_that_sends_on_after_its_last_request_still_reads_the_answer(
    running: Running,
) -> None:
    async with running() as live, await live.connect() as client:
        client.send(b"GET / HTTP/1.0\r\n\r\n")
        head = await client.reader.readuntil(b"\r\n\r\n")
        for _ in range(5):  # Each would meet a reset if the server had closed at once.
            client.send(b"\r\n\0")
            await client.writer.drain()
            async with await live.connect() as other:
                other.send(b"GET / HTTP/1.1\r\n\r\n")
                await other.answer()
        client.writer.write_eof()
        size = int(head.partition(b"Content-Length:")[2].partition(b"\r\n")[0])
        assert len(await client.rest()) == size


async def test_a_client_that_has_sent_all_is_still_answered(
    running: Running, request_bytes: RequestBytes
) -> None:
    gate = Gate()
    async with running({"Echo": gate}) as live, await live.connect() as client:
        client.send(request_bytes() * 2)
        client.writer.write_eof()
        await gate.let(b"first")
        await gate.let(b"second")
        assert [(await client.answer()).body for _ in range(2)] == [b"first", b"second"]
        assert await client.rest() == b""


async def test_a_truncated_body_is_refused(running: Running, request_bytes: RequestBytes) -> None:
    async with running() as live, await live.connect() as client:
        client.send(request_bytes(body=b"content")[:-1])
        client.writer.write_eof()
        answer = await client.answer()
        assert answer.error.endswith("The request ended before its body was complete.")
        assert await client.rest() == b""


async def test_a_client_that_goes_away_leaves_its_request_running(
    running: Running, request_bytes: RequestBytes
) -> None:
    gate = Gate()
    async with running({"Echo": gate}) as live:
        async with await live.connect() as client:
            client.send(request_bytes(body=b"written"))
            future = await gate.waiting.get()
        async with await live.connect() as other:
            other.send(request_bytes("Unknown"))
            await other.answer()
        assert not future.cancelled()
        future.set_result(b"for nobody")


# ---- Time ----

SHORT = HttpLimits(receive_timeout_s=0.1, idle_timeout_s=0.1, linger_s=0.1)
LATE = HttpLimits(receive_timeout_s=0.5, idle_timeout_s=0.5, linger_s=0.5)


@pytest.mark.parametrize("kept", [1, 20, -1], ids=["a byte", "a line", "all but a byte"])
async def test_a_slow_request_times_out(
    kept: int, running: Running, request_bytes: RequestBytes
) -> None:
    async with running(limits=SHORT) as live, await live.connect() as client:
        client.send(request_bytes(body=b"content")[:kept])
        await assert_refused_and_closed(client, "408 OTSRequestTimeout Request timeout.")


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize("before", [0, 20], ids=["idle", "half a request"])
def test_a_request_that_arrives_while_the_loop_stands_is_answered(
    loop: Callable[[], asyncio.AbstractEventLoop],
    before: int,
    running: Running,
    request_bytes: RequestBytes,
) -> None:
    request = request_bytes(body=b"content")

    def stand(_: object, body: bytes) -> bytes:
        """Hold the loop for longer than every time-out; the rest of the request arrives then."""
        time.sleep(1.5 * LATE.idle_timeout_s)
        assert os.write(int(body), request[before:]) == len(request) - before
        return b""

    async def arrive_late() -> None:
        handlers = {"Echo": lambda _, body: body, "Stand": stand}
        async with (
            running(handlers, limits=LATE) as live,
            await live.connect() as client,
            await live.connect() as other,
        ):
            client.send(request[:before])
            edge = live.edge
            await until_async(
                lambda: edge.tally.bytes_in == before and edge.connections == 2, poll_s=0.001
            )
            number = client.writer.get_extra_info("socket").fileno()
            other.send(request_bytes("Stand", body=str(number).encode()))
            assert (await client.answer()).body == b"content"

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(arrive_late())


async def test_an_idle_connection_is_closed_without_a_word(
    running: Running, request_bytes: RequestBytes
) -> None:
    async with (
        running(limits=SHORT) as live,
        await live.connect() as never,
        await live.connect() as once,
    ):
        once.send(request_bytes())
        assert (await once.answer()).status == 200
        assert await once.rest() == b""
        assert await never.rest() == b""


async def test_a_handler_may_take_longer_than_any_time_out(
    running: Running, request_bytes: RequestBytes
) -> None:
    gate = Gate()
    async with (
        running({"Echo": gate}, limits=SHORT) as live,
        await live.connect() as client,
        await live.connect() as witness,
    ):
        client.send(request_bytes())
        future = await gate.waiting.get()
        assert await witness.rest() == b""  # The time-out of the idle has passed.
        future.set_result(b"late")
        assert (await client.answer()).body == b"late"


async def test_a_client_that_lingers_after_a_refusal_is_cut_off(running: Running) -> None:
    async with running(limits=SHORT) as live, await live.connect() as client:
        client.send(b"GARBAGE\r\n\r\n")
        assert (await client.answer()).error == MALFORMED
        async with asyncio.timeout(SOON_S):
            await live.edge._unconnected.wait()


# ---- Connections ----


async def test_a_connection_beyond_the_limit_is_told_so(
    running: Running, request_bytes: RequestBytes
) -> None:
    limits = HttpLimits(connections_max=1)
    async with running(limits=limits) as live, await live.connect() as first:
        first.send(request_bytes())
        assert (await first.answer()).status == 200
        async with await live.connect() as second:
            second.send(request_bytes())
            await assert_refused_and_closed(second, BUSY)


async def test_a_connection_beyond_the_limit_that_asks_nothing_is_told_so_soon(
    running: Running, request_bytes: RequestBytes
) -> None:
    limits = HttpLimits(connections_max=1, linger_s=0.1)
    async with running(limits=limits) as live, await live.connect() as first:
        first.send(request_bytes())
        assert (await first.answer()).status == 200
        async with await live.connect() as second:
            await assert_refused_and_closed(second, BUSY)


async def test_a_full_server_answers_probes_and_nothing_behind_them(
    running: Running, request_bytes: RequestBytes
) -> None:
    """A probe that gets no answer would have the server killed, and its clients sent to
    the next one.
    """

    async def alive() -> PageAnswer:
        return PageAnswer(200, b"text/plain", b"ok\n")

    async with running(limits=HttpLimits(connections_max=1)) as live:
        live.edge.pages[b"/healthz"] = alive
        async with await live.connect() as first:
            first.send(request_bytes())
            assert (await first.answer()).status == 200
            async with await live.connect() as probe:
                probe.send(b"GET /healthz HTTP/1.1\r\nhost: here\r\n\r\n" + request_bytes())
                reply = await probe.answer()
                assert (reply.status, reply.body) == (200, b"ok\n")
                assert reply.headers["connection"] == "close"
                probe.writer.write_eof()
                assert await probe.rest() == b""
            first.send(request_bytes())
            assert (await first.answer()).status == 200


async def test_answers_leave_without_delay(running: Running, request_bytes: RequestBytes) -> None:
    async with running() as live, await live.connect() as client:
        client.send(request_bytes())
        await client.answer()
        (connection,) = live.edge._connections
        assert connection._transport is not None
        connected = connection._transport.get_extra_info("socket")
        assert connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_limits_that_cannot_work_are_refused() -> None:
    with pytest.raises(ValueError, match="pipeline_max must be positive: 0"):
        HttpLimits(pipeline_max=0)
    with pytest.raises(ValueError, match="bodies_bytes_max must not be below body_bytes_max"):
        HttpLimits(bodies_bytes_max=1)
