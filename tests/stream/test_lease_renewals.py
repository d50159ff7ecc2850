"""A renewal counts here only where it counts for everybody else: at the offset that it names."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import cast

import pytest

from rowtide.core.cluster.lease import CLAIM, RENEW
from rowtide.core.values.errors import Unavailable
from rowtide.stream.log.cluster import Appends, LogCluster
from rowtide.stream.log.log import Log
from rowtide.stream.slot.lease.held_leases import UNREAD, Watched
from rowtide.stream.slot.lease.lease_keeper import LeaseKeeper
from rowtide.stream.slot.lease.lease_settings import LeaseSettings
from tests.contract.memory_log import Fault, MemoryLog
from tests.simulation.virtual_time import in_virtual_time

SLOT, LEASE_S = 0, 1.0


class Cluster:
    """One lease partition, in memory.

    ``late`` lands, and is read, before the next renewals do, ``behind`` before these are answered.
    """

    def __init__(self) -> None:
        self.partition = MemoryLog()
        self.late: bytes | None = None
        self.behind: bytes | None = None
        self.fault: Fault | None = None
        """What the first append of the next handle meets."""
        self.keeper: LeaseKeeper

    def log(self, _topic: str, _partition: int) -> MemoryLog:
        twin = self.partition.twin()
        twin.fault, self.fault = self.fault, None
        return twin

    def leader(self, _log: Log) -> None:
        """Return the leader of a log: there is one broker."""

    async def append_many(self, items: Appends, *, deadline_s: float) -> Sequence[int]:
        if self.late is not None:
            await self.partition.append([(b"", self.late)], deadline_s=deadline_s)
            self.late = None
            assert await self.keeper.is_still_last(SLOT)
        answers = [await log.append(entries, deadline_s=deadline_s) for log, entries in items]
        if self.behind is not None:
            await self.partition.append([(b"", self.behind)], deadline_s=deadline_s)
            self.behind = None
            held = self.keeper._held[SLOT]
            await self.keeper._read_to_end(held.log, held.view)
        return answers


def keeper_of(
    cluster: Cluster, owner: bytes, now_s: list[float], *, dead: Collection[bytes] = ()
) -> LeaseKeeper:
    return LeaseKeeper(
        cast(LogCluster, cluster),
        "leases",
        owner=owner,
        address="here:1",
        dead=dead,
        settings=LeaseSettings(LEASE_S),
        clock_s=lambda: now_s[0],
    )


async def renew(keeper: LeaseKeeper) -> None:
    """Renew once; return when it is known what became of it."""
    async with asyncio.TaskGroup() as tasks:
        keeper.renew(tasks)


async def test_a_renewal_behind_one_that_landed_late_does_not_lengthen_the_lease() -> None:
    cluster, now_s = Cluster(), [10.0]
    keeper = cluster.keeper = keeper_of(cluster, b"ownerid1", now_s)
    await keeper.claim(SLOT)
    late = keeper._record(keeper._held[SLOT], RENEW)
    await renew(keeper)  # It takes the place that the one which is late has named.
    cluster.late = late
    now_s[0] += LEASE_S * 0.9
    await renew(keeper)
    now_s[0] += LEASE_S * 0.9
    assert not keeper.is_readable(SLOT), "no reader of the leases takes the last renewal for one"
    await renew(keeper)
    assert keeper.is_readable(SLOT)


async def test_a_claim_is_proven_to_be_the_last_by_what_is_written_after_the_question() -> None:
    cluster = Cluster()
    keeper = keeper_of(cluster, b"ownerid1", [10.0])
    await keeper.claim(SLOT)
    _, before = await cluster.partition.bounds()
    async with asyncio.TaskGroup() as tasks:
        asked = [tasks.create_task(keeper.is_still_last(SLOT), name=f"{n}") for n in range(20)]
        tasks.create_task(renew(keeper), name="a renewal in its way")
    assert all(one.result() for one in asked)
    _, after = await cluster.partition.bounds()
    assert 1 < after - before < 6, "one for who came first, one for the others, a renewal"
    await renew(keeper)
    assert keeper.is_readable(SLOT)


async def test_a_renewal_of_which_nobody_knows_proves_nothing() -> None:
    cluster = Cluster()
    keeper = keeper_of(cluster, b"ownerid1", [10.0])
    await keeper.claim(SLOT)
    _, before = await cluster.partition.bounds()
    cluster.fault = Fault.LOST_ANSWER
    assert await keeper.is_still_last(SLOT)
    _, after = await cluster.partition.bounds()
    assert after - before == 3, "one unheard, one void behind it, one that stands"


async def test_a_later_claim_is_found_by_what_can_not_be_written_before_it() -> None:
    cluster = Cluster()
    first, second = (keeper_of(cluster, owner, [10.0]) for owner in (b"ownerid1", b"ownerid2"))
    at = await first.claim(SLOT) + 1
    claim = second._encode_record(at, CLAIM, at)
    await cluster.partition.append([(b"", claim)], deadline_s=1.0)
    assert not await first.is_still_last(SLOT)
    assert first.is_lost(SLOT)
    _, end = await cluster.partition.bounds()
    assert not await first.is_still_last(SLOT)
    assert (await cluster.partition.bounds())[1] == end, "nothing more is written under it"


async def test_what_is_trimmed_leaves_a_former_owner_something_to_find_the_later_claim_by() -> None:
    """Seed 3261442 found it: two workers read, and wrote, under their claims side by side."""
    cluster = Cluster()
    first = keeper_of(cluster, b"ownerid1", [10.0])
    await first.claim(SLOT)
    cluster.keeper = keeper_of(cluster, b"ownerid2", [10.0], dead=[b"ownerid1"])
    await cluster.keeper.claim(SLOT)
    cluster.behind = first._record(first._held[SLOT], RENEW)
    await renew(cluster.keeper)
    start, end = await cluster.partition.bounds()
    assert (start, end) == (2, 4), "a renewal, and one that is void"
    assert not await first.is_still_last(SLOT)
    assert first.is_lost(SLOT)


@pytest.mark.parametrize("trimmed", [False, True])
def test_a_claim_yields_to_one_that_was_not_heard_of_but_the_next_one_does_not(
    *, trimmed: bool
) -> None:
    """The slot's new owner is asked for it first. The watch, which should know that
    owner, may lag, as behind a deposed broker. Then the slot can be claimed anyway.
    """

    async def program() -> None:
        cluster, now_s = Cluster(), [10.0]
        first, second, third = (keeper_of(cluster, b"ownerid%d" % n, now_s) for n in range(3))
        watched = second.others._watched[SLOT] = Watched(cluster.partition.twin())
        await third.claim(SLOT)
        entries = await watched.log.read(0, bytes_max=1000)
        watched.view.end = 0
        second.others._learn(SLOT, watched, entries, now_s[0])
        await first.claim(SLOT)
        if trimmed:
            await cluster.partition.trim(1)
            watched.view.end = UNREAD
        with pytest.raises(Unavailable):
            await second.claim(SLOT)
        assert second.age_s(SLOT) is None
        assert first.is_readable(SLOT)
        assert await second.claim(SLOT) > first._held[SLOT].claim
        assert not await first.is_still_last(SLOT)

    in_virtual_time(program())
