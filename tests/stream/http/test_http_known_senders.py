"""A sender that was authenticated is read by a kernel, and has no right more than any other."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from rowtide.core import native
from rowtide.core.protocol.authentication import Authenticator, Credential
from rowtide.core.protocol.signature import content_md5
from rowtide.stream.http.request import RequestReader
from rowtide.stream.http.tally import Handler
from tests.core.native.ways import KERNELS, needs_kernels
from tests.stream.http.conftest import NOW_S, SECRET, Answer, Client, LiveEdge, Running

pytestmark = needs_kernels

RequestBytes = Callable[..., bytes]
KEY = Credential("testid", SECRET)


def _echo(_: object, body: bytes) -> bytes:
    return body


HANDLERS: dict[str, Handler] = {"Echo": _echo, "GetRow": _echo, "PutRow": _echo}


@pytest.fixture(autouse=True)
def used() -> Iterator[None]:
    """Use kernels, also where the suite runs without."""
    before, native.kernels = native.kernels, KERNELS
    yield
    native.kernels = before


@asynccontextmanager
async def knowing(
    running: Running, *requests: bytes, **settings: object
) -> AsyncIterator[tuple[LiveEdge, Client]]:
    """Run an edge with a connection that has answered these requests."""
    async with running(HANDLERS, **settings) as live, await live.connect() as client:
        for request in requests:
            client.send(request)
            assert (await client.answer()).status == 200
        yield live, client


async def answer(client: Client, request: bytes) -> Answer:
    client.send(request)
    return await client.answer()


async def test_requests_of_a_known_sender_bypass_parser_and_pattern(
    running: Running, request_bytes: RequestBytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = request_bytes("GetRow", b"a")
    async with knowing(running, first, first) as (_, client):
        for name in ("_parse", "_take_formed"):
            monkeypatch.setattr(RequestReader, name, lambda *_: pytest.fail("asked"))
        for body in (b"", b"x" * 500):
            found = await answer(client, request_bytes("PutRow", body))
            assert (found.status, found.body) == (200, body)
            assert found.headers["x-ots-contentmd5"] == content_md5(body).decode()


async def test_a_key_that_is_gone_is_refused_at_once(
    running: Running, request_bytes: RequestBytes
) -> None:
    request = request_bytes("GetRow", b"a")
    async with knowing(running, request, request, request) as (live, client):
        changes: dict[str, Authenticator] = {
            "403 OTSAuthFailed The AccessKeyID does not exist.": Authenticator(
                lambda _: None, lambda _: True
            ),
            "403 OTSAuthFailed The AccessKeyID is disabled.": Authenticator(
                lambda _: replace(KEY, enabled=False), lambda _: True
            ),
            "403 OTSAuthFailed The instance is not found.": Authenticator(
                lambda _: KEY, lambda _: False
            ),
            "403 OTSAuthFailed Signature mismatch.": Authenticator(
                lambda _: replace(KEY, secret="another"), lambda _: True
            ),
            "403 OTSAuthFailed The user has no privilege to access the instance.": Authenticator(
                lambda _: replace(KEY, instances=frozenset()), lambda _: True
            ),
            "503 OTSServerUnavailable Access keys and instances were last read 31 s ago.": (
                Authenticator(lambda _: KEY, lambda _: True, lambda: 31.0)
            ),
        }
        edge = live.edge.authenticator
        before = edge.credential, edge.instance_exists, edge.age_s
        for expected, other in changes.items():
            edge.credential, edge.instance_exists = other.credential, other.instance_exists
            edge.age_s = other.age_s
            assert (await answer(client, request)).error == expected
            edge.credential, edge.instance_exists, edge.age_s = before
            assert (await answer(client, request)).status == 200


async def test_a_read_only_key_still_cannot_write(
    running: Running, request_bytes: RequestBytes
) -> None:
    request = request_bytes("GetRow", b"a")
    async with running(HANDLERS) as live, await live.connect() as client:
        read_only = replace(KEY, is_read_only=True)
        live.edge.authenticator.credential = lambda _: read_only
        for _ in range(4):
            assert (await answer(client, request)).status == 200
        refused = await answer(client, request_bytes("PutRow", b"a"))
        assert refused.error.startswith(
            "403 OTSNoPermissionAccess Access key 'testid' is read-only"
        )
        assert "authorization" in refused.headers


async def test_a_failed_look_up_of_a_key_is_a_fault_and_no_end(
    running: Running, request_bytes: RequestBytes
) -> None:
    request = request_bytes("GetRow", b"a")

    def fail(_: str) -> Credential | None:
        raise LookupError("no catalog")

    async with knowing(running, request, request, request) as (live, client):
        authenticator = live.edge.authenticator
        before, authenticator.credential = authenticator.credential, fail
        assert (await answer(client, request)).error == (
            "500 OTSInternalServerError Internal server error."
        )
        authenticator.credential = before
        assert (await answer(client, request)).status == 200


async def test_what_is_wrong_has_the_same_error_from_a_known_sender(
    running: Running, request_bytes: RequestBytes
) -> None:
    usual = request_bytes("GetRow", b"body")
    wrong = [
        usual.replace(b"\r\n\r\nbody", b"\r\n\r\nb0dy"),
        usual.replace(b"/GetRow", b"/PutRow"),
        usual.replace(b"/GetRow", b"/Nothing"),
        request_bytes("GetRow", b"body", date="2026-01-02T03:20:06.000Z"),
        request_bytes("GetRow", b"body", date="no date"),
        request_bytes("GetRow", b"body", instancename="elsewhere"),
        request_bytes("GetRow", b"body", apiversion="2000-01-01"),
        request_bytes("GetRow", b"body", unsigned={"x-ots-signature": "AAAA"}),
    ]
    async with knowing(running, usual, usual, usual) as (live, client):
        for request in wrong:
            expected = await live.ask(request)
            found = await answer(client, request)
            assert (found.status, found.error) == (expected.status, expected.error)
            assert found.status != 200
            assert ("authorization" in found.headers) == ("authorization" in expected.headers)


@pytest.mark.parametrize(
    ("name", "value"),
    [("x-ots-max-staleness-ms", "5"), ("x-ots-response-compress-type", "deflate")],
)
async def test_a_sender_whose_headers_ask_for_more_is_left_to_python(
    running: Running, request_bytes: RequestBytes, name: str, value: str
) -> None:
    request = request_bytes("GetRow", b"a", **{name.removeprefix("x-ots-"): value})
    async with knowing(running, request, request, request) as (live, client):
        (connection,) = live.edge._connections
        assert connection._reader._learned.form is not None
        assert connection._reader._learned.sender is None
        assert (await answer(client, request)).status == 200


async def test_a_budget_that_is_used_up_refuses_a_known_sender(
    running: Running, request_bytes: RequestBytes
) -> None:
    request = request_bytes("GetRow", b"a")
    async with knowing(running, request, request, request) as (live, client):
        live.edge.budget.take(live.edge.limits.bodies_bytes_max)
        assert (await answer(client, request)).error == "503 OTSServerBusy Server is busy."
        live.edge.budget.give_back(live.edge.limits.bodies_bytes_max)
        assert (await answer(client, request)).status == 200


async def test_a_date_that_grows_old_is_refused(
    running: Running, request_bytes: RequestBytes
) -> None:
    request, now = request_bytes("GetRow", b"a"), [NOW_S]
    async with knowing(running, request, request, request, clock=lambda: now[0]) as (_, client):
        now[0] += 15 * 60
        assert (await answer(client, request)).status == 200
        now[0] += 1
        refused = await answer(client, request)
        assert refused.error.startswith("403 OTSAuthFailed Mismatch between system time")


async def test_a_sender_whose_key_was_replaced_is_learned_anew(
    running: Running, request_bytes: RequestBytes
) -> None:
    request = request_bytes("GetRow", b"a")
    async with knowing(running, request, request, request) as (live, client):
        (connection,) = live.edge._connections
        learned = connection._reader._learned
        another = replace(KEY)
        live.edge.authenticator.credential = lambda _: another
        assert (await answer(client, request)).status == 200
        assert learned.sender is None
        assert (await answer(client, request)).status == 200
        assert learned.sender is not None
        assert learned.sender.credential is another
