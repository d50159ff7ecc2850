"""Regular checks of a process at common moments, so that an idle process seldom wakes.

Every timer that expires alone wakes the process, which costs more than most checks.
"""

from __future__ import annotations

import asyncio

__all__ = ["sleep_to_tick", "until_tick_s"]

EARLY_S = 0.01
"""A timer may expire this much early, by its resolution. The tick is then not awaited again."""


async def sleep_to_tick(period_s: float) -> None:
    """Sleep until the next multiple of ``period_s`` on the event loop's clock.

    All sleeps of one period end in the same turn of the loop, and so do those of its multiples.
    """
    await asyncio.sleep(until_tick_s(asyncio.get_running_loop().time(), period_s))


def until_tick_s(now_s: float, period_s: float) -> float:
    """Return the seconds from ``now_s`` to the next multiple of ``period_s``; 0 for a period of 0.

    If the next multiple is nearer than ``EARLY_S``, it is the one after.
    """
    if not period_s:
        return 0.0
    wait_s = period_s - now_s % period_s
    return wait_s if wait_s >= EARLY_S else wait_s + period_s
