"""The catalog on its owner and on a follower: reported at once, in order, and whole."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from functools import cached_property

import pytest

from rowtide.core.cluster.catalog import Catalog, Document, Instance
from rowtide.core.protocol.authentication import KNOWN_S_MAX
from rowtide.core.values.errors import Elsewhere, OutcomeUnknown, Unavailable
from rowtide.stream.api.admin import instance_document
from rowtide.stream.cluster.catalog_owner import SNAPSHOT_EVERY, CatalogOwner
from rowtide.stream.log.log import Entry
from tests.contract.memory_log import Fault, MemoryLog, Pairs
from tests.simulation.virtual_time import in_virtual_time
from tests.support.waiting import SOON_S

CLAIM = 1


async def test_a_change_is_told_before_any_other_task_sees_it() -> None:
    counts: list[int] = []
    log = MemoryLog()
    owner = CatalogOwner(
        log,
        log.twin(),
        owner=b"ownerid8",
        clock_us=lambda: 1,
        changed=lambda: counts.append(len(owner.catalog.instances)),
    )
    await owner.open(CLAIM)
    assert counts == [0], "its log begins with a no-op"

    def decide(catalog: Catalog, stamp: int) -> Sequence[Document]:
        name = f"instance{len(catalog.instances)}"
        return [instance_document(Instance(name, "capacity", stamp))]

    async with asyncio.TaskGroup() as tasks:
        for number in range(3):
            tasks.create_task(owner.change(decide), name=f"change {number}")
        while len(counts) < 4:
            assert counts[-1] == len(owner.catalog.instances)
            await asyncio.sleep(0)
    assert counts == [0, 1, 2, 3]


def instance(number: int) -> Document:
    return instance_document(Instance(f"instance{number}", "capacity", 1))


def catalog_of(log: MemoryLog, owner: bytes) -> CatalogOwner:
    return CatalogOwner(log.twin(), log.twin(), owner=owner, clock_us=lambda: 1)


async def test_a_follower_reads_what_the_owner_writes_and_changes_nothing() -> None:
    log = MemoryLog()
    first, second = catalog_of(log, b"ownerid1"), catalog_of(log, b"ownerid2")
    await first.open(1)
    await first.change(lambda _catalog, _stamp: [instance(1), instance(2)])
    await second.refresh()
    assert second.catalog.instances == first.catalog.instances
    with pytest.raises(Elsewhere):
        await second.change(lambda _catalog, _stamp: [instance(3)])
    assert (await log.bounds())[1] == first.catalog.applied + 1


async def test_a_change_that_is_read_in_pieces_is_seen_whole() -> None:
    log = MemoryLog()
    owner = catalog_of(log, b"ownerid1")
    await owner.open(CLAIM)
    await owner.change(lambda _catalog, _stamp: [instance(1), instance(2)])
    read = Catalog()
    seen = []
    for entry in await log.read(0, bytes_max=1 << 20):
        assert read.replay(entry.offset, entry.value)
        seen.append(len(read.instances))
    assert seen == [0, 0, 2]


async def test_an_owner_that_reads_of_a_later_one_changes_nothing_more() -> None:
    log = MemoryLog()
    first, second = catalog_of(log, b"ownerid1"), catalog_of(log, b"ownerid2")
    await first.open(1)
    await second.open(2)
    await second.change(lambda _catalog, _stamp: [instance(1)])
    with pytest.raises(Unavailable):
        await first.change(lambda _catalog, _stamp: [instance(2)])
    assert not first.is_owner
    await first.refresh()
    assert first.catalog.instances.keys() == {"instance1"}


async def test_a_follower_goes_on_behind_a_trimmed_log() -> None:
    log = MemoryLog()
    first, second = catalog_of(log, b"ownerid1"), catalog_of(log, b"ownerid2")
    await first.open(1)
    await second.refresh()
    for number in range(600):  # More than there is between two snapshots.
        await first.change(lambda _catalog, _stamp, n=number: [instance(n)])  # type: ignore[misc]
    assert (await log.bounds())[0] > second.catalog.applied + 1
    await second.refresh()
    assert second.catalog.instances == first.catalog.instances


class AwayLog(MemoryLog):
    """A log whose bounds can't be asked for the first times, while it can be read."""

    refusals = 0

    async def bounds(self) -> tuple[int, int]:
        if self.refusals:
            self.refusals -= 1
            raise Unavailable("no broker answers")
        return await super().bounds()


async def test_a_follower_goes_on_behind_a_trimmed_log_once_a_broker_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rowtide.stream.cluster.catalog_owner.BACKOFF_S", 0.0)
    monkeypatch.setattr("rowtide.stream.cluster.catalog_owner.CONFIRM_S", math.inf)
    log = AwayLog()
    tail = log.twin()
    first = catalog_of(log, b"ownerid1")
    second = CatalogOwner(log.twin(), tail, owner=b"ownerid2", clock_us=lambda: 1)
    await first.open(1)
    async with asyncio.TaskGroup() as tasks:
        following = tasks.create_task(second.follow(), name="follow")
        await second.ready.wait()
        following.cancel()
    for number in range(600):
        await first.change(lambda _catalog, _stamp, n=number: [instance(n)])  # type: ignore[misc]
    assert (await log.bounds())[0] > second.catalog.applied + 1
    tail.refusals = 2
    async with asyncio.TaskGroup() as tasks:
        following = tasks.create_task(second.follow(), name="follow")
        for _ in range(100):
            await asyncio.sleep(0)
        following.cancel()
    assert tail.refusals == 0
    assert second.catalog.instances == first.catalog.instances


class Clock:
    """Seconds, as the test sets them."""

    now_s = 0.0


class SilentLog(MemoryLog):
    """A log that can be silent, as where no broker is reached. Reads do not wait."""

    silent = False

    @cached_property
    def _read(self) -> asyncio.Event:
        return asyncio.Event()

    async def read(self, offset: int, *, bytes_max: int, wait_s: float = 0.0) -> list[Entry]:
        await asyncio.sleep(0)
        self._read.set()
        if self.silent:
            raise Unavailable
        return await super().read(offset, bytes_max=bytes_max)

    async def bounds(self) -> tuple[int, int]:
        if self.silent:
            raise Unavailable
        return await super().bounds()

    async def wait_for_reads(self) -> None:
        """Return when the log was asked twice more: once after anything that changed."""
        for _ in range(2):
            self._read.clear()
            await self._read.wait()


class OvertakenLog(MemoryLog):
    """A log that another worker takes over while its owner resolves the outcome of a batch."""

    rival: CatalogOwner

    async def disconnect(self) -> None:
        """Let the other one in."""
        await super().disconnect()
        if not self.rival.is_owner:
            await self.rival.open(2)


@pytest.mark.parametrize("fault", [Fault.LOST_ANSWER, Fault.LOST_REQUEST])
async def test_a_change_that_stands_is_never_told_as_not_made(fault: Fault) -> None:
    log = OvertakenLog()
    log.rival = catalog_of(log, b"ownerid2")
    first = CatalogOwner(log, log.twin(), owner=b"ownerid1", clock_us=lambda: 1)
    await first.open(1)
    log.fault = fault
    try:
        await first.change(lambda _catalog, _stamp: [instance(1)])
    except Unavailable:
        made = False
    else:
        made = True
    await log.rival.refresh()
    assert made is ("instance1" in log.rival.catalog.instances)
    assert not first.is_owner


class TrimmedLog(OvertakenLog):
    """A log that the new owner also trims."""

    async def disconnect(self) -> None:
        """Let the other one in, and have it write a snapshot."""
        await super().disconnect()
        await self.rival._snapshot()


@pytest.mark.parametrize("fault", [Fault.LOST_ANSWER, Fault.LOST_REQUEST])
async def test_a_change_is_unknown_where_what_became_of_it_was_trimmed(fault: Fault) -> None:
    """The trim was reported, which means that nothing was changed."""
    log = TrimmedLog()
    log.rival = catalog_of(log, b"ownerid2")
    first = CatalogOwner(log, log.twin(), owner=b"ownerid1", clock_us=lambda: 1)
    await first.open(1)
    log.fault = fault
    with pytest.raises(OutcomeUnknown):
        await first.change(lambda _catalog, _stamp: [instance(1)])
    stands = "instance1" in log.rival.catalog.instances
    assert stands is (fault is Fault.LOST_ANSWER)
    await first.refresh()
    assert first.catalog.instances == log.rival.catalog.instances
    with pytest.raises(Elsewhere):
        await first.change(lambda _catalog, _stamp: [instance(2)])


class ShortenedLog(MemoryLog):
    """A log that loses its last entry while its owner finds out what became of a batch."""

    async def disconnect(self) -> None:
        """Lose it."""
        await super().disconnect()
        self.truncate((await self.bounds())[1] - 1)


async def test_a_change_is_unknown_that_may_still_land_where_the_log_lost_its_end() -> None:
    log = ShortenedLog()
    owner = CatalogOwner(log, log.twin(), owner=b"ownerid1", clock_us=lambda: 1)
    await owner.open(CLAIM)
    await owner.change(lambda _catalog, _stamp: [instance(1)])
    log.fault = Fault.DELAYED
    with pytest.raises(OutcomeUnknown, match="lost what it had acknowledged"):
        await owner.change(lambda _catalog, _stamp: [instance(2)])
    log.land_late()
    read = catalog_of(log, b"ownerid2")
    await read.refresh()
    assert "instance2" in read.catalog.instances, "where its place was given to a no-op of ours"
    with pytest.raises(Unavailable, match="lost what it had acknowledged"):
        await owner.change(lambda _catalog, _stamp: [instance(3)])


async def test_the_end_is_proven_by_a_record_that_is_void_for_everybody() -> None:
    log = MemoryLog()
    first, second = catalog_of(log, b"ownerid1"), catalog_of(log, b"ownerid2")
    await first.open(1)
    await first.change(lambda _catalog, _stamp: [instance(1)])
    await second.prove()
    assert second.catalog.instances == first.catalog.instances
    assert second.catalog.applied == first.catalog.applied + 1
    await first.change(lambda _catalog, _stamp: [instance(2)])
    await second.refresh()
    assert second.catalog.instances.keys() == {"instance1", "instance2"}


class OldLog(MemoryLog):
    """Read at a deposed leader: it returns nothing that was appended since."""

    end_told = 1 << 60

    async def read(self, offset: int, *, bytes_max: int, wait_s: float = 0.0) -> list[Entry]:
        entries = await super().read(offset, bytes_max=bytes_max, wait_s=wait_s)
        return [entry for entry in entries if entry.offset < self.end_told]


async def test_what_can_not_be_read_up_to_its_proven_end_is_not_proven() -> None:
    log = OldLog()
    first, second = catalog_of(log, b"ownerid1"), catalog_of(log, b"ownerid2")
    await first.open(1)
    assert isinstance(second._tail, OldLog)
    second._tail.end_told = 1
    await first.change(lambda _catalog, _stamp: [instance(1)])
    with pytest.raises(Unavailable):
        await second.prove()
    second._tail.end_told = 1 << 60
    await second.prove()
    assert second.catalog.instances == first.catalog.instances


class DeposedLog(MemoryLog):
    """Read at a deposed leader: it reports an early end, and returns nothing after that."""

    end_told = 1 << 60

    async def read(self, offset: int, *, bytes_max: int, wait_s: float = 0.0) -> list[Entry]:
        if offset >= self.end_told:
            return []
        return await super().read(offset, bytes_max=bytes_max, wait_s=wait_s)

    async def bounds(self) -> tuple[int, int]:
        start, end = await super().bounds()
        return start, min(end, self.end_told)


async def test_an_owner_whose_log_lacks_nothing_after_all_changes_it_again() -> None:
    """No slot of it opens again for that: no other worker would ever change it."""
    log, tail = MemoryLog(), DeposedLog()
    tail._storage = log._storage
    owner = CatalogOwner(log, tail, owner=b"ownerid1", clock_us=lambda: 1)
    await owner.open(CLAIM)
    await owner.change(lambda _catalog, _stamp: [instance(1)])
    tail.end_told = 1
    with pytest.raises(Unavailable, match="lost what it had acknowledged"):
        await owner.prove()
    with pytest.raises(Unavailable, match="lost what it had acknowledged"):
        await owner.change(lambda _catalog, _stamp: [instance(2)])
    assert not owner.is_owner
    tail.end_told = 1 << 60
    await owner.prove()
    await owner.change(lambda _catalog, _stamp: [instance(2)])
    assert owner.catalog.instances.keys() == {"instance1", "instance2"}


async def test_an_owner_that_was_overtaken_while_its_log_seemed_lost_changes_nothing() -> None:
    log, tail = MemoryLog(), DeposedLog()
    tail._storage = log._storage
    owner = CatalogOwner(log, tail, owner=b"ownerid1", clock_us=lambda: 1)
    await owner.open(CLAIM)
    await owner.change(lambda _catalog, _stamp: [instance(1)])
    tail.end_told = 1
    with pytest.raises(Unavailable, match="lost what it had acknowledged"):
        await owner.prove()
    later = catalog_of(log, b"ownerid2")
    await later.open(CLAIM + 1)
    tail.end_told = 1 << 60
    await owner.prove()
    with pytest.raises(Elsewhere):
        await owner.change(lambda _catalog, _stamp: [instance(2)])


async def test_a_follower_knows_how_long_nobody_told_it_that_it_knows_everything() -> None:
    log, clock = SilentLog(), Clock()
    follower = CatalogOwner(
        log.twin(), log, owner=b"ownerid1", clock_us=lambda: 1, clock_s=lambda: clock.now_s
    )
    assert follower.confirmation_age_s() == math.inf
    async with asyncio.TaskGroup() as tasks:
        following = tasks.create_task(follower.follow(), name="follow")
        await log.wait_for_reads()
        clock.now_s = 100.0
        await log.wait_for_reads()
        assert follower.confirmation_age_s() == 0.0
        log.silent = True
        await log.wait_for_reads()
        clock.now_s = 110.0
        await asyncio.sleep(0)
        assert follower.confirmation_age_s() == 10.0
        following.cancel()
    await follower.open(CLAIM)
    assert follower.confirmation_age_s() == 0.0, "it read up to a record of its own"


class FullLog(MemoryLog):
    """A log that loses its replicas with an append. That append's outcome is unknown, no
    other is accepted, and its entries can be read.
    """

    full = False

    async def append(self, entries: Pairs, *, deadline_s: float) -> int:
        if self.full:
            raise Unavailable("too few replicas in sync")
        if self.fault is not None:
            self.full = True
            await asyncio.sleep(deadline_s)
        return await super().append(entries, deadline_s=deadline_s)


def run_story(
    story: Callable[[FullLog, CatalogOwner, asyncio.TaskGroup], Awaitable[None]],
) -> None:
    """Run a story of an owner that follows its log, whose next append fills it."""

    async def whole() -> None:
        log, clock_s = FullLog(), asyncio.get_running_loop().time
        owner = CatalogOwner(
            log, log.twin(), owner=b"ownerid1", clock_us=lambda: 1, clock_s=clock_s
        )
        await owner.open(CLAIM)
        log.fault = Fault.LOST_REQUEST
        async with asyncio.TaskGroup() as tasks:
            following = tasks.create_task(owner.follow(), name="follow")
            await story(log, owner, tasks)
            following.cancel()

    in_virtual_time(whole())


@pytest.mark.parametrize("taken_over", [False, True])
def test_who_waits_for_a_full_log_hears_that_nothing_is_new(*, taken_over: bool) -> None:
    """A broker reported so each second, but after 30 s no client was accepted, at any
    slot: the known keys could be revoked by now.
    """

    async def story(_log: FullLog, owner: CatalogOwner, tasks: asyncio.TaskGroup) -> None:
        work = owner.open(2) if taken_over else owner.change(lambda _c, _s: [instance(1)])
        waiting = tasks.create_task(work, name="waits")
        await asyncio.sleep(2 * KNOWN_S_MAX)
        assert not waiting.done()
        assert owner.confirmation_age_s() < KNOWN_S_MAX
        waiting.cancel()

    run_story(story)


def test_a_change_behind_one_that_waits_for_its_log_is_not_made_and_says_so() -> None:
    """It waited as long as that change, and was made long after its caller had given up."""

    async def story(log: FullLog, owner: CatalogOwner, tasks: asyncio.TaskGroup) -> None:
        first = tasks.create_task(owner.change(lambda _c, _s: [instance(1)]), name="first")
        await asyncio.sleep(1)
        async with asyncio.timeout(30):
            with pytest.raises(Unavailable):
                await owner.change(lambda _c, _s: [instance(2)])
        log.full = False
        await first
        await owner.change(lambda _c, _s: [instance(3)])
        assert owner.catalog.instances.keys() == {"instance1", "instance3"}

    run_story(story)


async def test_proofs_alone_are_trimmed_and_wake_nobody() -> None:
    """A request that names a removed shard has the end proven. The log grew until a
    change came, and each proof had every worker check all of its shards.
    """
    log = MemoryLog()
    first, second = catalog_of(log, b"ownerid1"), catalog_of(log, b"ownerid2")
    changes: list[int] = []
    await first.open(1)
    second._changed = lambda: changes.append(1)
    for _ in range(2 * SNAPSHOT_EVERY):
        await second.prove()
    assert len(changes) == 1, "of the no-op with which the other one began"
    async with asyncio.TaskGroup() as tasks:
        following = tasks.create_task(first.follow(), name="follow")
        async with asyncio.timeout(SOON_S):
            while (await log.bounds())[0] == 0:  # noqa: ASYNC110 - A log reports no trim.
                await asyncio.sleep(0.01)
        following.cancel()
