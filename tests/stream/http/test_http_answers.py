"""What clients get: the exact headers of an answer, and every refusal's status, code and text."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import logging
import zlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import pytest

from rowtide.core.values.errors import OutcomeUnknown, StoreError, Unavailable, condition_failure
from rowtide.stream.http.answer import RequestIds
from rowtide.stream.http.limits import HttpLimits

if TYPE_CHECKING:
    from tests.stream.http.conftest import Answer, Running

RequestBytes = Callable[..., bytes]


def assert_signed(answer: Answer, path: str, key: bytes = b"testsecret") -> None:
    lines = sorted(f"{n}:{v}" for n, v in answer.headers.items() if n.startswith("x-ots-"))
    text = "\n".join([*lines, path]).encode()
    signature = base64.b64encode(hmac.digest(key, text, "sha1")).decode()
    assert answer.headers["authorization"] == f"OTS testid:{signature}"


async def test_an_answer_has_exactly_the_protocols_headers(
    running: Running, request_bytes: RequestBytes
) -> None:
    async with running() as live:
        answer = await live.ask(request_bytes(body=b"content"))
    md5 = base64.b64encode(hashlib.md5(b"content").digest()).decode()
    request_id = answer.headers["x-ots-requestid"]
    assert answer.status == 200
    assert answer.body == b"content"
    assert_signed(answer, "/Echo")
    del answer.headers["authorization"]
    assert answer.headers == {
        "content-length": "7",
        "x-ots-contentmd5": md5,
        "x-ots-contenttype": "protocol buffer",
        "x-ots-date": "2026-01-02T03:04:05.678Z",
        "x-ots-requestid": request_id,
    }
    assert len(request_id) == 36


async def test_an_empty_body_is_an_answer_too(
    running: Running, request_bytes: RequestBytes
) -> None:
    async with running() as live:
        answer = await live.ask(request_bytes())
    assert (answer.status, answer.body) == (200, b"")
    assert_signed(answer, "/Echo")


async def test_a_query_is_signed_but_not_part_of_the_path_answered_for(
    running: Running, request_bytes: RequestBytes
) -> None:
    async with running() as live:
        refused = await live.ask(request_bytes("Echo?a=1"))  # Signed as if it were the path.
    assert refused.error == "403 OTSAuthFailed Signature mismatch."


REFUSALS: list[tuple[str, dict[str, Any], str, bool]] = [
    (
        "another method",
        {"method": "GET"},
        "405 OTSMethodNotAllowed Only POST method for requests is supported.",
        True,
    ),
    (
        "the method comes before the operation",
        {"method": "PUT", "operation": "None"},
        "405 OTSMethodNotAllowed Only POST method for requests is supported.",
        True,
    ),
    (
        "an unknown operation",
        {"operation": "Ech"},
        "400 OTSParameterInvalid Unsupported operation: Ech.",
        True,
    ),
    (
        "operations are case-sensitive",
        {"operation": "echo"},
        "400 OTSParameterInvalid Unsupported operation: echo.",
        True,
    ),
    (
        "a tunnel operation",
        {"operation": "tunnel/create"},
        "400 OTSParameterInvalid Unsupported operation: tunnel/create.",
        True,
    ),
    (
        "the operation comes before the headers",
        {"operation": "None", "unsigned": {"x-ots-date": None}},
        "400 OTSParameterInvalid Unsupported operation: None.",
        True,
    ),
    (
        "a missing header",
        {"unsigned": {"x-ots-contentmd5": None}},
        "400 OTSParameterInvalid Missing header: x-ots-contentmd5.",
        True,
    ),
    (
        "a missing key id",
        {"unsigned": {"x-ots-accesskeyid": None}},
        "400 OTSParameterInvalid Missing header: x-ots-accesskeyid.",
        False,
    ),
    (
        "a broken date",
        {"date": "2026"},
        "400 OTSParameterInvalid Invalid date format: 2026.",
        True,
    ),
    (
        "an API version of the past",
        {"apiversion": "2014-08-08"},
        "400 OTSParameterInvalid Invalid api version: 2014-08-08.",
        True,
    ),
    (
        "an unknown key",
        {"accesskeyid": "nobody"},
        "403 OTSAuthFailed The AccessKeyID does not exist.",
        False,
    ),
    (
        "a disabled key",
        {"accesskeyid": "disabled"},
        "403 OTSAuthFailed The AccessKeyID is disabled.",
        False,
    ),
    (
        "an unknown instance",
        {"instancename": "nowhere"},
        "403 OTSAuthFailed The instance is not found.",
        False,
    ),
    (
        "an instance of others",
        {"accesskeyid": "elsewhere"},
        "403 OTSAuthFailed The user has no privilege to access the instance.",
        False,
    ),
    (
        "a skewed clock",
        {"date": "2026-01-02T03:19:06.678Z"},
        "403 OTSAuthFailed Mismatch between system time and x-ots-date: 2026-01-02T03:19:06.678Z.",
        False,
    ),
    (
        "a wrong signature",
        {"unsigned": {"x-ots-signature": "AAAA"}},
        "403 OTSAuthFailed Signature mismatch.",
        False,
    ),
    (
        "a wrong MD5",
        {"contentmd5": "1B2M2Y8AsgTpgAmY7PhCfg=="},
        "403 OTSAuthFailed Mismatch between MD5 value of request body "
        "and x-ots-contentmd5 in header.",
        False,
    ),
    (
        "a body that is not compressed as it says",
        {"request-compress-type": "deflate", "request-compress-size": "9"},
        "400 OTSParameterInvalid The request body is not a zlib stream.",
        True,
    ),
]


@pytest.mark.parametrize(
    ("case", "change", "error", "signed"), REFUSALS, ids=[r[0] for r in REFUSALS]
)
async def test_each_refusal_has_its_code_and_text_and_leaves_the_connection_open(
    case: str,
    change: dict[str, Any],
    error: str,
    *,
    signed: bool,
    running: Running,
    request_bytes: RequestBytes,
) -> None:
    async with running() as live, await live.connect() as client:
        client.send(request_bytes(body=b"content", **change))
        answer = await client.answer()
        client.send(request_bytes(body=b"next"))
        following = await client.answer()
    assert answer.error == error
    assert ("authorization" in answer.headers) is signed
    if signed:
        assert_signed(answer, f"/{change.get('operation', 'Echo')}")
    assert len(answer.headers["x-ots-requestid"]) == 36
    assert following.body == b"next"


async def test_a_head_request_is_refused_without_a_body(
    running: Running, request_bytes: RequestBytes
) -> None:
    async with running() as live, await live.connect() as client:
        client.send(request_bytes(method="HEAD"))
        assert (await client.answer(headers_only=True)).status == 405
        client.send(request_bytes(body=b"next"))
        assert (await client.answer()).body == b"next"


# ---- Handlers ----


def a_future(_: object, body: bytes) -> Awaitable[bytes]:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[bytes] = loop.create_future()
    loop.call_soon(future.set_result, body)
    return future


def a_done_future(_: object, body: bytes) -> Awaitable[bytes]:
    future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    future.set_result(body)
    return future


async def a_coroutine(_: object, body: bytes) -> bytes:
    return body


@pytest.mark.parametrize("handler", [a_future, a_done_future, a_coroutine])
async def test_a_handler_may_answer_later(
    handler: Any, running: Running, request_bytes: RequestBytes
) -> None:
    async with running({"Echo": handler}) as live, await live.connect() as client:
        for body in (b"one", b"two"):
            client.send(request_bytes(body=body))
            assert (await client.answer()).body == body


def raising(error: BaseException, kind: str) -> Any:
    def now(_: object, body: bytes) -> bytes:
        raise error

    def later(_: object, body: bytes) -> Awaitable[bytes]:
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        future.set_exception(error)
        return future

    async def running_task(_: object, body: bytes) -> bytes:
        raise error

    return {"call": now, "future": later, "coroutine": running_task}[kind]


HOW = ["call", "future", "coroutine"]
FAILURES: list[tuple[StoreError, str]] = [
    (condition_failure(), "403 OTSConditionCheckFail Condition check failed."),
    (OutcomeUnknown(), "503 OTSTimeout Operation timeout."),
    (Unavailable("The partition is not available."), "503 OTSPartitionUnavailable The partition "),
]


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize(("failure", "error"), FAILURES, ids=[f[0].code for f in FAILURES])
async def test_a_handlers_failure_is_signed_and_told_by_its_code(
    how: str, failure: StoreError, error: str, running: Running, request_bytes: RequestBytes
) -> None:
    async with running({"Echo": raising(failure, how)}) as live:
        answer = await live.ask(request_bytes())
    assert answer.error.startswith(error)
    assert_signed(answer, "/Echo")


@pytest.mark.parametrize("how", HOW)
async def test_a_fault_of_ours_is_logged_with_the_request_and_the_connection_lives_on(
    how: str,
    running: Running,
    request_bytes: RequestBytes,
    caplog: pytest.LogCaptureFixture,
) -> None:
    handlers = {"Echo": raising(ZeroDivisionError("a fault"), how), "Other": lambda _, body: body}
    async with running(handlers) as live, await live.connect() as client:
        with caplog.at_level(logging.ERROR):
            client.send(request_bytes())
            answer = await client.answer()
        client.send(request_bytes("Other", b"next"))
        assert (await client.answer()).body == b"next"
    assert answer.error == "500 OTSInternalServerError Internal server error."
    assert_signed(answer, "/Echo")
    assert answer.headers["x-ots-requestid"] in caplog.text
    assert "a fault" in caplog.text


async def test_an_answer_that_is_no_bytes_is_a_fault_of_ours(
    running: Running, request_bytes: RequestBytes
) -> None:
    handlers: dict[str, Any] = {"Echo": raising, "None": lambda *_: None}
    async with running(handlers) as live:
        answer = await live.ask(request_bytes("None"))
    assert answer.error == "500 OTSInternalServerError Internal server error."


async def test_a_code_without_a_status_is_a_fault_of_ours(
    running: Running, request_bytes: RequestBytes
) -> None:
    async with running({"Echo": raising(StoreError("OTSNew", "new"), "future")}) as live:
        answer = await live.ask(request_bytes())
    assert answer.error == "500 OTSInternalServerError Internal server error."


async def test_a_cancelled_handler_leaves_the_outcome_unknown(
    running: Running, request_bytes: RequestBytes
) -> None:
    def return_cancelled(_: object, body: bytes) -> Awaitable[bytes]:
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        future.cancel()
        return future

    async with running({"Echo": return_cancelled}) as live:
        answer = await live.ask(request_bytes())
    assert answer.error == "503 OTSTimeout Operation timeout."


async def test_the_handler_is_told_who_asks(running: Running, request_bytes: RequestBytes) -> None:
    def who(identity: Any, _: bytes) -> bytes:
        return f"{identity.access_key_id}@{identity.instance}".encode()

    async with running({"Who": who}) as live:
        answer = await live.ask(request_bytes("Who", instancename="INST"))
    assert answer.body == b"testid@inst"


# ---- Compression ----


async def test_an_answer_is_compressed_when_asked_and_not_empty(
    running: Running, request_bytes: RequestBytes
) -> None:
    asked = {"response-compress-type": "deflate"}
    async with running() as live:
        answer = await live.ask(request_bytes(body=b"content " * 100, **asked))
        empty = await live.ask(request_bytes(**asked))
    assert zlib.decompress(answer.body) == b"content " * 100
    assert answer.headers["x-ots-response-compress-type"] == "deflate"
    assert answer.headers["x-ots-response-compress-size"] == "800"
    original = hashlib.md5(b"content " * 100).digest()
    assert answer.headers["x-ots-contentmd5"] == base64.b64encode(original).decode()
    assert_signed(answer, "/Echo")
    assert "x-ots-response-compress-type" not in empty.headers


async def test_a_compressed_request_reaches_the_handler_inflated(
    running: Running, request_bytes: RequestBytes
) -> None:
    body = zlib.compress(b"content " * 100)
    declared = {"request-compress-type": "deflate", "request-compress-size": "800"}
    async with running() as live:
        answer = await live.ask(request_bytes(body=body, **declared))
    assert answer.body == b"content " * 100


async def test_what_inflates_beyond_the_bound_is_too_large(
    running: Running, request_bytes: RequestBytes
) -> None:
    body = zlib.compress(b"\0" * 100_000)
    declared = {"request-compress-type": "deflate", "request-compress-size": "100000"}
    async with running(limits=HttpLimits(body_bytes_max=50_000)) as live:
        answer = await live.ask(request_bytes(body=body, **declared))
    assert answer.error == "413 OTSRequestBodyTooLarge The size of POST data is too large."


# ---- Request ids ----


def test_request_ids_are_distinct_and_look_like_uuids() -> None:
    make = RequestIds(b"0123456789")
    ids = [make().decode() for _ in range(1000)]
    assert len(set(ids)) == 1000
    assert {len(request_id) for request_id in ids} == {36}
    assert ids[0] == "30313233-3435-8637-a839-000000000001"
    assert RequestIds()() != RequestIds()()
