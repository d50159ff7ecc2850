"""Regular checks end their sleeps together, once in each period."""

from __future__ import annotations

import asyncio

import pytest

from rowtide.stream.measures.ticks import EARLY_S, sleep_to_tick, until_tick_s
from tests.simulation.virtual_time import in_virtual_time


async def _wake_times(begin_s: float, period_s: float, until_s: float) -> list[float]:
    """Return the times at which a check that begins at ``begin_s`` wakes."""
    loop = asyncio.get_running_loop()
    await asyncio.sleep(begin_s)
    found = []
    while loop.time() < until_s:
        await sleep_to_tick(period_s)
        found.append(round(loop.time(), 6))
    return found


def test_checks_that_begin_at_different_times_wake_together() -> None:
    async def program() -> None:
        end_s = asyncio.get_running_loop().time() + 4
        async with asyncio.TaskGroup() as tasks:
            often = tasks.create_task(_wake_times(0.13, 0.5, end_s), name="often")
            later = tasks.create_task(_wake_times(0.31, 0.5, end_s), name="later")
            seldom = tasks.create_task(_wake_times(0.2, 1.0, end_s), name="seldom")
        assert often.result() == later.result()
        assert len(often.result()) == len(set(often.result())) >= 8
        assert set(seldom.result()) <= set(often.result())

    in_virtual_time(program())


@pytest.mark.parametrize(
    ("now_s", "wait_s"), [(10.0, 0.5), (10.2, 0.3), (10.4, 0.1), (10.499, 0.501), (10.5, 0.5)]
)
def test_a_timer_that_expires_a_little_early_does_not_check_twice(
    now_s: float, wait_s: float
) -> None:
    assert until_tick_s(now_s, 0.5) == pytest.approx(wait_s)
    assert until_tick_s(now_s, 0.5) >= EARLY_S


def test_a_check_without_a_period_does_not_wait() -> None:
    assert until_tick_s(10.2, 0.0) == 0.0
