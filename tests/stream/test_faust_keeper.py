"""A worker stays in its group whatever becomes of Faust's app, or it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import pytest

from rowtide.stream.worker import faust_membership
from rowtide.stream.worker.faust_app import SlotApp
from rowtide.stream.worker.faust_config import MembershipConfig
from rowtide.stream.worker.faust_membership import Membership, _Keeper
from tests.support.waiting import SOON_S

CONFIG = MembershipConfig(
    bootstrap="127.0.0.1:1",
    group="g",
    instance="a",
    address="a:1",
    slots=1,
    session_timeout_ms=1000,
)


class Apps:
    """Makes apps, the first of which loses its broker and then fails as set."""

    def __init__(self, *, making: bool = False, stopping: BaseException | None = None) -> None:
        self.made = 0
        self.second = asyncio.Event()
        self._making = making
        self._stopping = stopping

    def __call__(self) -> SlotApp:
        self.made += 1
        if self._making and self.made == 2:
            raise OSError("a file of certificates is away")
        return cast(SlotApp, App(self, self._stopping if self.made == 1 else None))


class App:
    """Takes the place of Faust's."""

    leaving = False

    def __init__(self, apps: Apps, stopping: BaseException | None) -> None:
        self._apps = apps
        self._stopping = stopping
        self._first = apps.made == 1

    async def run(self, on_running: Callable[[], None]) -> BaseException:
        on_running()
        if self._first:
            return ConnectionError("the broker went away")
        self._apps.second.set()
        await asyncio.Event().wait()
        raise AssertionError

    async def stop(self) -> None:
        if self._stopping is not None:
            raise self._stopping


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faust_membership, "PAUSE_S_MIN", 0.001)


@pytest.mark.parametrize("failure", [RuntimeError("no loop"), asyncio.CancelledError(), None])
@pytest.mark.parametrize("making", [False, True])
async def test_an_app_that_ends_is_followed_by_another_however_it_ends(
    failure: BaseException | None, making: bool
) -> None:
    lost: list[str] = []
    apps = Apps(making=making, stopping=failure)
    keeper = _Keeper(apps, lambda: lost.append("lost"))
    await keeper.start()
    await keeper.joined
    async with asyncio.timeout(SOON_S):
        await apps.second.wait()
    await keeper.stop()
    assert apps.made == 2 + making
    assert not lost


async def test_a_worker_hears_of_a_group_that_is_kept_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lost = asyncio.Event()
    nothing: Callable[[frozenset[int]], None] = lambda _slots: None  # noqa: E731
    membership = Membership(CONFIG, on_assigned=nothing, on_revoked=nothing, on_lost=lost.set)
    monkeypatch.setattr(Membership, "_new_app", lambda _self: Apps()())

    async def fails(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(_Keeper, "sleep", fails)  # Between two apps, where nothing is expected.
    await membership.start()
    async with asyncio.timeout(SOON_S):
        await lost.wait()
    await membership.stop()
