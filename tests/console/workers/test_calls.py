"""Calls of a worker: signed with the caller's key, and failing with the client's failures."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from rowtide.console.workers.calls import KeyPair, WorkerCalls
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.values.errors import OutcomeUnknown, Rejected, Unavailable

HEAD = b"HTTP/1.1 %d -\r\nContent-Length: %d\r\n\r\n%b"
KEY = KeyPair("rt1", "a secret")


class OneAnswer:
    """A server that gives every request one answer; none closes the connection instead."""

    def __init__(self, status: int, content: bytes | None) -> None:
        self.connections: list[asyncio.Event] = []
        self.requests: list[bytes] = []
        self._status = status
        self._content = content

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.append(ended := asyncio.Event())
        while request := await reader.read(65536):
            self.requests.append(request)
            if self._content is None:
                break
            writer.write(HEAD % (self._status, len(self._content), self._content))
        writer.close()
        await writer.wait_closed()
        ended.set()


@asynccontextmanager
async def calls_of(server: OneAnswer) -> AsyncIterator[WorkerCalls]:
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    host, port = listening.sockets[0].getsockname()
    try:
        async with WorkerCalls(f"http://{host}:{port}", patience_s=0.0) as calls:
            yield calls
    finally:
        listening.close()
        for ended in server.connections:
            await ended.wait()


def refusal(status: int, code: str) -> OneAnswer:
    return OneAnswer(status, pb.Error(code=code, message="No.").SerializeToString())


def test_a_secret_is_in_no_text() -> None:
    assert KEY.access_key_secret not in f"{KEY} {KEY!r}"


async def test_a_message_is_answered_by_a_message() -> None:
    tables = pb.ListTableResponse(table_names=["orders"])
    async with calls_of(OneAnswer(200, tables.SerializeToString())) as calls:
        assert await calls.call(KEY, "demo", "ListTable", pb.ListTableRequest()) == tables


async def test_an_operation_of_rowtide_takes_and_returns_json() -> None:
    server = OneAnswer(200, b'{"keys": []}')
    async with calls_of(server) as calls:
        assert await calls.call(KEY, "demo", "RowtideListKeys") == {"keys": []}
        await calls.call(KEY, "demo", "RowtideRevokeKey", {"access_key_id": "rt2"})
    assert [request.partition(b"\r\n\r\n")[2] for request in server.requests] == [
        b"{}",
        b'{"access_key_id": "rt2"}',
    ]


@pytest.mark.parametrize(
    ("server", "failure"),
    [
        (refusal(403, "OTSNoPermissionAccess"), Rejected),
        (refusal(503, "OTSServerBusy"), Unavailable),
        (OneAnswer(200, None), OutcomeUnknown),
    ],
)
async def test_failures_are_those_of_the_client(
    server: OneAnswer, failure: type[Exception]
) -> None:
    async with calls_of(server) as calls:
        with pytest.raises(failure):
            await calls.call(KEY, "demo", "ListTable", pb.ListTableRequest())
    assert len(server.requests) == 1


async def test_a_request_of_another_kind_is_an_error_of_the_program() -> None:
    requests: Sequence[tuple[str, object]] = (
        ("ListTable", {}),
        ("ListTable", pb.DescribeTableRequest(table_name="t")),
        ("RowtideListKeys", pb.ListTableRequest()),
    )
    async with WorkerCalls("http://127.0.0.1:1") as calls:
        for operation, request in requests:
            with pytest.raises(TypeError):
                await calls.call(KEY, "demo", operation, request)  # type: ignore[arg-type]


async def test_calls_of_two_keys_share_a_connection() -> None:
    server = OneAnswer(200, b"")
    async with calls_of(server) as calls:
        for name in ("rt1", "rt2"):
            await calls.call(KeyPair(name, "s"), "demo", "ListTable", pb.ListTableRequest())
    assert len(server.connections) == 1


async def test_a_connection_that_the_server_closed_is_not_used_again() -> None:
    server = OneAnswer(200, b"")
    async with calls_of(server) as calls:
        await calls.call(KEY, "demo", "ListTable", pb.ListTableRequest())
        # The server is gone and back: its end of the idle connection arrives before the next call.
        (idle,) = calls._pool._idle
        idle[1].reader.feed_eof()
        await calls.call(KEY, "demo", "ListTable", pb.ListTableRequest())
    assert len(server.connections) == 2
