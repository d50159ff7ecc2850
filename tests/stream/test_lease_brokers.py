"""Leases that several brokers lead: a silent or slow one delays only those that it leads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from typing import cast

from rowtide.core.cluster.lease import RENEW, decode_lease
from rowtide.core.values.errors import OutcomeUnknown, StoreError
from rowtide.stream.log.cluster import Appends, LogCluster, Reads
from rowtide.stream.log.log import Entry
from rowtide.stream.slot.lease.lease_keeper import LeaseKeeper
from rowtide.stream.slot.lease.lease_settings import LeaseSettings
from tests.contract.memory_log import MemoryLog, Pairs
from tests.simulation.virtual_time import in_virtual_time

LEASE = LeaseSettings(1.0)
STEP_S = 0.01
AT_FIRST, AT_SECOND = (0, 2), (1, 3)
"""The slots whose leases the first broker leads, and the second."""


class Broker:
    """One that may be silent, take nothing or be slow to trim."""

    def __init__(self) -> None:
        self.answers, self.takes, self.trims = (asyncio.Event() for _ in range(3))
        for able in (self.answers, self.takes, self.trims):
            able.set()
        self.requests = 0
        """Of renewals."""


class BrokersLog(MemoryLog):
    """A log that one broker leads."""

    broker: Broker

    async def read(self, offset: int, *, bytes_max: int, wait_s: float = 0.0) -> list[Entry]:
        await self.broker.answers.wait()
        return await super().read(offset, bytes_max=bytes_max, wait_s=wait_s)

    async def bounds(self) -> tuple[int, int]:
        await self.broker.answers.wait()
        return await super().bounds()

    async def end(self) -> int:
        await self.broker.answers.wait()
        return await super().end()

    async def trim(self, before: int) -> None:
        await self.broker.trims.wait()
        await super().trim(before)


class Cluster:
    """Two brokers, which lead every other log."""

    def __init__(self) -> None:
        self.brokers = [Broker(), Broker()]
        self.logs = [BrokersLog(f"leases[{slot}]") for slot in range(4)]
        for slot, log in enumerate(self.logs):
            log.broker = self.brokers[slot % 2]

    def log(self, _topic: str, slot: int) -> BrokersLog:
        twin = self.logs[slot].twin()
        twin.broker = self.logs[slot].broker
        return twin

    def leader(self, log: BrokersLog) -> int:
        return self.brokers.index(log.broker)

    async def append_many(self, items: Appends, *, deadline_s: float) -> list[int | StoreError]:
        asked = {cast(BrokersLog, log).broker for log, _ in items}
        for broker in asked:
            broker.requests += 1
        outcomes = [await self._append(cast(BrokersLog, log), entries) for log, entries in items]
        if any(isinstance(one, OutcomeUnknown) for one in outcomes):
            await asyncio.sleep(deadline_s)
        return outcomes

    async def _append(self, log: BrokersLog, entries: Pairs) -> int | StoreError:
        if not (log.broker.answers.is_set() and log.broker.takes.is_set()):
            return OutcomeUnknown(f"append to {log.name}: no answer")
        return await log.append(entries, deadline_s=1.0)

    async def read_many(
        self, items: Reads, *, bytes_max: int, wait_s: float
    ) -> list[list[Entry] | StoreError]:
        for log in {cast(BrokersLog, log).broker: log for log, _ in items}.values():
            await cast(BrokersLog, log).broker.answers.wait()
        await asyncio.sleep(wait_s)
        answers: list[list[Entry] | StoreError] = []
        for log, offset in items:
            try:
                answers.append(await log.read(offset, bytes_max=bytes_max))
            except StoreError as error:
                answers.append(error)
        return answers


def keeper_of(
    cluster: Cluster,
    owner: bytes = b"ownerid1",
    *,
    address: str = "here:1",
    dead: Collection[bytes] = (),
) -> LeaseKeeper:
    clock_s = asyncio.get_running_loop().time
    made = LeaseKeeper(
        cast(LogCluster, cluster),
        "leases",
        owner=owner,
        address=address,
        dead=dead,
        settings=LEASE,
        clock_s=clock_s,
    )
    return made


@asynccontextmanager
async def renewing(cluster: Cluster) -> AsyncIterator[LeaseKeeper]:
    """A worker that has claimed all slots, and trimmed what was before."""
    keeper = keeper_of(cluster)
    for slot in range(4):
        await keeper.claim(slot)
    async with asyncio.TaskGroup() as tasks:
        renewals = tasks.create_task(keeper.run(), name="renewals")
        await asyncio.sleep(LEASE.lease_s)
        yield keeper
        renewals.cancel()


@asynccontextmanager
async def following(
    cluster: Cluster, *, dead: Collection[bytes] = ()
) -> AsyncIterator[LeaseKeeper]:
    """Another worker, which follows the leases of all slots."""
    keeper = keeper_of(cluster, b"ownerid2", dead=dead)
    async with asyncio.TaskGroup() as tasks:
        watch = tasks.create_task(keeper.others.run(4), name="watch")
        yield keeper
        watch.cancel()


async def find_kept(keeper: LeaseKeeper, slots: Collection[int], seconds: float) -> list[int]:
    """Look again and again for so long; return which of the slots kept their leases."""
    kept = set(slots)
    for _ in range(round(seconds / STEP_S)):
        kept -= {slot for slot in kept if not keeper.is_readable(slot)}
        await asyncio.sleep(STEP_S)
    return sorted(kept)


async def find_abandoned(keeper: LeaseKeeper, slots: Sequence[int], seconds: float) -> set[int]:
    """Check repeatedly for so long; return the slots that seemed to have no owner."""
    found: set[int] = set()
    for _ in range(round(seconds / STEP_S)):
        found |= {slot for slot in slots if keeper.others.find_abandoned_s(slot) is not None}
        await asyncio.sleep(STEP_S)
    return found


def test_a_silent_broker_ends_those_leases_alone_that_it_leads() -> None:
    async def program() -> None:
        cluster = Cluster()
        async with renewing(cluster) as keeper:
            cluster.brokers[0].answers.clear()
            assert await find_kept(keeper, range(4), 10.0) == list(AT_SECOND)
            assert not any(keeper.is_readable(slot) for slot in AT_FIRST)
            cluster.brokers[0].answers.set()
            await asyncio.sleep(LEASE.lease_s)
            assert await find_kept(keeper, range(4), 10.0) == [0, 1, 2, 3]

    in_virtual_time(program())


def test_a_broker_that_is_slow_to_trim_ends_no_lease() -> None:
    async def program() -> None:
        cluster = Cluster()
        async with renewing(cluster) as keeper:
            for broker in cluster.brokers:
                broker.trims.clear()
            for held in keeper._held.values():
                held.trim_at = held.renewals + 1
            assert await find_kept(keeper, range(4), 10.0) == [0, 1, 2, 3]
            starts = [(await log.bounds())[0] for log in cluster.logs]
            for broker in cluster.brokers:
                broker.trims.set()
            await asyncio.sleep(STEP_S)
            trimmed = [(await log.bounds())[0] for log in cluster.logs]
            assert all(after > before for before, after in zip(starts, trimmed, strict=True))

    in_virtual_time(program())


def test_slots_that_were_claimed_at_once_are_not_trimmed_at_once() -> None:
    async def program() -> None:
        async with renewing(Cluster()) as keeper:
            due = [held.trim_at for held in keeper._held.values()]
            assert len({*due}) == len(due)

    in_virtual_time(program())


def test_nothing_is_sent_before_it_is_known_what_became_of_the_last_renewal() -> None:
    async def program() -> None:
        cluster = Cluster()
        async with renewing(cluster) as keeper:
            log = cluster.logs[0]
            held = keeper._held[0]
            cluster.brokers[0].answers.clear()
            await asyncio.sleep(2 * LEASE.renew_s)
            # It was written all the same, and its readers take it for a renewal.
            at = held.view.end
            await log.append([(b"", keeper._record(held, RENEW))], deadline_s=1.0)
            sent = cluster.brokers[0].requests
            await asyncio.sleep(5.0)
            assert cluster.brokers[0].requests == sent
            cluster.brokers[0].answers.set()
            await asyncio.sleep(LEASE.lease_s)
            assert keeper.is_readable(0)
            entries = await log.read(at, bytes_max=1 << 20)
            named = [decode_lease(entry.value).at for entry in entries]
            assert named == [entry.offset for entry in entries], "none is void"

    in_virtual_time(program())


def test_a_round_is_one_request_to_each_broker() -> None:
    async def program() -> None:
        cluster = Cluster()
        async with renewing(cluster):
            before = [broker.requests for broker in cluster.brokers]
            await asyncio.sleep(10 * LEASE.renew_s)
            sent = [broker.requests for broker in cluster.brokers]
            assert [b - a for a, b in zip(before, sent, strict=True)] == [10, 10]

    in_virtual_time(program())


def test_a_silent_broker_keeps_nobody_from_seeing_what_becomes_of_leases_at_another() -> None:
    async def program() -> None:
        cluster = Cluster()
        async with following(cluster) as follower:
            async with renewing(cluster):
                await asyncio.sleep(1.0)
                cluster.brokers[0].answers.clear()
                assert await find_abandoned(follower, range(4), 5.0) == set()
            assert await find_abandoned(follower, range(4), 2.0) == {*AT_SECOND}

    in_virtual_time(program())


def test_who_begins_while_a_broker_is_silent_follows_the_leases_at_another() -> None:
    async def program() -> None:
        cluster = Cluster()
        async with renewing(cluster):
            cluster.brokers[0].answers.clear()
            async with following(cluster) as follower:
                for slot in AT_SECOND:
                    async with asyncio.timeout(1.0):
                        await follower.others.wait_until_read(slot)

    in_virtual_time(program())


def test_a_worker_whose_leases_could_not_be_read_for_a_while_is_not_taken_for_dead() -> None:
    async def program() -> None:
        cluster = Cluster()
        async with following(cluster) as follower, renewing(cluster):
            await asyncio.sleep(1.0)
            cluster.brokers[0].answers.clear()
            cluster.brokers[0].takes.clear()
            await asyncio.sleep(10.0)
            cluster.brokers[0].answers.set()
            assert await find_abandoned(follower, range(4), LEASE.answer_s) == set()
            cluster.brokers[0].takes.set()
            assert await find_abandoned(follower, range(4), 5.0) == set()

    in_virtual_time(program())


def test_a_slot_has_the_address_of_its_new_worker_once_it_is_claimed() -> None:
    async def program() -> None:
        cluster, former = Cluster(), b"ownerid1"
        killed = keeper_of(cluster, former, address="former:1")
        for slot in range(4):
            await killed.claim(slot)
        async with following(cluster, dead={former}) as keeper:
            for slot in range(4):
                await keeper.others.wait_until_read(slot)
            assert keeper.others.addresses == dict.fromkeys(range(4), "former:1")
            await keeper.claim(0)
            assert keeper.others.addresses[0] == "here:1", "requests are not sent to who died"

    in_virtual_time(program())


def test_a_worker_that_has_every_slot_sleeps_until_one_is_released() -> None:
    async def program() -> None:
        cluster = Cluster()
        async with renewing(cluster) as keeper, asyncio.TaskGroup() as tasks:
            watch = tasks.create_task(keeper.others.run(4), name="watch")
            sleeping = tasks.create_task(keeper.others.wait_for_others(), name="sleeping")
            await asyncio.sleep(60.0)
            assert not sleeping.done()
            await keeper.release(2)
            async with asyncio.timeout(STEP_S):
                await sleeping
                await keeper.others.wait_until_read(2)
            watch.cancel()

    in_virtual_time(program())


def test_a_worker_that_has_every_slot_wakes_when_another_claims_one() -> None:
    async def program() -> None:
        cluster = Cluster()
        async with renewing(cluster) as keeper, asyncio.TaskGroup() as tasks:
            watch = tasks.create_task(keeper.others.run(4), name="watch")
            await asyncio.sleep(60.0)
            other = keeper_of(cluster, b"ownerid2", address="there:1")
            tasks.create_task(other.claim(1), name="claim")
            async with asyncio.timeout(2 * LEASE.lease_s):
                await keeper.others.wait_for_others()
                await keeper.others.wait_until_read(1)
            assert keeper.is_lost(1)
            assert keeper.others.holder(1) == "there:1"
            watch.cancel()

    in_virtual_time(program())
