"""Leases on a real broker: a slot's owner, the wait of its next owner, and the effect of
a release.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from rowtide.core.cluster.lease import RENEW
from rowtide.core.values.errors import Unavailable
from rowtide.stream.log.kafka.cluster import KafkaCluster
from rowtide.stream.log.topics import TopicSpec
from rowtide.stream.measures.clock import lease_clock
from rowtide.stream.shard.lapsed_lease import LeaseLapsed
from rowtide.stream.slot.lease.lease_keeper import LeaseKeeper
from rowtide.stream.slot.lease.lease_settings import LeaseSettings
from tests.support.waiting import SOON_S, until_async

pytestmark = pytest.mark.kafka

SLOT = 0
LEASE_S = 60.0
"""Much longer than a test, so a wait for its end is noticed."""
FIRST, SECOND = b"owner001", b"owner002"
ADDRESS = "first:1"


@asynccontextmanager
async def keeper(
    cluster: KafkaCluster,
    topic: str,
    owner: bytes,
    address: str,
    *,
    lease_s: float = LEASE_S,
    clock_s: Callable[[], float] = lease_clock,
) -> AsyncIterator[LeaseKeeper]:
    """A worker's leases, which follow those of others."""
    made = LeaseKeeper(
        cluster,
        topic,
        owner=owner,
        address=address,
        dead=(),
        settings=LeaseSettings(lease_s),
        clock_s=clock_s,
    )
    async with asyncio.TaskGroup() as tasks:
        watch = tasks.create_task(made.others.run(1), name=f"watch of {address}")
        yield made
        watch.cancel()


async def renew_once(keeper: LeaseKeeper) -> None:
    """Renew once; return when it is known what became of it."""
    async with asyncio.TaskGroup() as tasks:
        keeper.renew(tasks)


@pytest.fixture
async def first(cluster: KafkaCluster, topic: str) -> AsyncIterator[LeaseKeeper]:
    """The worker that holds the slot."""
    await cluster.create_topics([TopicSpec(topic)])
    async with keeper(cluster, topic, FIRST, ADDRESS) as made:
        await made.others.wait_until_read(SLOT)
        await made.claim(SLOT)
        yield made


async def test_another_worker_sees_who_holds_a_slot_until_it_is_released(
    cluster: KafkaCluster, topic: str, first: LeaseKeeper
) -> None:
    async with keeper(cluster, topic, SECOND, "second:1") as second:
        await second.others.wait_until_read(SLOT)
        assert second.others.holder(SLOT) == ADDRESS
        assert first.others.holder(SLOT) is None
        await first.release(SLOT)
        await second.claim(SLOT)  # It would take a minute, were the release not there.
        assert second.others.holder(SLOT) is None
        assert second.is_readable(SLOT)


async def test_a_release_stands_though_a_renewal_took_its_place(
    cluster: KafkaCluster, topic: str, first: LeaseKeeper
) -> None:
    held = first._held[SLOT]
    await held.log.append([(b"", first._record(held, RENEW))], deadline_s=SOON_S)  # On its way.
    await first.release(SLOT)
    async with keeper(cluster, topic, SECOND, "second:1") as second:
        began_s = lease_clock()
        await second.claim(SLOT)
        assert lease_clock() - began_s < LEASE_S


async def test_a_claim_that_was_watched_wrongly_is_made_where_the_log_ends(
    cluster: KafkaCluster, topic: str, first: LeaseKeeper
) -> None:
    async with keeper(cluster, topic, SECOND, "second:1") as second:
        await second.others.wait_until_read(SLOT)
        for _ in range(3):
            await renew_once(first)
        await first.release(SLOT)
        second.others._watched[SLOT].view.end = 1  # It has not read of the renewals yet.
        claim = await second.claim(SLOT)
        _, end = await cluster.log(topic).bounds()
        assert claim == end - 1
        assert await second.is_still_last(SLOT)


async def test_who_starts_later_waits_for_nobody_who_was_waited_for_already(
    cluster: KafkaCluster, topic: str
) -> None:
    await cluster.create_topics([TopicSpec(topic)])
    async with keeper(cluster, topic, FIRST, ADDRESS, lease_s=1.0) as dead:
        await dead.claim(SLOT)  # And it dies without a release.
    async with keeper(cluster, topic, SECOND, "second:1", lease_s=1.0) as second:
        await second.claim(SLOT)
        await renew_once(second)
        await second.release(SLOT)
    async with keeper(cluster, topic, b"owner003", "third:1") as third:
        began_s = lease_clock()
        await third.claim(SLOT)
        assert lease_clock() - began_s < LEASE_S


async def test_who_has_shorter_leases_waits_for_the_end_of_a_longer_one(
    cluster: KafkaCluster, topic: str
) -> None:
    await cluster.create_topics([TopicSpec(topic)])
    skipped_s = 0.0

    def clock_s() -> float:
        return lease_clock() + skipped_s

    began_s = clock_s()
    async with keeper(cluster, topic, FIRST, ADDRESS, lease_s=SOON_S, clock_s=clock_s) as cut_off:
        await cut_off.claim(SLOT)  # It is not read any more, but reads for as long as it may.
        async with keeper(
            cluster, topic, SECOND, "second:1", lease_s=1.0, clock_s=clock_s
        ) as second:
            await second.others.wait_until_read(SLOT)
            read_s = clock_s()
            await until_async(lambda: clock_s() - read_s > 1.0, "longer than a lease of its own")
            assert cut_off.is_readable(SLOT)
            assert second.others.find_abandoned_s(SLOT) is None
            assert second.others.holder(SLOT) == ADDRESS
            skipped_s = SOON_S - 0.5 - (clock_s() - began_s)  # The claim waits for the rest.
            await second.claim(SLOT)
            assert clock_s() - began_s > SOON_S
            assert not cut_off.is_readable(SLOT)


@pytest.mark.parametrize("claimed", [False, True])
async def test_a_starved_owner_goes_on_unless_another_worker_has_claimed(
    cluster: KafkaCluster, topic: str, *, claimed: bool
) -> None:
    """Its renewal, valid or void at its offset, shows which; requests wait for it."""
    await cluster.create_topics([TopicSpec(topic)])
    slept_s = [0.0]
    starved, other = (
        LeaseKeeper(
            cluster,
            topic,
            owner=owner,
            address="here:1",
            dead=dead,
            settings=LeaseSettings(LEASE_S),
            clock_s=lambda: lease_clock() + slept_s[0],
        )
        for owner, dead in ((FIRST, ()), (SECOND, (FIRST,)))
    )
    await starved.claim(SLOT)
    slept_s[0] += LEASE_S * 3
    met = starved.unreadable(SLOT)
    assert not starved.is_readable(SLOT)
    assert isinstance(met, LeaseLapsed)
    if claimed:
        await other.claim(SLOT)
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(_await_renewal(met), name="request")
        await asyncio.sleep(0)
        assert not waiting.done()
        starved.renew(tasks)
    assert starved.is_readable(SLOT) == (not claimed)
    assert starved.is_lost(SLOT) == claimed
    assert isinstance(starved.unreadable(SLOT), LeaseLapsed) == (not claimed)


async def _await_renewal(met: LeaseLapsed) -> None:
    await met.renewed()


async def test_a_slot_that_is_given_away_while_its_claim_waits_is_not_claimed(
    cluster: KafkaCluster, topic: str
) -> None:
    await cluster.create_topics([TopicSpec(topic)])
    read_s: float | None = None

    def clock_s() -> float:
        return lease_clock() if read_s is None else read_s

    async with keeper(cluster, topic, FIRST, ADDRESS, lease_s=1.0) as dead:
        await dead.claim(SLOT)  # And it dies without a release.
    async with keeper(cluster, topic, SECOND, "second:1", lease_s=1.0, clock_s=clock_s) as second:
        await second.others.wait_until_read(SLOT)
        # From here on the clock stands still: the claim waits, however late it is made.
        read_s = second.others._watched[SLOT].read_s
        async with asyncio.TaskGroup() as tasks:
            claim = tasks.create_task(is_refused(second), name="claim")
            while second.age_s(SLOT) is None:  # noqa: ASYNC110 - Without an event.
                await asyncio.sleep(0.01)
            await second.release(SLOT)
        assert claim.result()
        assert not second.is_readable(SLOT)


async def is_refused(keeper: LeaseKeeper) -> bool:
    """Claim the slot; return True if that was refused."""
    try:
        await keeper.claim(SLOT)
    except Unavailable:
        return True
    return False
