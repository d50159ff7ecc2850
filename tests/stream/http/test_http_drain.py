"""Stopping: what is in flight is answered, what is idle closes, what hangs is cut off."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.stream.http.conftest import Running

RequestBytes = Callable[..., bytes]


class Held:
    """A handler that answers on command."""

    def __init__(self) -> None:
        self.arrived = asyncio.Event()
        self.answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def __call__(self, _: object, body: bytes) -> Awaitable[bytes]:
        self.arrived.set()
        return self.answer


async def test_an_idle_connection_closes_at_once(
    running: Running, request_bytes: RequestBytes
) -> None:
    async with running() as live, await live.connect() as client:
        client.send(request_bytes())
        await client.answer()
        assert await live.edge.drain(5) == 0
        assert await client.rest() == b""


async def test_a_request_in_flight_is_answered_and_its_connection_closed(
    running: Running, request_bytes: RequestBytes
) -> None:
    held = Held()
    async with running({"Echo": held}) as live, await live.connect() as client:
        client.send(request_bytes())
        await held.arrived.wait()
        async with asyncio.TaskGroup() as tasks:
            drained = tasks.create_task(live.edge.drain(5))
            await asyncio.sleep(0)  # One turn of the loop: drain has begun.
            assert live.edge.draining
            held.answer.set_result(b"in time")
            answer = await client.answer()
            assert await client.rest() == b""
            client.writer.close()  # As clients do after that header.
        assert (answer.body, answer.headers["connection"]) == (b"in time", "close")
        assert drained.result() == 0


async def test_requests_already_received_behind_it_are_answered_too(
    running: Running, request_bytes: RequestBytes
) -> None:
    held = Held()
    handlers = {"Echo": held, "Other": lambda _, body: body}
    async with running(handlers) as live, await live.connect() as client:
        client.send(request_bytes() + request_bytes("Other", b"second"))
        await held.arrived.wait()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(live.edge.drain(5))
            await asyncio.sleep(0)  # One turn of the loop: drain has begun.
            assert live.edge.draining
            held.answer.set_result(b"first")
            first, second = await client.answer(), await client.answer()
            client.writer.close()
        assert (first.body, second.body) == (b"first", b"second")
        assert "connection" not in first.headers
        assert second.headers["connection"] == "close"


async def test_nobody_new_gets_in(running: Running) -> None:
    async with running() as live:
        await live.edge.drain(5)
        with pytest.raises(ConnectionRefusedError):
            await live.connect()


async def test_what_does_not_finish_is_cut_off_and_counted(
    running: Running, request_bytes: RequestBytes
) -> None:
    held = Held()
    async with running({"Echo": held}) as live, await live.connect() as client:
        client.send(request_bytes())
        await held.arrived.wait()
        assert await live.edge.drain(0.05) == 1
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await client.answer()
        assert live.edge.connections == 0
        held.answer.set_result(b"too late")
