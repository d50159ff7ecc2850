"""A slot that fails while it serves opens again, and ends when it is told to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from rowtide.stream.slot import WATCH_S
from tests.simulator.memory_rows import Disk
from tests.simulator.simulated_worker import Backend, Leases, NoOthers, SimulatedSlot
from tests.simulator.virtual_time import VirtualTimeLoop

LIVES = 3


def run(program: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a program whose time passes only while everybody sleeps."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(program())


class Watched:
    """A slot whose lease can be lost."""

    def __init__(self) -> None:
        backend = Backend()
        self.leases = Leases(backend.ledger, b"ownerid8")
        self.slot = SimulatedSlot(backend, Disk(), self.leases, self._clock_us)

    def _clock_us(self) -> int:
        return 1_700_000_000_000_000 + int(asyncio.get_running_loop().time() * 1_000_000)

    async def lose(self) -> None:
        """Let it see a later claim while it serves; return once it has closed."""
        await self.slot.opened.wait()
        self.leases._lost = True
        await asyncio.sleep(WATCH_S * 1.1)
        assert not self.slot.opened.is_set()


def test_it_opens_again_after_each_failure() -> None:
    async def program() -> None:
        watched = Watched()
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(watched.slot.run(), name="slot")
            for _ in range(LIVES):
                await watched.lose()
            await watched.slot.opened.wait()
            running.cancel()

    run(program)


@pytest.mark.parametrize("ms", range(0, 1000, 50))
def test_it_ends_when_it_is_cancelled_whatever_else_fails(ms: int) -> None:
    async def program() -> None:
        watched = Watched()
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(watched.slot.run(), name="slot")
            await watched.slot.opened.wait()
            watched.leases._lost = True
            await asyncio.sleep(ms / 1000)
            running.cancel()
            await asyncio.wait([running], timeout=60)
            assert running.done()

    run(program)


class Yielding(NoOthers):
    """Of a slot that was but adopted."""

    def give_way(self, _slot: int) -> bool:
        return True


def test_one_that_gives_way_stays_closed_until_it_is_cancelled() -> None:
    async def program() -> None:
        watched = Watched()
        watched.slot._handover = Yielding()
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(watched.slot.run(), name="slot")
            await watched.lose()
            await asyncio.sleep(3600)
            assert not watched.slot.opened.is_set()
            running.cancel()

    run(program)
