"""Waiting for what other processes and tasks do, which the test must poll for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from inspect import isawaitable

__all__ = ["POLL_S", "SOON_S", "until", "until_async"]

POLL_S = 0.05
S_MAX = 60.0
SOON_S = 20.0
"""What happens at once has this long: the tests without servers run beside busy neighbours."""


def until(
    holds: Callable[[], object],
    message: Callable[[], object] | str = "",
    *,
    s_max: float = S_MAX,
    poll_s: float = POLL_S,
    not_yet: tuple[type[Exception], ...] = (),
) -> float:
    """Return, in seconds, how long it took until something holds.

    Errors of the kinds ``not_yet`` mean that it does not hold yet. Fail with ``message``
    where it does not hold in time; a function is called only then.
    """
    began = time.monotonic()
    while not _holds(holds, not_yet):
        assert time.monotonic() - began < s_max, _failure(message, s_max)
        time.sleep(poll_s)  # There is nothing to wait on from outside.
    return time.monotonic() - began


def _holds(holds: Callable[[], object], not_yet: tuple[type[Exception], ...]) -> bool:
    try:
        return bool(holds())
    except not_yet:
        return False


async def until_async(
    holds: Callable[[], object],
    message: Callable[[], object] | str = "",
    *,
    s_max: float = S_MAX,
    poll_s: float = POLL_S,
    meanwhile: Callable[[], object] = bool,
) -> None:
    """Return once something holds, by the clock of the running loop, which may be virtual.

    ``holds`` may be a coroutine function; each look ends with the time that is left. Before each
    look that fails, ``meanwhile`` is called: a check that must hold all the time. Fail with
    ``message`` where it does not hold in time.
    """
    loop = asyncio.get_running_loop()
    ends_s = loop.time() + s_max
    while not await _look(holds, ends_s):
        assert loop.time() < ends_s, _failure(message, s_max)
        meanwhile()
        await asyncio.sleep(poll_s)


async def _look(holds: Callable[[], object], ends_s: float) -> object:
    found = holds()
    if isawaitable(found):
        async with asyncio.timeout_at(ends_s):
            return await found
    return found


def _failure(message: Callable[[], object] | str, s_max: float) -> str:
    return f"not in {s_max:g} s: {message if isinstance(message, str) else message()}"
