"""A starved owner continues once its renewal proves that no other worker has claimed the slot.

Requests wait for that. A single worker's process once hung for longer than its lease, and
its clients got OTSPartitionUnavailable although nothing had failed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import pytest

from rowtide.core.protocol.authentication import Identity
from rowtide.core.rows.mutation import Outcome
from rowtide.core.shard.shard import Shard
from rowtide.core.shard.shard_state import ShardState
from rowtide.core.values.errors import Elsewhere, OutcomeUnknown, StoreError, Unavailable
from rowtide.core.values.limits import Limits
from rowtide.stream.log.cluster import LogCluster
from rowtide.stream.shard.lapsed_lease import TRIES_MAX, LeaseLapsed, trying_again
from rowtide.stream.shard.owner import ShardOwner, ShardSettings
from rowtide.stream.shard.read_lease import ReadLease
from rowtide.stream.shard.row_store import RowStore
from rowtide.stream.shard.waiting import Reply
from rowtide.stream.slot.lease.held_leases import LAPSE_S
from rowtide.stream.slot.lease.lease_keeper import LeaseKeeper
from rowtide.stream.slot.lease.lease_settings import LeaseSettings
from tests.contract.memory_log import Fault, MemoryLog
from tests.core.shard_model import NOW_US, change, table
from tests.simulation.virtual_time import in_virtual_time
from tests.stream.test_lease_renewals import Cluster, renew
from tests.support.waiting import SOON_S

SLOT, LEASE_S = 0, 1.0
NOBODY = Identity("", "", b"")


def keeper_of(cluster: Cluster, owner: bytes) -> LeaseKeeper:
    """Return a worker's leases, on the clock of the event loop."""
    keeper = cluster.keeper = LeaseKeeper(
        cast(LogCluster, cluster),
        "leases",
        owner=owner,
        address="here:1",
        dead=(),
        settings=LeaseSettings(LEASE_S),
        clock_s=asyncio.get_running_loop().time,
    )
    return keeper


def lapse(keeper: LeaseKeeper) -> LeaseLapsed | None:
    """Return what a request waits for that meets a lease that does not hold."""
    assert not keeper.is_readable(SLOT)
    failure = keeper.unreadable(SLOT)
    return failure if isinstance(failure, LeaseLapsed) else None


async def measure_wait(met: LeaseLapsed | None) -> float:
    """Wait as a request does; return for how long."""
    assert met is not None
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    await met.renewed()
    return loop.time() - began_s


async def claim_and_starve(keeper: LeaseKeeper, cluster: Cluster) -> None:
    """Claim the slot, then pause until the lease has lapsed."""
    await keeper.claim(SLOT)
    await asyncio.sleep(LEASE_S * 3)
    assert cluster.keeper is keeper


def test_a_request_that_meets_a_lapsed_lease_waits_for_its_renewal() -> None:
    async def program() -> None:
        cluster = Cluster()
        keeper = keeper_of(cluster, b"ownerid1")
        await claim_and_starve(keeper, cluster)
        async with asyncio.TaskGroup() as tasks:
            waiting = [
                tasks.create_task(measure_wait(lapse(keeper)), name=f"{n}") for n in range(3)
            ]
            await asyncio.sleep(0.1)
            assert not any(one.done() for one in waiting)
            await renew(keeper)
        assert keeper.is_readable(SLOT)
        assert {round(one.result(), 3) for one in waiting} == {0.1}

    in_virtual_time(program())


def test_a_request_stops_waiting_where_another_worker_has_claimed_the_slot() -> None:
    async def program() -> None:
        cluster = Cluster()
        first = keeper_of(cluster, b"ownerid1")
        await claim_and_starve(first, cluster)
        met = lapse(first)
        await keeper_of(cluster, b"ownerid2").claim(SLOT)
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(measure_wait(met), name="request")
            await renew(first)  # It is void at its offset, and finds the later claim.
        assert waiting.result() < LAPSE_S / 2
        assert first.is_lost(SLOT)
        assert lapse(first) is None

    in_virtual_time(program())


def test_a_request_stops_waiting_where_the_slot_is_released() -> None:
    async def program() -> None:
        cluster = Cluster()
        keeper = keeper_of(cluster, b"ownerid1")
        await claim_and_starve(keeper, cluster)
        met = lapse(keeper)
        await keeper.release(SLOT)
        assert await measure_wait(met) == 0.0
        assert lapse(keeper) is None

    in_virtual_time(program())


def test_requests_wait_only_in_the_first_seconds_of_a_lapse() -> None:
    async def program() -> None:
        cluster = Cluster()
        keeper = keeper_of(cluster, b"ownerid1")
        await claim_and_starve(keeper, cluster)
        assert await measure_wait(lapse(keeper)) == pytest.approx(LAPSE_S, abs=LEASE_S)
        assert lapse(keeper) is None, "all later ones fail at once"
        await renew(keeper)
        assert keeper.is_readable(SLOT)
        await asyncio.sleep(LEASE_S * 3)
        assert lapse(keeper) is not None, "a new lapse is waited for again"

    in_virtual_time(program())


def test_a_slot_that_was_never_held_is_not_waited_for() -> None:
    async def program() -> None:
        assert lapse(keeper_of(Cluster(), b"ownerid1")) is None

    in_virtual_time(program())


# What is waited for: refusals, which are reads of a kind.


class Lease:
    """A lease that lapses, and comes back or not when it is waited for. ``run`` is the owner's."""

    run: asyncio.Task[None]

    def __init__(self) -> None:
        self.holds = True
        self.comes_back = True
        self.waits = 0
        self.answers = asyncio.Event()
        """A caller that waits for the lease waits until this is set."""
        self.answers.set()

    def is_readable(self) -> bool:
        """True while it holds."""
        return self.holds

    def unreadable(self) -> Unavailable:
        """Return what a request waits for."""
        return LeaseLapsed(self._renew)

    async def _renew(self) -> None:
        self.waits += 1
        await self.answers.wait()
        self.holds = self.comes_back


@asynccontextmanager
async def serve_leased(
    path: Path, log: MemoryLog | None = None
) -> AsyncIterator[tuple[ShardOwner, Lease]]:
    """Serve a shard under a lease."""
    lease, log, rows, of = Lease(), log or MemoryLog(), RowStore(path), table()
    shard = Shard("s1", of, rows, ShardState(of.options), limits=Limits())
    shard.adopt_claim(1, b"ownerid8")
    clock = iter(range(NOW_US, NOW_US + 10**9, 1000))
    owner = ShardOwner(
        shard,
        log,
        rows,
        clock_us=lambda: next(clock),
        lease=ReadLease(lease.is_readable, lease.unreadable),
        settings=ShardSettings(),
    )
    owner.open()
    try:
        async with asyncio.TaskGroup() as tasks:
            lease.run = tasks.create_task(owner.run(), name="owner")
            yield owner, lease
            lease.run.cancel()
    finally:
        rows.close()


async def outcome(answer: Awaitable[object]) -> str:
    """Return the code of what a change failed with, or ok."""
    try:
        async with asyncio.timeout(SOON_S):
            await answer
    except StoreError as error:
        return error.code
    return "ok"


def submit_change(owner: ShardOwner, text: str) -> asyncio.Future[Outcome]:
    """Submit a change; return what becomes of it."""
    reply = Reply(asyncio.get_running_loop())
    owner.submit(change(text), reply)
    return reply.future


@pytest.mark.parametrize(
    ("text", "comes_back", "expected", "waits"),
    [
        ("P a=2", True, "ok", 0),  # A write is safe without the lease.
        ("U? a=2", True, "ok", 0),
        ("P! a=2", True, "OTSConditionCheckFail", 1),
        ("U? b=2", True, "OTSConditionCheckFail", 1),
        ("P a=2", False, "ok", 0),
        ("P! a=2", False, "OTSPartitionUnavailable", 1),
        ("D? b", False, "OTSPartitionUnavailable", 1),
    ],
)
async def test_a_refusal_waits_for_the_lease_and_a_write_does_not(
    tmp_path: Path, text: str, comes_back: bool, expected: str, waits: int
) -> None:
    async with serve_leased(tmp_path) as (owner, lease):
        await submit_change(owner, "P a=1")
        lease.holds, lease.comes_back = False, comes_back
        try:
            await submit_change(owner, text)
            found = "ok"
        except StoreError as error:
            found = error.code
    assert (found, lease.waits) == (expected, waits)


async def test_writes_behind_a_refusal_that_waits_keep_their_order(tmp_path: Path) -> None:
    async with serve_leased(tmp_path) as (owner, lease):
        lease.holds = False
        first, second = submit_change(owner, "U? a=1"), submit_change(owner, "P! a=2")
        third = submit_change(owner, "U? a=3")
        with pytest.raises(StoreError) as refused:
            await first
        assert refused.value.code == "OTSConditionCheckFail"
        await second
        await third


@pytest.mark.parametrize("end", ["renewed", "lost", "drained", "cancelled", "expired"])
async def test_a_refusal_that_waits_delays_no_write(tmp_path: Path, end: str) -> None:
    async with serve_leased(tmp_path) as (owner, lease):
        await submit_change(owner, "P a=1")
        lease.holds, lease.comes_back = False, end == "renewed"
        lease.answers.clear()
        refused = submit_change(owner, "P! a=2")
        for text in ("U? a=2", "P a=3"):
            assert await outcome(submit_change(owner, text)) == "ok"
        refusals = [refused, submit_change(owner, "D? b")]
        assert await outcome(submit_change(owner, "P a=4")) == "ok"
        assert not any(refusal.done() for refusal in refusals)
        if end in ("renewed", "lost"):
            lease.answers.set()
        elif end == "drained":
            async with asyncio.timeout(SOON_S):
                await owner.drain()
        elif end == "expired":
            owner._settings = ShardSettings(write_s_max=-1.0)
            owner.expire()
        else:
            lease.run.cancel()
        expected = "OTSConditionCheckFail" if end == "renewed" else "OTSPartitionUnavailable"
        assert [await outcome(refusal) for refusal in refusals] == [expected] * 2
        assert lease.waits == 1


async def test_a_refusal_without_a_lease_does_not_delay_a_drain(tmp_path: Path) -> None:
    async with serve_leased(tmp_path) as (owner, lease):
        await submit_change(owner, "P a=1")
        lease.holds = False
        lease.answers.clear()
        write, refusal = submit_change(owner, "P a=2"), submit_change(owner, "P! a=3")
        async with asyncio.timeout(SOON_S):
            await owner.drain()
        assert await outcome(write) == "ok"
        assert await outcome(refusal) == "OTSPartitionUnavailable"
        assert lease.waits == 0


@pytest.mark.parametrize(
    ("fault", "expected"),
    [(Fault.REFUSED, "OTSPartitionUnavailable"), (Fault.LOST_REQUEST, "OTSTimeout")],
    ids=str,
)
async def test_only_what_may_have_been_sent_is_unknown_when_a_shard_closes(
    tmp_path: Path, fault: Fault, expected: str
) -> None:
    log = MemoryLog()
    async with serve_leased(tmp_path, log) as (owner, lease):
        await submit_change(owner, "P a=1")
        lease.holds = False
        log.fault = fault
        write, refusal = submit_change(owner, "P a=2"), submit_change(owner, "P! a=3")
        for _ in range(3):  # The owner wakes, then the log is given the batch.
            await asyncio.sleep(0)
        assert log.fault is None
        queued = submit_change(owner, "P a=4")
        lease.run.cancel()
        assert await outcome(write) == expected
        assert await outcome(refusal) == await outcome(queued) == "OTSPartitionUnavailable"


# Reads: the handler is called again.


class Reads:
    """A handler that meets a lapsed lease so many times, and then ends as set."""

    def __init__(self, lapses: int, end: bytes | StoreError, *, later: bool) -> None:
        self.lapses, self.end, self.later = lapses, end, later
        self.calls = self.waits = 0

    async def _renew(self) -> None:
        self.waits += 1

    def __call__(self, _identity: Identity, _body: bytes) -> Awaitable[bytes] | bytes:
        self.calls += 1
        return self._later() if self.later else self._now()

    async def _later(self) -> bytes:
        await asyncio.sleep(0)
        return self._now()

    def _now(self) -> bytes:
        if self.calls <= self.lapses:
            raise LeaseLapsed(self._renew)
        if isinstance(self.end, StoreError):
            raise self.end
        return self.end


@pytest.mark.parametrize("later", [False, True], ids=["at once", "awaited"])
@pytest.mark.parametrize(
    ("lapses", "end", "calls"),
    [
        (0, b"rows", 1),
        (1, b"rows", 2),
        (3, b"rows", 4),
        (0, Unavailable(), 1),
        (1, Unavailable(), 2),
        (1, Elsewhere(3), 2),
        (0, OutcomeUnknown(), 1),
        (TRIES_MAX + 1, b"never", TRIES_MAX + 1),
    ],
    ids=str,
)
async def test_a_read_starts_again_once_the_lease_holds(
    lapses: int, end: bytes | StoreError, calls: int, *, later: bool
) -> None:
    reads = Reads(lapses, end, later=later)
    try:
        result = trying_again(reads)(NOBODY, b"")
        found: bytes | StoreError = result if isinstance(result, bytes) else await result
    except StoreError as error:
        found = error
    assert (reads.calls, reads.waits) == (calls, calls - 1)
    if lapses > TRIES_MAX:
        assert isinstance(found, LeaseLapsed)
    else:
        assert found is end


async def test_the_future_of_a_write_is_passed_on_as_it_is() -> None:
    future = asyncio.get_running_loop().create_future()
    assert trying_again(lambda *_: future)(NOBODY, b"") is future
