"""Pages are for any client that reaches the port: unsigned, served before operations, and
plain.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from rowtide.stream.http.pages import PageAnswer, introduction, json_page

if TYPE_CHECKING:
    from tests.stream.http.conftest import Running

RequestBytes = Callable[..., bytes]
GET = b"GET /page HTTP/1.1\r\nHost: h\r\n\r\n"


async def page() -> PageAnswer:
    """Return a page after a turn of the loop."""
    await asyncio.sleep(0)
    return json_page(503, {"ready": False})


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


BROWSER = b"text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


def visit(path: bytes = b"/", accept: bytes | None = BROWSER, method: bytes = b"GET") -> bytes:
    """Return a request as a browser sends it, or with another Accept header."""
    header = b"" if accept is None else b"Accept: " + accept + b"\r\n"
    return method + b" " + path + b" HTTP/1.1\r\nHost: h\r\n" + header + b"\r\n"


@pytest.mark.parametrize(
    ("path", "accept"),
    [
        (b"/", BROWSER),
        (b"/", b"text/html"),
        (b"/", b"*/*, Text/HTML; q=0.5"),
        (b"/?from=a#b", BROWSER),
    ],
)
async def test_a_browser_gets_an_introduction(running: Running, path: bytes, accept: bytes) -> None:
    async with running() as live:
        live.edge.introduction = introduction("1.2<b>")
        live.edge.admitting = False
        answer = await live.ask(visit(path, accept))
    assert (answer.status, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    text = answer.body.decode("ascii")
    assert "<h1>rowtide 1.2&lt;b&gt;</h1>" in text
    assert "documentation" in text
    assert "//" not in text, "nothing is loaded from elsewhere"
    assert "<script" not in text
    assert not any(name.startswith("x-ots") for name in answer.headers)


async def test_nothing_of_a_page_is_kept_run_loaded_or_framed(running: Running) -> None:
    async with running() as live, await live.connect() as client:
        live.edge.introduction = introduction("1.2")
        live.edge.pages[b"/page"] = page
        for request in (visit(), GET):
            client.send(request)
            headers = (await client.answer()).headers
            assert headers["cache-control"] == "no-store"
            assert headers["content-security-policy"].startswith("default-src 'none';")
            assert "frame-ancestors 'none'" in headers["content-security-policy"]
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["x-frame-options"] == "DENY"
            assert headers["referrer-policy"] == "no-referrer"


async def test_the_head_of_the_introduction_has_its_length_alone(running: Running) -> None:
    async with running() as live, await live.connect() as client:
        live.edge.introduction = introduction("1.2")
        client.send(visit(method=b"HEAD") + visit())
        head = await client.answer(headers_only=True)
        whole = await client.answer()
    assert (head.status, whole.status) == (200, 200)
    assert int(head.headers["content-length"]) == len(whole.body)


@pytest.mark.parametrize(
    "request_bytes",
    [
        visit(accept=None),
        visit(accept=b"*/*"),  # curl
        visit(accept=b"application/json"),
        visit(accept=b"text/htmlx"),
        visit(b"/favicon.ico"),
        visit(b"//"),
        visit(b"/GetRow"),
        visit(method=b"PUT"),
        visit(method=b"POST"),
        visit(method=b"OPTIONS"),
    ],
)
async def test_nobody_else_gets_the_introduction(running: Running, request_bytes: bytes) -> None:
    async with running() as live:
        live.edge.introduction = introduction("1.2")
        answer = await live.ask(request_bytes)
    assert answer.status in (400, 405)
    assert b"html" not in answer.body
