"""Answers come in pieces of any size, whole or broken off."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from rowtide.client.http_exchange import (
    Access,
    AnswerParser,
    BrokenAnswer,
    HttpAnswer,
    parse_address,
    request_bytes,
)

HEAD = b"HTTP/1.1 200 OK\r\nX-OTS-RequestId: r1\r\n"
KEPT = HEAD + b"Content-Length: 5\r\n\r\nhello"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3;x=1\r\nllo\r\n0\r\n\r\n"


def parse_in_pieces(answer: bytes, size: int, *, ended: bool = False) -> HttpAnswer | None:
    """Return what comes of an answer that is received in pieces of ``size`` bytes."""
    parser = AnswerParser()
    for at in range(0, len(answer), size):
        found = parser.feed(answer[at : at + size])
        if found is not None:
            assert at + size >= len(answer)
            return found
    return parser.feed(b"") if ended else None


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize(
    ("answer", "keep"),
    [
        (KEPT, True),
        (CHUNKED, True),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + KEPT, True),
        (KEPT.replace(b"\r\n\r\n", b"\r\nConnection: Close\r\n\r\n"), False),
    ],
)
def test_an_answer_is_whole_once_its_last_byte_came(answer: bytes, keep: bool, size: int) -> None:
    found = parse_in_pieces(answer, size)
    assert found is not None
    assert (found.status, found.content, found.keep) == (200, b"hello", keep)
    assert found.headers["x-ots-requestid"] == "r1"


def test_an_answer_without_a_length_ends_with_the_connection() -> None:
    found = parse_in_pieces(HEAD + b"\r\nhello", 4, ended=True)
    assert found is not None
    assert (found.content, found.keep) == (b"hello", False)


@pytest.mark.parametrize("answer", [b"", HEAD, KEPT[:-1], CHUNKED[:-1], CHUNKED[:-9]])
def test_an_answer_that_breaks_off_is_none(answer: bytes) -> None:
    with pytest.raises(BrokenAnswer, match="was closed before"):
        parse_in_pieces(answer, 3, ended=True)


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 two hundred\r\n\r\n",
        b"HTTP/1.1 -5 x\r\n\r\n",
        HEAD + b"Content-Length: -1\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 " + bytes(70_000),
    ],
)
def test_what_is_no_answer_is_refused(answer: bytes) -> None:
    with pytest.raises(BrokenAnswer):
        parse_in_pieces(answer, 1000, ended=True)


def test_bytes_behind_an_answer_end_the_use_of_its_connection() -> None:
    found = AnswerParser().feed(KEPT + b"x")
    assert found is not None
    assert not found.keep


def test_a_request_names_its_host_and_its_length() -> None:
    address = parse_address("http://[::1]:8087")
    access = Access("demo", "id", "secret")
    request = request_bytes(address, access, "ListTable", b"abc", datetime(2026, 1, 1, tzinfo=UTC))
    head, _, body = request.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert lines[0] == "POST /ListTable HTTP/1.1"
    assert {"Host: [::1]:8087", "Content-Length: 3", "x-ots-instancename: demo"} <= set(lines)
    assert body == b"abc"


@pytest.mark.parametrize("url", ["localhost", "ftp://x", "http://"])
def test_an_endpoint_is_a_url(url: str) -> None:
    with pytest.raises(ValueError, match="must be http://HOST:PORT"):
        parse_address(url)
