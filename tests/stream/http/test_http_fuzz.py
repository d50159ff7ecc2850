"""Whatever arrives: an answer or a closed connection, never a fault, a hang or a leak."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from rowtide.core.values.errors import StoreError
from rowtide.stream.http.limits import HttpLimits
from rowtide.stream.http.request import BodyBudget, Request, RequestReader
from tests.support.searches import examples

if TYPE_CHECKING:
    from tests.stream.http.conftest import Running

RequestBytes = Callable[..., bytes]

LIMITS = HttpLimits(
    head_bytes_max=4096,
    body_bytes_max=10_000,
    bodies_bytes_max=20_000,
    pipeline_max=2,
    receive_timeout_s=2,
    linger_s=30,  # The client ends every conversation itself, however slow the machine is.
)
STATUSES = {200, 400, 403, 405, 408, 413}
FRAGMENTS = [
    b"POST /Echo HTTP/1.1\r\n",
    b"GET / HTTP/1.0\r\n",
    b"Content-Length: 5\r\n",
    b"Content-Length: 999999\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Expect: 100-continue\r\n",
    b"Connection: close\r\n",
    b"Upgrade: h2c\r\nConnection: Upgrade\r\n",
    b"x-ots-date: 2026-01-02T03:04:05.678Z\r\n",
    b"x-ots-accesskeyid: testid\r\n",
    b"\r\n",
    b"5\r\nhello\r\n",
    b"0\r\n\r\n",
    b"ffffffffffffffff\r\n",
    b"\0",
]
pieces = st.lists(st.one_of(st.binary(max_size=40), st.sampled_from(FRAGMENTS)), max_size=20)

# The fixtures are functions without state, so sharing them between examples is sound.
live_examples = settings(
    max_examples=examples(75, 150), suppress_health_check=[HealthCheck.function_scoped_fixture]
)


async def conversation(running: Running, sent: list[bytes]) -> None:
    """Send everything, then the end; whatever comes back must be whole answers, then the end."""
    async with running(limits=LIMITS) as live, await live.connect() as client:
        for piece in sent:
            client.send(piece)
            await client.writer.drain()
            await asyncio.sleep(0)  # Lets the server see the pieces one by one.
        client.writer.write_eof()
        assert_whole_answers(await client.rest(), heads=b"HEAD " in b"".join(sent))
        assert live.edge.budget.held == 0


def assert_whole_answers(received: bytes, *, heads: bool) -> None:
    """With ``heads`` some of the requests may be of HEAD, whose answers have no body."""
    while received:
        head, _, received = received.partition(b"\r\n\r\n")
        status = int(head.split()[1])
        if status == 100:
            continue
        assert status in STATUSES, head
        size = re.search(rb"Content-Length:(\d+)", head)
        assert size is not None
        if heads and (not received or received.startswith(b"HTTP/1.1 ")):
            continue
        assert len(received) >= int(size[1])
        received = received[int(size[1]) :]


@live_examples
@given(sent=pieces)
@example(sent=[b"GET /\n", b"\r\n", b"\0"])  # HTTP/0.9, which ends the connection, and more.
@example(sent=[b"POST /Echo HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n"])
def test_any_bytes_are_answered_or_the_connection_closed(
    sent: list[bytes], running: Running
) -> None:
    asyncio.run(conversation(running, sent))


@live_examples
@given(
    position=st.floats(0, 1, exclude_max=True),
    removed=st.integers(0, 8),
    inserted=st.binary(max_size=8),
    cut=st.floats(0, 1),
)
@example(position=0.0, removed=4, inserted=b"HEAD", cut=0.0)
def test_a_damaged_request_does_no_harm(
    position: float,
    removed: int,
    inserted: bytes,
    cut: float,
    running: Running,
    request_bytes: RequestBytes,
) -> None:
    whole = request_bytes(body=b"content" * 20)
    at = int(position * len(whole))
    damaged = whole[:at] + inserted + whole[at + removed :] + request_bytes(body=b"next")
    split = int(cut * len(damaged))
    asyncio.run(conversation(running, [damaged[:split], damaged[split:]]))


def accept(request: Request) -> None:
    """Judge nothing."""


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cuts=st.lists(st.integers(0, 2000), max_size=12))
def test_requests_are_the_same_however_they_are_cut(
    cuts: list[int], request_bytes: RequestBytes
) -> None:
    chunked = request_bytes(body=b"ab", extra="Transfer-Encoding: chunked\r\n")
    content = b"".join(
        [
            request_bytes(body=b"first" * 50),
            chunked.removesuffix(b"ab") + b"1\r\na\r\n1\r\nb\r\n0\r\ntrailer: t\r\n\r\n",
            request_bytes("Other"),
        ]
    )
    reader = RequestReader(accept, HttpLimits(), BodyBudget(1 << 20))
    borders = sorted({0, len(content), *(cut % len(content) for cut in cuts)})
    for start, end in pairwise(borders):
        reader.feed(content[start:end])
    assert [(request.path, request.body()) for request in reader.complete] == [
        (b"/Echo", b"first" * 50),
        (b"/Echo", b"ab"),
        (b"/Other", b""),
    ]
    assert all(request.failure is None for request in reader.complete)
    assert b"trailer" not in reader.complete[1].headers
    assert len(reader.complete[0].headers) == 8


@given(fed=st.lists(st.binary(max_size=3000), max_size=40))
def test_a_reader_holds_no_more_than_its_bounds(fed: list[bytes]) -> None:
    budget = BodyBudget(LIMITS.bodies_bytes_max)
    reader = RequestReader(accept, LIMITS, budget)
    reader.feed(b"POST /Echo HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n")
    for piece in fed:
        reader.feed(b"%x\r\n%b\r\n" % (len(piece), piece) if piece else b"")
        assert budget.held <= LIMITS.body_bytes_max
    for request in reader.complete:
        reader.release(request)
    if reader.arriving is not None:
        reader.release(reader.arriving)
    assert budget.held == 0


def test_a_fault_in_our_own_callback_is_not_taken_for_the_clients() -> None:
    def fail(request: Request) -> None:
        raise ZeroDivisionError

    reader = RequestReader(fail, LIMITS, BodyBudget(100))
    with pytest.raises(Exception, match="callback") as caught:
        reader.feed(b"POST /Echo HTTP/1.1\r\n\r\n")
    assert not isinstance(caught.value, StoreError)
