"""The slots of a worker: those the group gave it, and those it adopted until told otherwise."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

from rowtide.stream.roster import Roster
from rowtide.stream.slot import Slot


class Counted:
    """Stands for a slot: runs until cancelled, counts its lives."""

    lives = 0

    def __init__(self) -> None:
        self.opened = asyncio.Event()
        self.drained = False

    async def run(self) -> None:
        Counted.lives += 1
        self.opened.set()
        await asyncio.Event().wait()

    async def drain(self) -> None:
        self.drained = True


@asynccontextmanager
async def running() -> AsyncIterator[Roster]:
    Counted.lives = 0
    async with asyncio.TaskGroup() as tasks:
        roster = Roster(lambda _number: cast(Slot, Counted()), tasks)
        yield roster
        await roster.stop()


async def settle(roster: Roster) -> None:
    """Let its keepers go as far as they go."""
    for _ in range(20):
        await asyncio.sleep(0)
    await roster.opened()


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
