"""The group divides the slots: joining, leaving, dying, and a broker that does.

Every test has a group and a changelog topic of its own on a real broker.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from aiokafka import AIOKafkaProducer

from rowtide.deploy.kafka.broker import EmbeddedBroker
from rowtide.deploy.kafka.config import EmbeddedConfig
from rowtide.stream.log.kafka.cluster import KafkaCluster, KafkaConfig
from rowtide.stream.log.topics import TopicSpec
from rowtide.stream.worker import faust_app
from rowtide.stream.worker.faust_membership import (
    Membership,
    MembershipConfig,
    SlotCountMismatch,
)
from tests.support.waiting import SOON_S

pytestmark = pytest.mark.kafka

SLOTS = 8
ALL = frozenset(range(SLOTS))
LONG_MS = 120_000
"""A session time-out that no test waits for: what happens before it does not need it."""
SHORT_MS = 4000
"""A session time-out that tests wait for, longer than a member may wait for a processor."""
PATIENCE_S = 180
"""A bound for what never comes: a group needs many heartbeats of a second on a busy machine."""
MEMBER = Path(__file__).with_name("faust_member.py")


class Worker:
    """A membership whose calls are written down, and can be waited for."""

    def __init__(self, config: MembershipConfig) -> None:
        self.events: list[tuple[str, frozenset[int]]] = []
        self.standby: frozenset[int] = frozenset()
        self._changed = asyncio.Event()
        self.membership = Membership(
            config,
            on_assigned=lambda slots: self._note_event("assigned", slots),
            on_revoked=lambda slots: self._note_event("revoked", slots),
            on_standby=self._stand_by,
        )

    def _stand_by(self, slots: frozenset[int]) -> None:
        self.standby = slots
        self._changed.set()

    def _note_event(self, word: str, slots: frozenset[int]) -> None:
        self.events.append((word, slots))
        self._changed.set()

    async def until(self, holds: Callable[[frozenset[int]], bool]) -> frozenset[int]:
        """Wait until the slots of this worker are as wanted."""
        while not holds(self.membership.slots):
            self._changed.clear()
            await self._changed.wait()
        return self.membership.slots


class Group:
    """One group with its changelog topic: makes workers, here or as processes."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.name = f"faust-{uuid4().hex[:8]}"

    def config(self, instance: str, **settings: Any) -> MembershipConfig:
        config = MembershipConfig(
            bootstrap=self.bootstrap,
            group=self.name,
            instance=instance,
            address=f"{instance}:1",
            slots=SLOTS,
            session_timeout_ms=LONG_MS,
        )
        return replace(config, **settings)

    async def create_changelog(self) -> None:
        topic = self.config("any").changelog_topic
        async with KafkaCluster(KafkaConfig(self.bootstrap)) as cluster:
            await cluster.create_topics([TopicSpec(topic, SLOTS, "compacted")])

    @asynccontextmanager
    async def worker(self, instance: str, **settings: Any) -> AsyncIterator[Worker]:
        worker = Worker(self.config(instance, **settings))
        try:
            await worker.membership.start()
            yield worker
        finally:
            await worker.membership.stop()

    @asynccontextmanager
    async def process(
        self, instance: str, *, address: str = "killed:1", session_timeout_ms: int = LONG_MS
    ) -> AsyncIterator[Process]:
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, MEMBER, self.bootstrap, self.name, instance, address),
            *(str(SLOTS), str(session_timeout_ms)),
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            yield Process(child)
        finally:
            if child.returncode is None:
                child.kill()
            await child.wait()


class Process:
    """A worker that runs as a child of the test."""

    def __init__(self, child: asyncio.subprocess.Process) -> None:
        self.child = child

    async def next_change(self) -> tuple[str, frozenset[int]]:
        assert self.child.stdout is not None
        ((word, slots),) = json.loads(await self.child.stdout.readline()).items()
        return word, frozenset(slots)

    def send(self, signal_number: signal.Signals) -> None:
        self.child.send_signal(signal_number)

    async def kill(self) -> None:
        self.child.kill()
        await self.child.wait()


@pytest.fixture
async def group(broker: str) -> Group:
    group = Group(broker)
    await group.create_changelog()
    return group


@pytest.fixture
def own_broker(cache_dir: Path, tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(EmbeddedConfig(tmp_path, cache_dir)) as running:
        yield running


async def test_one_worker_gets_every_slot_and_is_told_once(group: Group) -> None:
    async with group.worker("a") as a:
        assert a.events == [("assigned", ALL)]
        assert a.membership.owners() == dict.fromkeys(ALL, "a:1")


async def test_a_second_worker_takes_a_part_and_gives_it_back_when_it_stops(group: Group) -> None:
    async with group.worker("a") as a:
        async with group.worker("b") as b:
            kept = await a.until(lambda slots: slots != ALL)
            assert a.events == [("assigned", ALL), ("revoked", ALL - kept)]
            assert b.membership.slots == ALL - kept
            assert len(kept) == SLOTS // 2
            assert set(a.membership.owners().values()) == {"a:1", "b:1"}
        await a.until(lambda slots: slots == ALL)
        assert a.events[2:] == [("assigned", ALL - kept)]


async def test_a_worker_killed_and_started_again_has_its_slots_at_once(group: Group) -> None:
    # The time-out is minutes, so whatever arrives did not wait for it.
    async with group.process("a") as killed:
        assert await killed.next_change() == ("assigned", ALL)
        await killed.kill()
    async with asyncio.timeout(PATIENCE_S), group.worker("a", address="elsewhere:2") as a:
        assert a.events == [("assigned", ALL)]


async def test_the_others_learn_the_new_address_of_a_worker_that_came_back(group: Group) -> None:
    async with asyncio.timeout(PATIENCE_S), group.worker("b") as b:
        async with group.process("a", address="former:1") as killed:
            await b.until(lambda slots: slots != ALL)
            assert set(b.membership.owners().values()) == {"b:1", "former:1"}
            await killed.kill()
        async with group.process("a", address="later:2") as later:
            await later.next_change()
            async with group.worker("c") as c:
                await c.until(bool)
                assert set(c.membership.owners().values()) == {"b:1", "later:2", "c:1"}


async def test_a_killed_worker_loses_its_slots_at_the_session_time_out(group: Group) -> None:
    async with group.worker("a", session_timeout_ms=SHORT_MS) as a:
        async with group.process("b", session_timeout_ms=SHORT_MS) as killed:
            await a.until(lambda slots: slots != ALL)
            await killed.kill()
        async with asyncio.timeout(PATIENCE_S):
            await a.until(lambda slots: slots == ALL)


async def test_a_worker_that_slept_too_long_is_told_that_its_slots_were_elsewhere(
    group: Group,
) -> None:
    async with (
        asyncio.timeout(PATIENCE_S),
        group.worker("a", session_timeout_ms=SHORT_MS) as a,
        group.process("b", session_timeout_ms=SHORT_MS) as sleeper,
    ):
        kept = await a.until(lambda slots: slots != ALL)
        assert await sleeper.next_change() == ("assigned", ALL - kept)
        sleeper.send(signal.SIGSTOP)
        await a.until(lambda slots: slots == ALL)
        sleeper.send(signal.SIGCONT)
        assert await sleeper.next_change() == ("revoked", ALL - kept)
        word, slots = await sleeper.next_change()
        assert word == "assigned"
        assert await a.until(lambda slots: slots != ALL) == ALL - slots


async def test_a_stop_does_not_wait_for_a_broker_that_hangs(own_broker: EmbeddedBroker) -> None:
    group = Group(own_broker.bootstrap)
    await group.create_changelog()
    assert own_broker.pid is not None
    try:
        async with asyncio.timeout(PATIENCE_S), group.worker("a"):
            os.kill(own_broker.pid, signal.SIGSTOP)
    finally:
        os.kill(own_broker.pid, signal.SIGCONT)


async def test_a_broker_that_was_killed_and_came_back_changes_nothing(
    own_broker: EmbeddedBroker,
) -> None:
    group = Group(own_broker.bootstrap)
    await group.create_changelog()
    async with group.worker("a") as a:
        own_broker.kill()
        await asyncio.to_thread(own_broker.restart)
        assert a.events == [("assigned", ALL)]
        # It still takes part: it gives slots to a worker that joins now.
        async with asyncio.timeout(PATIENCE_S), group.worker("b") as b:
            kept = await a.until(lambda slots: slots != ALL)
            assert b.membership.slots == ALL - kept
            assert a.events == [("assigned", ALL), ("revoked", ALL - kept)]


async def test_a_worker_joins_as_soon_as_the_broker_is_there(own_broker: EmbeddedBroker) -> None:
    group = Group(own_broker.bootstrap)
    await group.create_changelog()
    own_broker.kill()
    a = Worker(group.config("a"))
    try:
        async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as tasks:
            tasks.create_task(a.membership.start())
            await asyncio.to_thread(own_broker.restart)
        assert a.events == [("assigned", ALL)]
    finally:
        await a.membership.stop()


async def test_a_crash_inside_faust_is_survived_and_no_slot_moves(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    lives: asyncio.Queue[faust_app.SlotApp] = asyncio.Queue()
    started = faust_app.SlotApp.on_started

    async def start_and_remember(app: faust_app.SlotApp) -> None:
        await started(app)
        lives.put_nowait(app)

    monkeypatch.setattr(faust_app.SlotApp, "on_started", start_and_remember)
    async with asyncio.timeout(PATIENCE_S), group.worker("a") as a, group.process("b") as b:
        kept = await a.until(lambda slots: slots != ALL)
        assert await b.next_change() == ("assigned", ALL - kept)
        first = await lives.get()
        await first.tables.recovery.crash(RuntimeError("made by the test"))
        assert await lives.get() is not first
        assert a.events == [("assigned", ALL), ("revoked", ALL - kept)]
        # The second life takes part as the first did.
        await b.kill()
        async with group.process("b") as again:
            assert await again.next_change() == ("assigned", ALL - kept)


async def test_committed_transactions_at_the_changelogs_end_do_not_delay_the_start(
    group: Group,
) -> None:
    await write_transactions(group, slots=ALL, count=3)
    async with asyncio.timeout(SOON_S), group.worker("a") as a:
        assert a.events == [("assigned", ALL)]


async def test_a_worker_keeps_copies_of_the_others_slots_and_gets_them_when_they_leave(
    group: Group,
) -> None:
    async with asyncio.timeout(PATIENCE_S), group.worker("a", standbys=1) as a:
        assert a.standby == frozenset()
        async with group.worker("b", standbys=1) as b, group.worker("c", standbys=1) as c:
            await c.until(bool)
            await a.until(lambda slots: len(slots) <= 3 and len(c.standby) >= 2)
            workers = {f"{name}:1": worker for name, worker in zip("abc", (a, b, c), strict=True)}
            for slot in ALL:
                [address] = a.membership.standbys(slot)
                assert slot in workers[address].standby
                assert a.membership.owners()[slot] != address
            copied = a.standby & c.membership.slots
        of_a = await a.until(lambda slots: slots == ALL)
        assert copied <= of_a
        assert a.standby == frozenset()


async def test_another_number_of_slots_is_refused(group: Group) -> None:
    membership = Worker(group.config("a", slots=SLOTS + 1)).membership
    with pytest.raises(SlotCountMismatch, match=r"has 8 partitions.* set slots to 8, not 9"):
        await membership.start()
    await membership.stop()


async def test_a_clean_life_leaves_no_warning(
    group: Group, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        async with group.worker("a"):
            pass
    assert caplog.records == []


async def write_transactions(group: Group, *, slots: Iterable[int], count: int) -> None:
    """Commit ``count`` transactions of one entry per slot, with an aborted one between."""
    topic = group.config("any").changelog_topic
    producer = AIOKafkaProducer(bootstrap_servers=group.bootstrap, transactional_id=group.name)
    await producer.start()
    try:
        for number in range(2 * count - 1):
            await producer.begin_transaction()
            for slot in slots:
                value = b"value %d" % (number // 2)
                await producer.send_and_wait(topic, value, key=b"key", partition=slot)
            if number % 2:
                await producer.abort_transaction()
            else:
                await producer.commit_transaction()
    finally:
        await producer.stop()
