"""The slots of a worker: those of the group, and adopted ones until the group decides
otherwise.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar, cast

import pytest

from rowtide.core.values.errors import Unavailable
from rowtide.stream.cluster import roster as roster_module
from rowtide.stream.cluster.roster import OPENED_LOOK_S, Roster
from rowtide.stream.slot.opening import openings as openings_module
from rowtide.stream.slot.opening.openings import Openings
from rowtide.stream.slot.slot import Slot
from rowtide.stream.slot.standby.standby import Standby
from tests.support.waiting import SOON_S


class Counted:
    """Takes the place of a slot: runs until cancelled, counts its lives."""

    lives = 0
    opens = True

    def __init__(self) -> None:
        self.opened = asyncio.Event()
        self.openings = Openings()
        self.is_foreign = False
        self.drained = False

    async def run(self) -> None:
        Counted.lives += 1
        if Counted.opens:
            self.opened.set()
        await asyncio.Event().wait()

    def is_served_elsewhere(self) -> bool:
        return self.is_foreign

    async def drain(self) -> None:
        self.drained = True


@asynccontextmanager
async def running() -> AsyncIterator[Roster]:
    Counted.lives = 0
    async with asyncio.TaskGroup() as tasks:
        roster = Roster(lambda _number: cast(Slot, Counted()), tasks)
        yield roster
        await end_roster(roster)


async def end_roster(roster: Roster) -> None:
    """Let a roster end as a worker does."""
    roster.close()
    roster.hurry()
    await roster.wait_until_ended()
    roster.stop()


async def settle(roster: Roster) -> None:
    """Let its keepers go as far as they go."""
    for _ in range(20):
        await asyncio.sleep(0)
    await roster.wait_until_open()


async def test_an_adopted_slot_is_given_up_to_who_claims_it() -> None:
    async with running() as roster:
        roster.adopt(3)
        await settle(roster)
        assert list(roster.slots) == [3]
        assert roster.give_way(3)
        await settle(roster)
        assert list(roster.slots) == []


async def test_a_slot_that_the_group_gave_is_claimed_back() -> None:
    async with running() as roster:
        roster.assign(frozenset({3}))
        await settle(roster)
        assert not roster.give_way(3)
        assert list(roster.slots) == [3]


async def test_an_adopted_slot_that_the_group_gives_too_goes_on_and_is_kept() -> None:
    async with running() as roster:
        roster.adopt(3)
        await settle(roster)
        roster.assign(frozenset({3}))
        await settle(roster)
        assert not roster.give_way(3)
        assert Counted.lives == 1


async def test_one_that_was_given_up_may_be_given_again() -> None:
    async with running() as roster:
        roster.adopt(3)
        await settle(roster)
        roster.give_way(3)
        roster.assign(frozenset({3}))
        await settle(roster)
        assert list(roster.slots) == [3]
        assert Counted.lives == 2


async def test_a_slot_that_the_group_took_is_served_until_another_worker_asks_for_it() -> None:
    async with running() as roster:
        roster.assign(frozenset({3}))
        await settle(roster)
        roster.revoke(frozenset({3}))
        await settle(roster)
        assert list(roster.slots) == [3]
        [slot] = roster.slots.values()
        await roster.hand_over(3)
        assert cast(Counted, slot).drained
        assert list(roster.slots) == []


async def test_a_slot_that_was_taken_and_given_back_unasked_goes_on() -> None:
    async with running() as roster:
        roster.assign(frozenset({3}))
        await settle(roster)
        roster.revoke(frozenset({3}))
        roster.assign(frozenset({3}))
        await settle(roster)
        assert list(roster.slots) == [3]
        assert Counted.lives == 1


async def test_a_slot_that_we_have_not_got_yet_is_given_up_at_once() -> None:
    async with running() as roster:
        roster.assign(frozenset({3}))
        await settle(roster)
        cast(Any, roster.slots[3]).is_foreign = True
        roster.revoke(frozenset({3}))
        await settle(roster)
        assert list(roster.slots) == []


async def test_whoever_asks_for_an_adopted_slot_gets_it() -> None:
    async with running() as roster:
        roster.adopt(3)
        await settle(roster)
        await roster.hand_over(3)
        assert list(roster.slots) == []


async def test_a_slot_that_is_ours_is_not_given_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roster_module, "KEPT_S", 0.0)
    async with running() as roster:
        roster.assign(frozenset({3}))
        await settle(roster)
        with pytest.raises(Unavailable):
            await roster.hand_over(3)
        assert list(roster.slots) == [3]


async def test_whoever_asks_before_the_group_has_told_us_waits_for_that() -> None:
    async with running() as roster, asyncio.TaskGroup() as tasks:
        roster.assign(frozenset({3}))
        await settle(roster)
        asked = tasks.create_task(roster.hand_over(3), name="asks")
        await settle(roster)
        assert not asked.done()
        roster.revoke(frozenset({3}))
        await asked
        assert list(roster.slots) == []


async def test_a_slot_that_comes_back_before_who_asks_is_heard_is_kept() -> None:
    async with running() as roster:
        roster.assign(frozenset({3}))
        await settle(roster)
        asked: list[Exception] = []

        async def ask() -> None:
            try:
                await roster.hand_over(3)
            except Unavailable as error:
                asked.append(error)

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(ask(), name="asks")
            await settle(roster)
            roster.revoke(frozenset({3}))
            roster.assign(frozenset({3}))
        assert len(asked) == 1
        await settle(roster)
        assert list(roster.slots) == [3]
        assert Counted.lives == 1


async def test_a_closed_roster_serves_on_and_takes_nothing_until_reopened() -> None:
    async with running() as roster:
        roster.assign(frozenset({3}))
        await settle(roster)
        roster.close()
        roster.assign(frozenset({4}))
        roster.adopt(5)
        await settle(roster)
        assert list(roster.slots) == [3]
        await roster.hand_over(3)
        roster.reopen()
        roster.assign(frozenset({4}))
        await settle(roster)
        assert list(roster.slots) == [4]


async def test_a_slot_that_is_taken_away_before_it_opens_keeps_nobody_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Counted, "opens", False)
    async with running() as roster:
        roster.assign(frozenset({3}))
        async with asyncio.TaskGroup() as tasks:
            for _ in range(20):
                await asyncio.sleep(0)
            assert list(roster.slots) == [3]
            opened = tasks.create_task(roster.wait_until_open())
            await asyncio.sleep(0)
            assert not opened.done()
            roster.revoke(frozenset({3}))
            async with asyncio.timeout(SOON_S):
                await opened


class Copied:
    """Takes the place of a standby: runs until cancelled, and then is closed."""

    left: ClassVar[dict[str, object]] = {"s1": "what it knew"}
    is_warm = True

    def __init__(self, order: list[str]) -> None:
        self._order = order

    async def run(self) -> None:
        self._order.append("copy runs")
        try:
            await asyncio.Event().wait()
        finally:
            self._order.append("copy closes")


class Ordered(Counted):
    """A slot that says when it runs and ends."""

    def __init__(self, order: list[str]) -> None:
        super().__init__()
        self._order = order

    async def run(self) -> None:
        self._order.append("slot runs")
        try:
            await super().run()
        finally:
            self._order.append("slot closes")


@asynccontextmanager
async def with_copies() -> AsyncIterator[tuple[Roster, list[str]]]:
    order: list[str] = []
    async with asyncio.TaskGroup() as tasks:
        roster = Roster(
            lambda _number: cast(Slot, Ordered(order)),
            tasks,
            lambda _number: cast(Standby, Copied(order)),
        )
        yield roster, order
        await end_roster(roster)


async def test_a_slot_opens_once_its_copy_has_closed_and_the_other_way_round() -> None:
    async with with_copies() as (roster, order):
        roster.stand_by(frozenset({3}))
        await settle(roster)
        assert list(roster.standbys) == [3]
        roster.stand_by(frozenset())
        roster.assign(frozenset({3}))
        await settle(roster)
        assert (list(roster.slots), list(roster.standbys)) == ([3], [])
        roster.stand_by(frozenset({3}))
        roster.revoke(frozenset({3}))
        await roster.hand_over(3)
        await settle(roster)
        assert (list(roster.slots), list(roster.standbys)) == ([], [3])
    events = ["copy runs", "copy closes", "slot runs", "slot closes", "copy runs", "copy closes"]
    assert order == events


async def test_an_adopted_slot_has_no_copy_here_until_it_is_given_up() -> None:
    async with with_copies() as (roster, order):
        roster.stand_by(frozenset({3}))
        await settle(roster)
        roster.adopt(3)
        assert roster.is_ours(3)
        await settle(roster)
        assert (list(roster.slots), list(roster.standbys)) == ([3], [])
        assert roster.give_way(3)
        await settle(roster)
        assert (list(roster.slots), list(roster.standbys)) == ([], [3])
    assert order[:4] == ["copy runs", "copy closes", "slot runs", "slot closes"]


async def test_what_a_copy_knew_is_there_for_the_next_life_of_its_slot_alone() -> None:
    order: list[str] = []
    known: list[object] = []
    async with asyncio.TaskGroup() as tasks:

        def new_slot(number: int) -> Slot:
            known.append(roster.left.get(number))
            return cast(Slot, Ordered(order))

        roster = Roster(new_slot, tasks, lambda _number: cast(Standby, Copied(order)))
        roster.stand_by(frozenset({3}))
        await settle(roster)
        roster.assign(frozenset({3}))
        await settle(roster)
        roster.stand_by(frozenset())
        roster.revoke(frozenset({3}))
        await roster.hand_over(3)
        await settle(roster)
        roster.assign(frozenset({3}))
        await settle(roster)
        await end_roster(roster)
    assert known == [Copied.left, None]


async def test_what_a_slot_left_on_disk_goes_in_its_time_and_not_while_it_runs() -> None:
    """Rows that went elsewhere stayed until the disk was full."""
    looked: list[bool] = []
    gone = asyncio.Event()

    def remove(number: int) -> float:
        assert number == 3
        looked.append(number in roster.slots)
        if len(looked) < 3:
            return 0.01
        gone.set()
        return math.inf

    async with asyncio.TaskGroup() as tasks:
        roster = Roster(lambda _number: cast(Slot, Counted()), tasks, None, remove)
        roster.assign(frozenset({3}))
        await settle(roster)
        assert looked == []
        roster.revoke(frozenset({3}))
        await roster.hand_over(3)
        async with asyncio.timeout(SOON_S):
            await gone.wait()
        assert looked == [False, False, False]
        roster.assign(frozenset({3}))
        await settle(roster)
        await end_roster(roster)


async def test_a_slot_counts_as_not_open_while_files_of_its_former_life_are_removed() -> None:
    """A worker said that it was ready, and its first requests failed."""
    began, may_end = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def remove(_number: int) -> float:
        loop.call_soon_threadsafe(began.set)
        may_end.wait(10)
        return math.inf

    async with asyncio.TaskGroup() as tasks:
        roster = Roster(lambda _number: cast(Slot, Counted()), tasks, None, remove)
        roster.look_after([3])
        await began.wait()
        roster.assign(frozenset({3}))
        opened = tasks.create_task(roster.wait_until_open())
        await asyncio.sleep(0)
        assert not opened.done()
        may_end.set()
        await opened
        assert roster.slots[3].opened.is_set()
        await end_roster(roster)


async def test_a_slot_that_is_given_up_keeps_no_worker_from_serving(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A worker whose log had lost its end never answered, not even what the fault was."""
    monkeypatch.setattr(Counted, "opens", False)
    async with running() as roster, asyncio.TaskGroup() as tasks:
        roster.assign(frozenset({3}))
        opened = tasks.create_task(roster.wait_until_open())
        for _ in range(20):
            await asyncio.sleep(0)
        openings = roster.slots[3].openings
        openings.note_end(Unavailable("the log does not answer"), opened=False)
        await asyncio.sleep(2 * OPENED_LOOK_S)
        assert not opened.done()
        monkeypatch.setattr(openings_module, "PATIENCE_S", 0.0)
        async with asyncio.timeout(SOON_S):
            await opened
