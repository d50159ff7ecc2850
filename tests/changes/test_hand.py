"""A batch that was withdrawn with its lease has no owner, and the next caller gets the
next batch.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from rowtide.client.changes.reader import Hand
from rowtide.client.changes.worker import Batch
from rowtide.core.values.errors import LogTrimmed
from tests.support.waiting import SOON_S

TURNS = 20


def batch(name: str) -> Batch:
    return Batch("t", name, ())


async def turns() -> None:
    """Let every task go on as far as it can."""
    for _ in range(TURNS):
        await asyncio.sleep(0)


async def next_of(batches: AsyncIterator[Batch]) -> str:
    async with asyncio.timeout(SOON_S):
        return (await anext(batches)).shard_id


async def test_a_batch_is_finished_once_the_next_one_is_asked_for() -> None:
    hand = Hand()
    batches = hand.batches()
    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(hand.give(batch("a")))
        assert await next_of(batches) == "a"
        second = tasks.create_task(hand.give(batch("b")))
        await turns()
        assert not first.done()
        assert await next_of(batches) == "b"
        await turns()
        assert first.done()
        assert not second.done()
        second.cancel()


async def test_to_finish_a_batch_that_was_taken_away_finishes_no_other() -> None:
    hand = Hand()
    batches = hand.batches()
    async with asyncio.TaskGroup() as tasks:
        lost = tasks.create_task(hand.give(batch("a")))
        assert await next_of(batches) == "a"
        lost.cancel()
        given = tasks.create_task(hand.give(batch("b")))
        await turns()
        assert await next_of(batches) == "b"
        await turns()
        assert not given.done()
        later = tasks.create_task(hand.give(batch("c")))
        assert await next_of(batches) == "c"
        await turns()
        assert given.done()
        assert not later.done()
        later.cancel()


async def test_a_batch_that_was_taken_away_before_it_was_asked_for_does_not_come() -> None:
    hand = Hand()
    batches = hand.batches()
    async with asyncio.TaskGroup() as tasks:
        lost = tasks.create_task(hand.give(batch("a")))
        await turns()
        lost.cancel()
        await turns()
        given = tasks.create_task(hand.give(batch("b")))
        assert await next_of(batches) == "b"
        await turns()
        assert not given.done()
        given.cancel()


async def test_what_ends_a_reader_is_told_where_its_last_batch_was_taken_away() -> None:
    hand = Hand()

    async def fail_with_a_batch_given() -> None:
        async with asyncio.TaskGroup() as tasks:
            giving = tasks.create_task(hand.give(batch("a")))
            await turns()
            giving.cancel()
        raise LogTrimmed

    async with asyncio.timeout(SOON_S):
        await hand.run(fail_with_a_batch_given())
    with pytest.raises(LogTrimmed):
        await next_of(hand.batches())
