"""The time with which requests are signed, while the machine's clock is wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest

from rowtide.client.connection_pool import ConnectionPool
from rowtide.client.endpoint import Endpoint
from rowtide.client.http_exchange import parse_address
from rowtide.client.server_clock import STEP_S, ServerClock
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.values.errors import Rejected
from tests.support.waiting import SOON_S

NOON = datetime(2026, 11, 26, 12, tzinfo=UTC)


def unix_us(moment: datetime) -> int:
    return int(moment.timestamp() * 1_000_000)


@pytest.mark.parametrize(
    ("ahead_s", "follows", "used_s"),
    [
        (3600, True, 3600),
        (-3600, True, -3600),
        (STEP_S, True, 0),
        (-STEP_S, True, 0),
        (3600, False, 0),
    ],
)
def test_the_servers_time_is_used_if_it_differs_much(
    ahead_s: float, follows: bool, used_s: float
) -> None:
    clock = ServerClock(follows=follows, machine=lambda: NOON)
    clock.learn(unix_us(NOON + timedelta(seconds=ahead_s)))
    assert clock.now() == NOON + timedelta(seconds=used_s)
    assert clock.has_moved_since(NOON) == bool(used_s)


def test_a_clock_that_is_set_right_again_is_used_again() -> None:
    machine = NOON + timedelta(hours=1)
    clock = ServerClock(follows=True, machine=lambda: machine)
    clock.learn(unix_us(NOON))
    assert clock.now() == NOON
    machine = NOON
    clock.learn(unix_us(NOON))
    assert clock.now() == NOON


def test_an_answer_without_a_date_teaches_nothing() -> None:
    clock = ServerClock(follows=True, machine=lambda: NOON)
    clock.learn(0)
    assert clock.now() == NOON


class Dated:
    """A server at noon that refuses requests of another time, as workers do.

    ``is_confused``: it says another time in each answer, and refuses everything. The first answer
    waits until ``together`` requests are there.
    """

    def __init__(self, *, is_confused: bool = False, together: int = 1) -> None:
        self.asked = 0
        self._is_confused = is_confused
        self._together = together
        self._are_together = asyncio.Event()
        self._ended: list[asyncio.Event] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._ended.append(ended := asyncio.Event())
        while head := await reader.read(65536):
            self.asked += 1
            if self.asked == self._together:
                self._are_together.set()
            await self._are_together.wait()
            [date] = [line[12:] for line in head.split(b"\r\n") if line.startswith(b"x-ots-date: ")]
            is_right = date.startswith(b"2026-11-26T12:0") and not self._is_confused
            error = pb.Error(code="OTSAuthFailed", message="Mismatch between system time.")
            body = b"" if is_right else error.SerializeToString()
            moment = NOON + timedelta(hours=self.asked if self._is_confused else 0)
            writer.write(
                b"HTTP/1.1 %d -\r\nContent-Length: %d\r\nx-ots-date: %b\r\n\r\n%b"
                % (200 if is_right else 403, len(body), moment.isoformat().encode(), body)
            )
        writer.close()
        await writer.wait_closed()
        ended.set()

    @asynccontextmanager
    async def reach(self, *, follows: bool) -> AsyncIterator[Endpoint]:
        """Yield an endpoint on a machine whose clock is an hour late."""
        server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        url = f"http://{host}:{port}"
        clock = ServerClock(follows=follows, machine=lambda: NOON - timedelta(hours=1))
        pool = ConnectionPool(parse_address(url), timeout_s=SOON_S, clock=clock)
        try:
            yield Endpoint(
                url, instance="demo", access_key_id="k", access_key_secret="s", pool=pool
            )
        finally:
            pool.close()
            server.close()
            for ended in self._ended:
                await ended.wait()


async def test_a_request_that_was_refused_for_its_date_is_sent_again_with_the_right_one() -> None:
    server = Dated()
    async with server.reach(follows=True) as endpoint:
        await endpoint.ask("PutRow", b"")
        assert server.asked == 2
        await endpoint.ask("PutRow", b"")
        assert server.asked == 3


async def test_requests_that_were_refused_together_are_all_sent_again() -> None:
    """One of the refusals teaches the time; for the others it is no news."""
    server = Dated(together=4)
    async with server.reach(follows=True) as endpoint, asyncio.TaskGroup() as tasks:
        for _ in range(4):
            tasks.create_task(endpoint.ask("PutRow", b""))
    assert server.asked == 8


async def test_a_program_that_does_not_follow_is_refused() -> None:
    server = Dated()
    async with server.reach(follows=False) as endpoint:
        with pytest.raises(Rejected, match="system time"):
            await endpoint.ask("PutRow", b"")
    assert server.asked == 1


async def test_a_server_with_a_wild_clock_is_asked_twice_and_no_more() -> None:
    server = Dated(is_confused=True)
    async with server.reach(follows=True) as endpoint:
        with pytest.raises(Rejected, match="system time"):
            await endpoint.ask("PutRow", b"")
    assert server.asked == 2
