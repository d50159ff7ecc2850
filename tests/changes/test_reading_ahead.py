"""The next page is read while a batch is handled; none is left out or comes too early for that."""

from __future__ import annotations

import asyncio

import pytest

from rowtide.client.changes.leases import MemoryLeases, ReaderLease
from rowtide.client.changes.shard_follower import ShardFollower
from rowtide.client.changes.worker import Batch, FollowerSettings
from rowtide.core.values.errors import LogTrimmed, Unavailable
from tests.changes.one_shard import LEASE, OneShard


class Handler:
    """Handles a batch only once the next page was requested. It can fail a number of times."""

    def __init__(self, source: OneShard, failures: int) -> None:
        self.handled: list[int] = []
        self._source = source
        self._failures = failures

    async def __call__(self, batch: Batch) -> None:
        [change] = batch
        while change.sequence < 2 and change.sequence + 1 not in self._source.asked_for:
            self._source.asked.clear()
            await self._source.asked.wait()
        if self._failures:
            self._failures -= 1
            raise Unavailable
        self.handled.append(change.sequence)


async def follow_shard(source: OneShard, handler: Handler) -> None:
    leases = MemoryLeases()
    await leases.create(LEASE)
    follower = ShardFollower(
        LEASE, source, leases, handler, FollowerSettings(), leased_s=0.0, clock=lambda: 0.0
    )
    async with asyncio.timeout(30):
        await follower.run()
    assert (await leases.all())["s1"].ended


async def test_the_next_page_is_asked_for_before_a_batch_is_handled() -> None:
    source = OneShard(3)
    handler = Handler(source, 0)
    await follow_shard(source, handler)
    assert handler.handled == source.asked_for == [0, 1, 2]


async def test_a_page_that_could_not_be_read_ahead_is_asked_for_again() -> None:
    source = OneShard(3, {1: Unavailable()})
    handler = Handler(source, 0)
    await follow_shard(source, handler)
    assert handler.handled == [0, 1, 2]
    assert source.asked_for == [0, 1, 1, 2]


async def test_a_batch_that_was_not_handled_comes_again_before_what_was_read_ahead() -> None:
    source = OneShard(3)
    handler = Handler(source, 1)
    await follow_shard(source, handler)
    assert handler.handled == [0, 1, 2]


async def test_what_ends_a_reader_comes_once_the_batch_in_hand_is_handled() -> None:
    source = OneShard(3, {1: LogTrimmed()})
    handler = Handler(source, 0)
    with pytest.raises(LogTrimmed):
        await follow_shard(source, handler)
    assert handler.handled == [0]


class Failing(MemoryLeases):
    """Leases whose first changes fail."""

    failures = 2

    async def change(self, old: ReaderLease, new: ReaderLease) -> ReaderLease:
        """Replace a row, later on."""
        if self.failures:
            self.failures -= 1
            raise Unavailable
        return await super().change(old, new)


async def test_a_checkpoint_that_fails_at_a_shards_end_repeats_nothing() -> None:
    """What came last was read once more, and passed on, by a reader that had lost nothing."""
    leases = Failing()
    await leases.create(LEASE)
    handled: list[int] = []

    async def handle(batch: Batch) -> None:
        handled.extend(change.sequence for change in batch)

    settings = FollowerSettings(checkpoint_s=0.0)
    follower = ShardFollower(
        LEASE, OneShard(2), leases, handle, settings, leased_s=0.0, clock=lambda: 0.0
    )
    async with asyncio.timeout(30):
        await follower.run()
    assert handled == [0, 1]
    assert (await leases.all())["s1"].ended
