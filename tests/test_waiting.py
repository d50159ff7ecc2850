"""Waits of the tests: they end as soon as something holds, and say why they fail."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from tests.simulation.virtual_time import in_virtual_time
from tests.support.waiting import until, until_async


def third_time(holds: Callable[[], bool] = lambda: True) -> Callable[[], bool]:
    """Return what holds when it is called for the third time."""
    looks: Iterator[bool] = iter([False, False, holds()])
    return lambda: next(looks)


def test_it_ends_when_it_holds() -> None:
    assert 0.002 <= until(third_time(), poll_s=0.001) < 60


def test_an_error_that_may_come_first_is_not_yet() -> None:
    def look() -> bool:
        if not came:
            came.append(True)
            raise LookupError
        return True

    came: list[bool] = []
    until(look, not_yet=(LookupError,), poll_s=0.001)
    with pytest.raises(ValueError, match="another"):
        until(lambda: int("another"), not_yet=(LookupError,))


@pytest.mark.parametrize(
    "message", ["two of three", lambda: "two of three"], ids=["text", "function"]
)
def test_it_fails_in_time_and_says_why(message: Callable[[], object] | str) -> None:
    with pytest.raises(AssertionError, match=r"not in 0\.01 s: two of three"):
        until(lambda: False, message=message, s_max=0.01, poll_s=0.001)


def test_a_coroutine_waits_by_the_clock_of_its_loop() -> None:
    checked: list[float] = []

    async def program() -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        await until_async(third_time(), poll_s=100, s_max=1000, meanwhile=lambda: checked.append(1))
        assert loop.time() - began == 200
        with pytest.raises(AssertionError, match="not in 1000 s: never"):
            await until_async(lambda: False, message="never", s_max=1000, poll_s=100)

    in_virtual_time(program())
    assert len(checked) == 2


def test_a_look_may_itself_wait_but_not_for_longer_than_all_may() -> None:
    async def program() -> None:
        looks = third_time()

        async def look() -> bool:
            await asyncio.sleep(50)
            return looks()

        began = asyncio.get_running_loop().time()
        await until_async(look, poll_s=100, s_max=1000)
        assert asyncio.get_running_loop().time() - began == 350
        with pytest.raises(TimeoutError):
            await until_async(lambda: asyncio.sleep(5000), s_max=1000)

    in_virtual_time(program())
