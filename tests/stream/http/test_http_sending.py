"""What is answered in one turn of the event loop leaves together, in order and within a bound."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from rowtide.core.protocol.authentication import Authenticator, Credential
from rowtide.stream.http.connection import UNSENT_BYTES_MAX, Connection
from rowtide.stream.http.edge import Edge
from tests.stream.http.conftest import NOW_S, SECRET, Running, echo

RequestBytes = Callable[..., bytes]


class Wire(asyncio.Transport):
    """Keeps what was sent, a piece per call, and may be full after the next one."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self.sent: list[bytes] = []
        self.fills = self.broken = False
        self._connection = connection
        connection.connection_made(self)

    def write(self, content: Any) -> None:
        if self.broken:
            raise RuntimeError("a fault of ours")
        self.sent.append(bytes(content))
        if self.fills:
            self._connection.pause_writing()

    def writelines(self, pieces: Any) -> None:
        self.write(b"".join(pieces))

    def is_closing(self) -> bool:
        return False

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.sent.append(b"EOF")

    def answers(self) -> int:
        return b"".join(self.sent).count(b"HTTP/1.1 200 ")


@asynccontextmanager
async def wires(count: int) -> AsyncIterator[list[tuple[Connection, Wire]]]:
    """Connect so many clients to an edge that answers with what they send."""
    keys = {"testid": Credential("testid", SECRET)}
    authenticator = Authenticator(keys.get, {"inst"}.__contains__)
    async with asyncio.TaskGroup() as tasks:
        edge = Edge(authenticator, {"Echo": echo}, tasks, clock=lambda: NOW_S)
        connections = [Connection(edge) for _ in range(count)]
        pairs = [(connection, Wire(connection)) for connection in connections]
        yield pairs
        for connection in connections:
            connection.connection_lost(None)
        assert edge.budget.held == 0


async def next_turn() -> None:
    await asyncio.sleep(0)


async def test_answers_of_a_turn_leave_at_its_end(request_bytes: RequestBytes) -> None:
    async with wires(3) as pairs:
        for connection, _ in pairs:
            connection.data_received(request_bytes(body=b"one") + request_bytes(body=b"two"))
            connection.data_received(request_bytes(body=b"three"))
        assert [wire.sent for _, wire in pairs] == [[], [], []]
        await next_turn()
        for _, wire in pairs:
            (sent,) = wire.sent
            assert sent.index(b"\r\none") < sent.index(b"\r\ntwo") < sent.index(b"\r\nthree")
        await next_turn()
        pairs[1][0].data_received(request_bytes(body=b"four"))
        await next_turn()
        assert [wire.answers() for _, wire in pairs] == [3, 4, 3]


async def test_the_only_connection_waits_for_no_other(request_bytes: RequestBytes) -> None:
    async with wires(1) as [(connection, wire)]:
        connection.data_received(request_bytes())
        assert wire.answers() == 1


async def test_no_more_waits_than_the_bound(request_bytes: RequestBytes) -> None:
    async with wires(2) as [(connection, wire), _]:
        wire.fills = True
        large = request_bytes(body=b"b" * (UNSENT_BYTES_MAX // 3))
        for count in (0, 0, 3):
            connection.data_received(large)
            assert wire.answers() == count
        # The client does not take what was sent, so nothing more is answered.
        connection.data_received(large)
        await next_turn()
        assert wire.answers() == 3
        wire.fills = False
        connection.resume_writing()
        await next_turn()
        assert wire.answers() == 4


@pytest.mark.parametrize(
    ("follows", "ends"),
    [
        ({"extra": "Connection: close\r\n"}, b"EOF"),
        ({"extra": "Expect: 100-continue\r\nContent-Length: 1\r\n"}, b"HTTP/1.1 100 "),
    ],
    ids=["the end", "an invitation to send the body"],
)
async def test_what_was_answered_leaves_before(
    follows: dict[str, str], ends: bytes, request_bytes: RequestBytes
) -> None:
    async with wires(2) as [(connection, wire), _]:
        connection.data_received(request_bytes())
        connection.data_received(request_bytes(**follows))
        await next_turn()
        assert b"".join(wire.sent).startswith(b"HTTP/1.1 200 ")
        assert wire.sent[-1].startswith(ends)


async def test_a_connection_that_is_lost_sends_nothing(request_bytes: RequestBytes) -> None:
    async with wires(2) as [(lost, nothing), (other, wire)]:
        lost.data_received(request_bytes())
        other.data_received(request_bytes())
        lost.connection_lost(None)
        await next_turn()
        assert (nothing.sent, wire.answers()) == ([], 1)


async def test_one_that_fails_keeps_back_no_other(request_bytes: RequestBytes) -> None:
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    async with wires(3) as pairs:
        pairs[0][1].broken = True
        for connection, _ in pairs:
            connection.data_received(request_bytes())
        await next_turn()
        await next_turn()
        assert [wire.answers() for _, wire in pairs] == [0, 1, 1]
        assert len(complaints) == 1
        pairs[1][0].data_received(request_bytes())
        await next_turn()
        assert pairs[1][1].answers() == 2


async def test_many_clients_that_pipeline_are_answered_in_order(
    running: Running, request_bytes: RequestBytes
) -> None:
    async with running() as live:
        clients = [await live.connect() for _ in range(8)]
        bodies = [b"%d" % number * (number * 997 % 5000) for number in range(1, 30)]
        for client in clients:
            client.send(b"".join(request_bytes(body=body) for body in bodies))
        for client in clients:
            assert [(await client.answer()).body for _ in bodies] == bodies
            client.writer.transport.abort()
