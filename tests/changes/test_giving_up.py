"""A shard that is given up, or lost, is where its last finished batch ended, and nowhere else."""

from __future__ import annotations

import asyncio

import pytest

from rowtide.client.changes.shard_follower import ShardFollower
from rowtide.client.changes.worker import Batch, FollowerSettings
from rowtide.core.values.key_ranges import Ranges
from tests.changes.one_shard import LEASE, OneShard, SlowLeases


async def none(batch: Batch) -> None:
    """Handle nothing: nothing is to be handed over."""
    raise AssertionError(batch.shard_id)


async def test_a_renewal_that_waits_does_not_take_back_what_was_given_up() -> None:
    """The shard counted as not read again, and its last changes came twice."""
    leases = SlowLeases()
    await leases.create(LEASE)
    follower = ShardFollower(
        LEASE, OneShard(0), leases, none, FollowerSettings(), leased_s=0.0, clock=lambda: 0.0
    )
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(follower.run())
        await leases.asked.wait()
        tasks.create_task(follower.renew())
        await asyncio.sleep(0)
        leases.go.set()
    row = (await leases.all())["s1"]
    assert (row.owner, row.ended, row.counter) == ("", True, 2)
    assert follower.is_released


@pytest.mark.parametrize("pending", [(), ((b"", b""),)], ids=["changes", "rows"])
async def test_what_was_read_as_the_lease_ended_comes_again_though_a_renewal_saves_it(
    pending: Ranges,
) -> None:
    """Once such a page was not handed over, but the checkpoint was after it: it was lost."""
    lease, leases, source = LEASE._replace(pending=pending), SlowLeases(), OneShard(2)
    await leases.create(lease)
    now_s = 0.0
    follower = ShardFollower(
        lease, source, leases, none, FollowerSettings(), leased_s=0.0, clock=lambda: now_s
    )
    source.go.clear()
    async with asyncio.TaskGroup() as tasks:
        following = tasks.create_task(follower.run())
        await source.asked.wait()
        now_s = 4.0
        tasks.create_task(follower.renew())
        await leases.asked.wait()
        now_s = 5.5
        source.go.set()
        await asyncio.wait([following], timeout=1)
        leases.go.set()
    row = (await leases.all())["s1"]
    assert (row.position, row.pending, row.ended) == (lease.position, pending, False)
