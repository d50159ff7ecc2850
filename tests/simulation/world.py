"""A cluster of simulated workers, a broker, clients, and everything that may go wrong.

Each action is one method; a run is a list of actions with pauses between them, made from a seed or
written by hand. ``check`` holds what there is to the invariants; ``settle`` ends all faults, lets
each worker serve alone, and checks the outcomes.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from rowtide.core.cluster.catalog import Catalog
from rowtide.core.records import record
from rowtide.core.values.schema import Index, ShardRange
from rowtide.stream.log.topics import TopicSpec
from rowtide.stream.shard.owner import ShardOwner
from tests.simulation import errands
from tests.simulation.broker import Broker, Pairs
from tests.simulation.broker import Place as LogPlace
from tests.simulation.clients import Clients
from tests.simulation.edge_writes import write, write_batch
from tests.simulation.environment import Machine
from tests.simulation.global_indexes import AGAIN, check_followed, wait_for_indexes
from tests.simulation.group import Group, Hop
from tests.simulation.invariants import (
    check_lineage,
    check_now,
    check_outcomes,
    check_rebuilt,
    check_stream,
)
from tests.simulation.local_disk import LogDisk
from tests.simulation.local_indexes import NEAR, until_built
from tests.simulation.memory_rows import Disk
from tests.simulation.network import FAULTS, Network, Weather
from tests.simulation.ranges import Ranges
from tests.simulation.row_model import TableModel
from tests.simulation.simulated_worker import TOPICS, Shared, SimulatedWorker
from tests.simulation.sources import Sources
from tests.simulation.tables import (
    INSTANCE,
    MAX_VERSIONS,
    PLACES,
    PLAIN,
    SHARDS,
    TABLES,
    Place,
    cut,
    documents,
)
from tests.simulation.trace import Trace
from tests.simulation.transactions import Transactions
from tests.support.waiting import until_async

__all__ = ["WHERE_DEPOSED", "World"]

SETTLED_S = 120.0
WHERE = (".shard.", ".lease", "flush", ".catalog", "")
"""Where a process may be stopped: parts of what it says that it does."""
WHERE_DEPOSED = (".lease", ".catalog", ".shard.", "changelog", "")
"""What a deposed leader has led: parts of topics' names."""
QUIET = Weather()


class World:
    """Workers by number; at most one process of each runs at a time. ``tasks`` holds them all."""

    def __init__(
        self,
        tasks: asyncio.TaskGroup,
        seed: int = 0,
        *,
        workers: int = 3,
        slots: int = 3,
        local_log: bool = False,
    ) -> None:
        self.chance = random.Random(seed)
        self.trace = Trace()
        self.broker = Broker()
        self.broker.landed = self._note_landing
        self.network = Network(self.broker, random.Random(seed + 1))
        self.shared = Shared(self.network, Group(self.network, slots), Hop(self.network))
        if local_log:
            assert workers == 1, "a local log has one process"
            self.shared.log_disk = LogDisk(self.broker)
        self.clients = Clients(self.network, self.trace)
        self.sources = Sources(self.clients, random.Random(seed + 2))
        self.at_edge = random.Random(seed + 5)
        self.transactions = Transactions(self.clients, tasks, random.Random(seed + 3), self.live)
        self.ranges = Ranges(self.clients, tasks, random.Random(seed + 4), self.live)
        self.machines = [Machine(number) for number in range(workers)]
        self.workers: list[SimulatedWorker | None] = [None] * workers
        self.copies: dict[int, dict[int, Disk]] = {}
        self._every: list[tuple[SimulatedWorker, asyncio.Task[None]]] = []
        self.followed = False
        """Whether the tables have global indexes."""
        self.local = False
        """Whether a table may have a local index that comes and goes, and disks fail."""
        self.settled_catalog = Catalog()
        """As of the last worker that served alone."""
        self._tasks = tasks
        tasks.create_task(self.shared.group.run(), name="group")

    def _note_landing(self, place: LogPlace, base: int, pairs: Pairs) -> None:
        envelope = record.decode_envelope(pairs[0][1]) if place[0] != TOPICS.lease else None
        named = "" if envelope is None else f" at {envelope.at} by {envelope.owner[:3].hex()}"
        void = "" if envelope is None or envelope.at == base else " VOID"
        self.trace.add("landed", f"{place[0]}[{place[1]}] {base}+{len(pairs)}{named}{void}")

    # What there is.

    def live(self) -> list[SimulatedWorker]:
        """Return the workers whose processes exist, stopped or not."""
        return [worker for worker in self.workers if worker is not None and worker.assembled]

    def worker(self, number: int) -> SimulatedWorker | None:
        """Return a worker by its number, if it lives."""
        worker = self.workers[number]
        return worker if worker is not None and worker.assembled else None

    def owner(self, shard_id: str) -> tuple[SimulatedWorker, ShardOwner] | None:
        """Return the worker that may serve a shard, with the shard."""
        for worker in self.live():
            for owner in worker.open_shards():
                if owner.shard.shard_id == shard_id and owner._lease.holds():
                    return worker, owner
        return None

    # Actions on processes.

    async def begin(self) -> None:
        """Start every worker, and create the tables."""
        for number in range(len(self.machines)):
            self.start(number)
        async with asyncio.timeout(SETTLED_S):
            while not (owning := [w for w in self.live() if w.catalog_owner.is_owner]):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        if self.followed:
            self.clients.models[PLAIN] = TableModel(1)
        worker, slots = owning[0], self.shared.group.slots
        if self.shared.log_disk is not None:
            specs = [TopicSpec(TOPICS.shard(shard_id)) for shard_id in SHARDS]
            await worker.cluster.create_topics(specs)
        await worker.catalog_owner.change(
            lambda catalog, _stamp: documents(
                slots, catalog, followed=self.followed, counted=self.local
            )
        )
        async with asyncio.timeout(SETTLED_S):
            while any(self.owner(shard_id) is None for shard_id in ("s1", "s2", "s3")):  # noqa: ASYNC110
                await asyncio.sleep(0.1)

    def start(self, number: int) -> None:
        """Start a worker's process."""
        if self.workers[number] is not None:
            return
        worker = SimulatedWorker(self.shared, self.machines[number], len(self._every))
        self.trace.add("start", worker.address)
        self.workers[number] = worker
        task = self._tasks.create_task(
            worker.run(), name=worker.address, context=worker.process.context
        )
        self._every.append((worker, task))

    def kill(self, number: int, permille: int) -> None:
        """End a process at once; of each disk's unsynced writes the first ``permille`` survive."""
        worker = self.workers[number]
        if worker is None:
            return
        self.trace.add("kill", worker.address)
        self.workers[number] = None
        worker.process.freeze()
        worker.ended = True
        if worker.log_store is not None:
            worker.log_store.kill(self.chance)
        self.shared.hop.peers.pop(worker.address, None)
        machine = self.machines[number]
        machine.former |= {worker.owner_id}
        for slot, disk in machine.disks.items():
            # What the dead process still holds is another disk from now on.
            machine.disks[slot] = disk.copy_after_crash(len(disk.unsynced) * permille // 1000)

    async def stop(self, number: int) -> None:
        """Let a process drain, flush and release, as far as it can in a while."""
        worker = self.workers[number]
        if worker is None:
            return
        self.trace.add("stop", worker.address)
        worker.stopping.set()
        task = next(task for known, task in self._every if known is worker)
        await asyncio.wait({task}, timeout=15)
        if self.workers[number] is worker:
            self.kill(number, 1000)

    def pause(self, number: int, ms: int) -> None:
        """Stop a process as SIGSTOP does, for a while."""
        worker = self.workers[number]
        if worker is None or worker.process.frozen:
            return
        self.trace.add("pause", f"{worker.address} {ms} ms")
        worker.process.freeze()
        self.network.later(ms / 1000, self.thaw, worker)

    def thaw(self, worker: SimulatedWorker) -> None:
        """Let a stopped process go on, unless it was killed."""
        if worker.alive and worker.process.frozen:
            self.trace.add("thaw", worker.address)
            worker.thawed_s = asyncio.get_running_loop().time()
            worker.process.thaw()
            if worker.address not in self.shared.group.members:
                self.network.later(0.5, self._rejoin, worker)

    def _rejoin(self, worker: SimulatedWorker) -> None:
        if worker.alive and worker.address not in self.shared.group.members:
            worker.rejoin()

    def ambush(self, number: int, where: int, ms: int) -> None:
        """Stop a process just when the next thing it sends has been done at the broker.

        For a while; for good where ``ms`` is 0.
        """
        worker = self.worker(number)
        if worker is None:
            return
        wanted = WHERE[where % len(WHERE)]

        def landing(event: str) -> None:
            if wanted not in event or not worker.alive:
                return
            worker.link.landing = _unheard
            self.trace.add("ambush", event)
            if ms:
                self.pause(number, ms)
            else:
                self.kill(number, self.chance.randrange(1001))

        worker.link.landing = landing

    def ambush_to_death(self, number: int, where: int) -> None:
        """Kill a process just when the next thing it sends has been done at the broker."""
        self.ambush(number, where, 0)

    async def crash_recovering(self, number: int, ms: int) -> None:
        """Lose a worker's disks, and kill it again while it reads what it has lost."""
        self.lose_disk(number)
        self.start(number)
        await asyncio.sleep(ms / 1000)
        self.kill(number, self.chance.randrange(1001))

    def cut(self, number: int, ms: int) -> None:
        """Cut a worker off from the broker for a while."""
        worker = self.workers[number]
        if worker is not None and not worker.link.cut:
            worker.link.cut = True
            self.network.later(ms / 1000, setattr, worker.link, "cut", False)

    def depose(self, number: int, kind: int, which: int, ms: int) -> None:
        """Let a worker go on asking the deposed leaders of some logs, for a while at most.

        ``kind`` says of which, ``which`` names one of them, or all where it is 0.
        """
        worker = self.workers[number]
        if worker is None:
            return
        leaders, broker, part = worker.link.leaders, self.broker, WHERE_DEPOSED[kind]
        logs = [place for place, _ in broker.logs() if part in place[0]]
        changelogs = [place for place, _ in broker.changelog_places() if part in place[0]]
        found = [*logs, *changelogs]
        chosen = found if which == 0 else found[which % len(found) :][:1] if found else []
        for place in chosen:
            depose = leaders.depose_log if place in logs else leaders.depose_changelog
            depose(place)
            self.network.later(ms / 1000, leaders.learn, place)

    def shuffle(self) -> None:
        """Let the group divide the slots another way."""
        group = self.shared.group
        if group.members:
            addresses = sorted(group.members)
            wanted = {slot: self.chance.choice(addresses) for slot in range(group.slots)}
            group.divide(wanted)

    def stand_by(self, number: int, mask: int) -> None:
        """Let a worker keep copies of those slots whose bits are set, and of no others."""
        worker = self.worker(number)
        if worker is not None:
            of = frozenset(slot for slot in range(self.shared.group.slots) if mask >> slot & 1)
            self._ask(worker, errands.standing_by(worker, of))

    def skew(self, number: int, seconds: int) -> None:
        """Set a worker's wall clock off, for now and for later processes."""
        self.machines[number].wheel.skew_us = seconds * 1_000_000

    # Actions on disks, the broker and the network.

    def lose_disk(self, number: int) -> None:
        """Kill a process and empty its disks."""
        self.kill(number, 0)
        self.machines[number].disks = {}
        self.machines[number].former = frozenset()

    def copy_disk(self, number: int) -> None:
        """Copy a worker's disks as they would be found after a crash."""
        disks = self.machines[number].disks
        self.copies[number] = {slot: disk.copy() for slot, disk in disks.items()}

    def restore_disk(self, number: int) -> None:
        """Kill a process and put the last copy in its disks' place."""
        if number in self.copies:
            self.lose_disk(number)
            copied = self.copies[number]
            self.machines[number].disks = {slot: disk.copy() for slot, disk in copied.items()}

    def fault(self, number: int, fate: int) -> None:
        """Let a worker's next append to a shard's log meet a fault."""
        worker = self.worker(number)
        if worker is not None:
            worker.link.fates.append(FAULTS[fate % len(FAULTS)])

    def flush_fault(self, number: int, fate: int) -> None:
        """Let a worker's next flush meet a fault."""
        worker = self.worker(number)
        if worker is not None:
            worker.link.flush_fates.append(FAULTS[fate % len(FAULTS)])

    def fail_writes(self, number: int, slot: int, ms: int) -> None:
        """Let a slot's disk take nothing for a while, as a full one does."""
        self._fail(number, slot, "failing", ms)

    def fail_reads(self, number: int, slot: int, ms: int) -> None:
        """Let nothing be read of a slot's disk for a while, as where files can't be opened."""
        self._fail(number, slot, "unreadable", ms)

    def _fail(self, number: int, slot: int, how: str, ms: int) -> None:
        disk = self.machines[number].disk(slot % self.shared.group.slots)
        setattr(disk, how, True)
        self.network.later(ms / 1000, setattr, disk, how, False)

    def damage(self, number: int, slot: int) -> None:
        """Let nothing be read of a slot's disk ever again: blocks are not what they were."""
        self.machines[number].disk(slot % self.shared.group.slots).damaged = True

    def outage(self, ms: int) -> None:
        """Let the broker go away for a while."""
        self.network.away = True
        self.network.later(ms / 1000, setattr, self.network, "away", False)

    def compact(self, tenths: int) -> None:
        """Compact the changelogs up to a point."""
        for changelog in self.broker.changelogs():
            changelog.compact(changelog.end * tenths // 10)

    def flush(self, number: int) -> None:
        """Have a worker flush its slots now."""
        worker = self.worker(number)
        for slot in list(worker.roster.slots.values()) if worker is not None else ():
            self._ask(worker, errands.flush_slot(slot))

    def trim(self, number: int) -> None:
        """Have a worker trim its logs now."""
        worker = self.worker(number)
        for slot in list(worker.roster.slots.values()) if worker is not None else ():
            self._ask(worker, errands.trim_slot(slot))

    def reclaim(self, number: int, max_versions: int) -> None:
        """Have a worker keep so many versions of a column, and remove the others of all rows."""
        self._reclaim(number, record.Options(-1, max_versions, None))

    def expire(self, number: int, time_to_live_s: int) -> None:
        """Have a worker keep versions for so long, and remove the others, and rows with them.

        Only of the table that has no index.
        """
        self._reclaim(number, record.Options(time_to_live_s, MAX_VERSIONS, None))

    def _reclaim(self, number: int, options: record.Options) -> None:
        worker = self.worker(number)
        for slot in list(worker.roster.slots.values()) if worker is not None else ():
            self._ask(worker, errands.reclaim_slot(slot, options))

    def options(self, number: int, max_versions: int) -> None:
        """Have a worker log other options: a barrier for the changes that come after."""
        worker = self.worker(number)
        if worker is not None:
            for owner in worker.open_shards():
                body = record.Options(-1, max_versions, None)
                self._ask(worker, errands.log_options(owner, body))

    def split(self, table: int, name: int) -> None:
        """Have a shard split at some row."""
        of, (_, names) = list(TABLES.items())[table]
        at = names[1 + name % (len(names) - 1)]
        worker = self._of_catalog()
        for shard in self._shards(worker, of) if worker is not None else ():
            if shard.begin < cut(at) and (not shard.end or cut(at) < shard.end):
                asked = {"table": of, "shard": shard.shard_id, "at": at}
                self._reshape(worker, "split", asked)

    def merge(self, table: int, which: int) -> None:
        """Have two adjacent shards merged."""
        of = list(TABLES)[table]
        worker = self._of_catalog()
        shards = self._shards(worker, of) if worker is not None else ()
        if len(shards) > 1:
            at = which % (len(shards) - 1)
            two = [shard.shard_id for shard in shards[at : at + 2]]
            self._reshape(worker, "merge", {"table": of, "shards": two})

    def move(self, table: int, which: int, slot: int) -> None:
        """Have a shard moved to another slot."""
        of = list(TABLES)[table]
        worker = self._of_catalog()
        shards = self._shards(worker, of) if worker is not None else ()
        if shards:
            shard_id = shards[which % len(shards)].shard_id
            asked = {"table": of, "shard": shard_id, "slot": slot % self.shared.group.slots}
            self._reshape(worker, "move", asked)

    def create_index(self) -> None:
        """Have a global index made of the rows there are, unless there is one of that name."""
        self._at_catalog(errands.create_index, AGAIN)

    def drop_index(self) -> None:
        """Have that index dropped."""
        self._at_catalog(errands.drop_index, AGAIN)

    def create_local(self) -> None:
        """Have a local index made of the rows there are, unless there is one of that name."""
        self._at_catalog(errands.create_index, NEAR)

    def drop_local(self) -> None:
        """Have that index dropped."""
        self._at_catalog(errands.drop_index, NEAR)

    def _at_catalog(
        self, work: Callable[[SimulatedWorker, Index], Coroutine[Any, Any, None]], index: Index
    ) -> None:
        worker = self._of_catalog()
        if worker is not None:
            self._ask(worker, work(worker, index))

    def _of_catalog(self) -> SimulatedWorker | None:
        owning = [worker for worker in self.live() if worker.catalog_owner.is_owner]
        return owning[0] if owning else None

    def _shards(self, worker: SimulatedWorker | None, table: str) -> Sequence[ShardRange]:
        assert worker is not None
        return worker.catalog.tables[INSTANCE, table].shards

    def _reshape(self, worker: SimulatedWorker | None, kind: str, asked: object) -> None:
        assert worker is not None
        self.trace.add(kind, str(asked))
        operations = worker.reshapes
        operation = {
            "split": operations.split_shard,
            "merge": operations.merge_shards,
            "move": operations.move_shard,
        }[kind]
        self._ask(worker, errands.try_reshape(operation, json.dumps(asked).encode()))

    def _ask(self, worker: SimulatedWorker | None, work: object) -> None:
        """Have work done in a worker's process, unless it is stopped just now."""
        coroutine: asyncio.coroutines.Coroutine = work  # type: ignore[name-defined]
        if worker is None or worker.process.frozen:
            coroutine.close()
        else:
            worker.process.context.run(worker.tasks.create_task, coroutine)

    # Clients.

    def write(self, number: int, count: int) -> None:
        """Ask for changes all at once, of few rows: a worker that serves the shard, mostly."""
        places = self.chance.sample(PLACES, 2)
        for _ in range(count):
            place = self.chance.choice(places)
            worker = self._choose_worker(number, place)
            if worker is not None:
                self.clients.write(worker, place, self.chance)

    def source(self, which: int, count: int) -> None:
        """Let a source give more rows."""
        self.sources.write(which, count, self.live())

    def source_restart(self, which: int) -> None:
        """Let another process be a source, which goes on from an earlier place."""
        self.sources.restart(which)

    def request(self, count: int) -> None:
        """Ask any worker for changes, at its edge: of one row, or of several in a batch."""
        workers, chance = self.live(), self.at_edge
        if workers and count == 1:
            write(self.clients, chance.choice(workers), chance.choice(PLACES), chance)
        elif workers:
            places = chance.sample(PLACES, count)
            write_batch(self.clients, chance.choice(workers), places, chance)

    def transaction(self) -> None:
        """Let a client run a local transaction, asking whom it likes."""
        self.transactions.begin()

    def scan(self) -> None:
        """Let a client read a whole table, page by page, asking whom it likes."""
        self.ranges.begin()

    def read(self, number: int) -> None:
        """Request some row at every worker, whichever it takes for the owner."""
        place = self.chance.choice(PLACES)
        for worker in self.live():
            self.clients.read(worker, place)

    def _choose_worker(self, number: int, place: Place) -> SimulatedWorker | None:
        serving = [worker for worker in self.live() if worker.has(place)]
        return serving[number % len(serving)] if serving else self.worker(number)

    # Checking.

    def check(self) -> None:
        """Hold the invariants that hold at every moment."""
        check_now(self.clients, self.live(), asyncio.get_running_loop().time())

    async def until(self, holds: Callable[[], object], *, s_max: float = 60.0) -> None:
        """Return once something holds, and check the invariants meanwhile."""
        await until_async(holds, s_max=s_max, poll_s=0.01, meanwhile=self.check)

    async def settle(self) -> None:
        """End every fault, let each worker serve alone, and check the outcomes."""
        self.trace.add("settle", "")
        self.network.weather = QUIET
        self.network.away = False
        self.network.lateness = None
        self.shared.hop.cuts = None
        for number in range(len(self.machines)):
            self.kill(number, 0)
        while self.network.held:
            self.network.land_held()
        await asyncio.sleep(5)  # What is delayed has landed by then.
        await self.transactions.end()
        for number in range(len(self.machines)):
            await self._settle_on(number)
        self.compact(10)
        self.lose_disk(0)
        await self._settle_on(0)
        check_lineage(self.settled_catalog)
        check_rebuilt(self.clients, self.settled_catalog)

    async def _settle_on(self, number: int) -> None:
        self.start(number)
        worker = self.workers[number]
        assert worker is not None
        try:
            async with asyncio.timeout(SETTLED_S):
                while not (worker.assembled and worker.settled):  # noqa: ASYNC110
                    await asyncio.sleep(0.1)
        except TimeoutError:
            closed = [slot.closed for slot in worker.roster.slots.values()]
            raise AssertionError(f"{worker.address} opens not all: {closed}") from None
        if self.followed:
            await wait_for_indexes(worker)
            check_followed(self.clients, worker)
        if self.local:
            await until_built(worker)
        self.check()
        check_outcomes(self.clients)
        self.sources.check()
        self.transactions.check()
        await self.transactions.check_remembered(worker)
        self.settled_catalog = worker.catalog
        for owner in worker.list_followed_shards():
            if owner.shard.table.main:
                continue
            limits = (1, 3, 1000) if number == 0 else (1000,)
            read = check_stream(self.clients, owner, limits)
            await worker_context(worker, self._tasks, read)
        await self.stop(number)

    def end(self) -> None:
        """End everything that still runs, or was killed and never will."""
        self.network.away = self.network.over = True
        for worker, task in self._every:
            worker.ended = True
            task.cancel()
            worker.process.thaw()


def _unheard(_event: str) -> None:
    """No one waits for it any more."""


async def worker_context(worker: SimulatedWorker, tasks: asyncio.TaskGroup, work: object) -> None:
    """Wait for work that is done in a worker's process."""
    coroutine: asyncio.coroutines.Coroutine = work  # type: ignore[name-defined]
    await tasks.create_task(coroutine, context=worker.process.context)
