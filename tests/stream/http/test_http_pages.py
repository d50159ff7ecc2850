"""Pages are for whoever reaches the port: unsigned, there before operations are, and plain."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from rowtide.stream.http.pages import PageAnswer, said

if TYPE_CHECKING:
    from tests.stream.http.conftest import Running

RequestBytes = Callable[..., bytes]
GET = b"GET /page HTTP/1.1\r\nHost: h\r\n\r\n"


async def page() -> PageAnswer:
    """Return a page after a turn of the loop."""
    await asyncio.sleep(0)
    return said(503, {"ready": False})


async def faulty_page() -> PageAnswer:
    """Fail."""
    raise ZeroDivisionError("a fault")


async def test_a_page_needs_no_signature(running: Running) -> None:
    async with running() as live:
        live.edge.pages[b"/page"] = page
        answer = await live.ask(GET)
    assert (answer.status, answer.body) == (503, b'{"ready": false}\n')
    assert answer.headers["content-type"] == "application/json"
    assert not any(name.startswith("x-ots") for name in answer.headers)


async def test_a_page_is_there_before_operations_are(
    running: Running, request_bytes: RequestBytes
) -> None:
    async with running() as live, await live.connect() as client:
        live.edge.pages[b"/page"] = page
        live.edge.admitting = False
        client.send(GET + request_bytes())
        assert (await client.answer()).status == 503
        assert (await client.answer()).error == "503 OTSServerUnavailable The server is starting."
        live.edge.open({"Echo": lambda _, body: body})
        client.send(request_bytes(body=b"now"))
        assert (await client.answer()).body == b"now"


async def test_the_head_of_a_page_has_its_length_alone(running: Running) -> None:
    async with running() as live, await live.connect() as client:
        live.edge.pages[b"/page"] = page
        client.send(GET.replace(b"GET", b"HEAD") + GET)
        assert (await client.answer(headers_only=True)).headers["content-length"] == "17"
        assert (await client.answer()).body == b'{"ready": false}\n'


@pytest.mark.parametrize(
    "request_line", ["GET /other", "PUT /page", "DELETE /page", "GET /page/", "GET /PAGE"]
)
async def test_nothing_else_is_a_page(request_line: str, running: Running) -> None:
    async with running() as live:
        live.edge.pages[b"/page"] = page
        answer = await live.ask(f"{request_line} HTTP/1.1\r\nHost: h\r\n\r\n".encode())
    assert answer.status == 405


async def test_a_page_that_fails_is_a_fault_of_ours_and_the_connection_lives_on(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    async with running() as live, await live.connect() as client:
        live.edge.pages |= {b"/page": page, b"/faulty": faulty_page}
        client.send(GET.replace(b"/page", b"/faulty"))
        assert (await client.answer()).status == 500
        client.send(GET)
        assert (await client.answer()).status == 503
    assert "a fault" in caplog.text


async def test_a_drain_tells_of_itself_before_it_lets_nobody_in(
    running: Running, request_bytes: RequestBytes
) -> None:
    async with running() as live, await live.connect() as client, asyncio.TaskGroup() as tasks:
        drained = tasks.create_task(live.edge.drain(5, notice_s=0.2))
        await asyncio.sleep(0)
        assert (live.edge.leaving, live.edge.draining) == (True, False)
        client.send(request_bytes(body=b"still served"))
        assert (await client.answer()).body == b"still served"
        assert await drained == 0
        assert await client.rest() == b""
