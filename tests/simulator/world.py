"""Two rival workers of one shard, a client that never forgets, and everything that may go wrong.

Each action is one method; a run is a list of actions, made by Hypothesis or by a seed. Between
them virtual time passes. ``check`` holds what there is to the invariants, ``settle`` ends all
faults, lets one worker serve, and checks that everything attempted has the outcome that was told.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

from rowtide.core import key, record, variant
from rowtide.core.cell import Cell
from rowtide.core.chunk import row_key, table_prefix
from rowtide.core.errors import OutcomeUnknown, Rejected, StoreError, Unavailable
from rowtide.core.fold import ChunkReader, stored_cells
from rowtide.core.mutation import (
    DELETE,
    EXPECT_ABSENT,
    EXPECT_PRESENT,
    IGNORE,
    PUT,
    UPDATE,
    Change,
    Outcome,
)
from rowtide.core.overlay import RangeReader
from rowtide.core.plainbuffer import delete_cell, increment_cell, put_cell
from rowtide.core.read import read_range
from rowtide.stream.kafka_changelog import Fenced
from rowtide.stream.memory_log import Fault
from rowtide.stream.row_store import StoreFailed
from rowtide.stream.shard_owner import ShardOwner
from rowtide.stream.stream_reader import find_stamp, read_page
from tests.simulator.memory_changelog import FlushFault
from tests.simulator.memory_rows import Disk
from tests.simulator.row_model import MARK, Columns, RowModel, mark_of, name_of
from tests.simulator.simulated_worker import (
    INDEX,
    MAX_VERSIONS,
    SHARD,
    TABLE,
    Backend,
    Leases,
    SimulatedSlot,
)

__all__ = ["Attempt", "World"]

EPOCH_US = 1_700_000_000_000_000
NAMES = ("a", "b", "c")
COLUMNS = tuple(b"c%d" % number for number in range(6))
LARGE = b"x" * 12_000
"""Three of these make a row of two chunks."""
SETTLED_S = 120.0
WAIT_S_MAX = 12.0
"""What a client may wait for: ``write_s_max``, and how often the waiting are looked at."""


@dataclass(slots=True)
class Attempt:
    """One change and what the client heard of it; ``low`` is the log's end when it was asked."""

    name: str
    mark: str | None
    change: Change
    low: int
    process: Process
    since_s: float
    told: Outcome | StoreError | None = None

    def __str__(self) -> str:
        return f"{self.mark or 'delete'} of {self.name}, asked at {self.since_s:.3f} s"

    @property
    def applied(self) -> bool:
        return isinstance(self.told, Outcome)

    @property
    def unknown(self) -> bool:
        return isinstance(self.told, OutcomeUnknown)


class Process:
    """A worker process: a slot and its leases, until it is killed."""

    def __init__(self, backend: Backend, disk: Disk, number: int, life: int) -> None:
        self.leases = Leases(backend.ledger, bytes([number, life % 256, life // 256]) + bytes(5))
        self.skew_us = 0
        self.slot = SimulatedSlot(backend, disk, self.leases, self._clock_us)
        self._clock_s = asyncio.get_running_loop().time

    async def run(self) -> None:
        """Serve until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.leases.run(), name="leases")
            tasks.create_task(self.slot.run(), name="slot")

    @property
    def owner(self) -> ShardOwner | None:
        """The shard, while it is open."""
        return self.slot.shards.get(SHARD.shard_id)

    def _clock_us(self) -> int:
        return EPOCH_US + int(self._clock_s() * 1_000_000) + self.skew_us


class World:
    """Two workers by number; at most one process of each runs at a time."""

    def __init__(self, tasks: asyncio.TaskGroup) -> None:
        self.backend = Backend()
        self.model = RowModel(MAX_VERSIONS)
        self.attempts: list[Attempt] = []
        self.disks = [Disk(), Disk()]
        self.copies = [Disk(), Disk()]
        self.processes: list[Process | None] = [None, None]
        self._running: list[asyncio.Task[None] | None] = [None, None]
        self._tasks = tasks
        self._lives = 0
        self._skews_us = [0, 0]

    # Actions.

    def start(self, worker: int, told_ms: int = 0) -> None:
        """Start a worker's process; only after ``told_ms`` is the other one told that it is over.

        Until then it believes that it owns the shard.
        """
        if self.processes[worker] is not None:
            return
        self._lives += 1
        process = Process(self.backend, self.disks[worker], worker, self._lives)
        process.skew_us = self._skews_us[worker]
        self.processes[worker] = process
        self._running[worker] = self._tasks.create_task(process.run(), name=f"worker {worker}")
        rival = self.processes[1 - worker]
        if rival is not None:
            self._tasks.create_task(self._tell(1 - worker, rival, told_ms / 1000), name="group")

    async def _tell(self, worker: int, process: Process, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        if self.processes[worker] is process:
            await self.stop(worker)

    async def kill(self, worker: int, survivors: int) -> None:
        """End a process at once; of its unsynced writes the first ``survivors`` are on the disk."""
        task, self._running[worker] = self._running[worker], None
        if task is None:
            return
        self.processes[worker] = None
        disk = self.disks[worker]
        # Whatever a cancelled process still does, it does not do it to the disk.
        unsynced, kept = list(disk.unsynced), dict(disk.kept)
        task.cancel()
        await asyncio.wait({task}, timeout=SETTLED_S)
        assert task.done(), "a cancelled process goes on"
        disk.kept, disk.unsynced = kept, unsynced
        disk.crash(min(survivors, len(unsynced)))

    async def stop(self, worker: int) -> None:
        """Let a process drain, flush and release, as far as it can in a while."""
        process = self.processes[worker]
        if process is None:
            return
        with suppress(TimeoutError, Fenced):
            async with asyncio.timeout(10):
                await process.slot.drain()
        if self.processes[worker] is process:
            await self.kill(worker, len(self.disks[worker].unsynced))

    def pause_leases(self, worker: int) -> None:
        """Keep a process from renewing: soon it may not read, and it does not know of others."""
        process = self.processes[worker]
        if process is not None:
            process.leases.paused = not process.leases.paused

    def skew(self, worker: int, seconds: int) -> None:
        """Set a worker's wall clock off, for now and for later processes."""
        self._skews_us[worker] = seconds * 1_000_000
        process = self.processes[worker]
        if process is not None:
            process.skew_us = self._skews_us[worker]

    async def lose_disk(self, worker: int) -> None:
        """Kill a process and empty its disk."""
        await self.kill(worker, 0)
        self.disks[worker] = Disk()

    def copy_disk(self, worker: int) -> None:
        """Copy a disk as it would be found after a crash."""
        self.copies[worker] = self.disks[worker].copy()

    async def restore_disk(self, worker: int) -> None:
        """Kill a process and put the last copy in its disk's place."""
        await self.kill(worker, 0)
        self.disks[worker] = self.copies[worker].copy()

    def fault(self, worker: int, number: int) -> None:
        """Let a worker's next append meet a fault."""
        process = self.processes[worker]
        if process is not None:
            process.slot.handles.last.fault = list(Fault)[number % len(Fault)]

    def flush_fault(self, worker: int, number: int) -> None:
        """Let a worker's next flush meet a fault."""
        process = self.processes[worker]
        if process is not None:
            process.slot.writer.fault = list(FlushFault)[number % len(FlushFault)]

    def land_late(self) -> None:
        """Let the oldest delayed batch arrive."""
        if self.backend.log.delayed:
            self.backend.log.land_late()

    def outage(self, away_ms: int) -> None:
        """Let the broker go away for a while."""
        broker = self.backend.log.broker
        broker.away = True
        asyncio.get_running_loop().call_later(away_ms / 1000, setattr, broker, "away", False)

    def compact(self, part: int) -> None:
        """Compact the changelog up to a point; ``part`` is in tenths."""
        changelog = self.backend.changelog
        changelog.compact(changelog.end * part // 10)

    async def flush(self, worker: int) -> None:
        """Flush a worker's slot now, if it serves."""
        process = self.processes[worker]
        if process is not None and process.owner is not None:
            with suppress(Unavailable, OutcomeUnknown, Fenced, StoreFailed, TimeoutError):
                async with asyncio.timeout(1):
                    await process.slot.flush()

    def write(self, worker: int, count: int, seed: int) -> None:
        """Ask a worker for changes all at once."""
        chance = random.Random(seed)
        process = self.processes[worker]
        owner = process.owner if process is not None else None
        for _ in range(count if owner is not None else 0):
            name = chance.choice(NAMES)
            change, mark = self._change(chance, name)
            assert process is not None
            now_s = asyncio.get_running_loop().time()
            attempt = Attempt(name, mark, change, self.backend_end, process, now_s)
            self.attempts.append(attempt)
            try:
                assert owner is not None
                owner.submit(change, partial(self._heard, attempt))
            except StoreError as error:
                self._heard(attempt, error)

    def options(self, worker: int, max_versions: int) -> None:
        """Let a worker log other options: a barrier for the changes that come after."""
        process = self.processes[worker]
        if process is not None and process.owner is not None:
            body = record.Options(-1, max_versions, None)
            self._tasks.create_task(_logged(process.owner, body), name="options")

    def expire(self, worker: int) -> None:
        """Tell a worker's clients that they waited too long, where they did."""
        process = self.processes[worker]
        if process is not None and process.owner is not None:
            process.owner.expire()

    # Checking.

    @property
    def backend_end(self) -> int:
        return len(self.backend.log.everything)

    def check(self) -> None:
        """Hold the invariants that hold at every moment."""
        log = self.backend.log.everything
        self.model.replay(log[self.model.end :])
        valid = [mark_of(body) for _, body in self.model.changes]
        marks = [mark for mark in valid if mark is not None]
        assert len(marks) == len(set(marks)), "a change stands twice"
        assert {a.mark for a in self.attempts if a.applied and a.mark} <= set(marks)
        stamps = self.model.stamps
        assert all(a < b for a, b in pairwise(stamps)), "stamps increase"
        for process in self.processes:
            if process is not None and process.owner is not None:
                self._check_rows(process.owner)
        overdue_s = asyncio.get_running_loop().time() - WAIT_S_MAX
        for attempt in self.attempts:
            if attempt.told is None and attempt.process in self.processes:
                assert attempt.since_s > overdue_s, "a client waits for ever"

    def _check_rows(self, owner: ShardOwner) -> None:
        """Rows are the fold of the log up to what is applied; a readable owner has it all."""
        applied = owner.shard.state.applied
        expected = RowModel(MAX_VERSIONS)
        expected.replay(self.backend.log.everything[: applied + 1])
        assert difference(dict(rows_in(owner.rows)), expected.rows) == []
        assert index_rows_in(owner.rows) == index_rows_of(expected.rows)
        with suppress(Unavailable):
            owner.require_readable()
            acknowledged = {a.mark for a in self.attempts if a.applied and a.mark}
            seen = {mark_of(body) for _, body in expected.changes}
            assert acknowledged <= seen, "a strong read misses an acknowledged write"

    async def settle(self) -> None:
        """End every fault, start worker 0 anew, and check the outcomes."""
        self.backend.log.broker.away = False
        for worker in (0, 1):
            await self.kill(worker, 0)
        while self.backend.log.delayed:
            self.backend.log.land_late()
        for worker in (0, 1):
            self.start(worker)
            await self._serving(worker)
            self.check()
            self._check_outcomes()
            await self._check_stream(worker)
            await self.stop(worker)

    async def _serving(self, worker: int) -> None:
        process = self.processes[worker]
        assert process is not None
        async with asyncio.timeout(SETTLED_S):
            while process.owner is None:
                assert not process.slot.closed, process.slot.closed
                await asyncio.sleep(0.1)

    def _check_outcomes(self) -> None:
        valid = [mark_of(body) for _, body in self.model.changes]
        for attempt in self.attempts:
            assert attempt.told is not None, f"{attempt} was never answered"
            assert not attempt.applied or attempt.mark is None or attempt.mark in valid
            refused = not attempt.applied and not attempt.unknown
            assert not refused or attempt.mark is None or attempt.mark not in valid, str(attempt)
        for name in NAMES:
            deletes = [a for a in self.attempts if a.name == name and a.mark is None]
            logged = sum(
                mark_of(body) is None and name_of(body) == name for _, body in self.model.changes
            )
            applied = sum(a.applied for a in deletes)
            assert applied <= logged <= applied + sum(a.unknown for a in deletes)

    async def _check_stream(self, worker: int) -> None:
        """A reader, whatever its page size, sees every valid change that is kept, and no other."""
        process = self.processes[worker]
        assert process is not None
        assert process.owner is not None
        owner = process.owner
        start, _ = await owner.log.bounds()
        kept = [offset for offset, _ in self.model.changes if offset >= start]
        for offset, stamp in zip(kept[::-1], self.model.stamps[::-1], strict=False):
            assert await find_stamp(owner, stamp, start) in range(start, offset + 1)
        expected = len(kept)
        for limit in (1, 3, 1000):
            at, seen = start, 0
            while True:
                page = await read_page(owner, at, limit=limit, bytes_max=20_000)
                at, seen = page.next_offset, seen + len(page.changes)
                if page.at_end:
                    break
            assert seen == expected, f"a reader of pages of {limit} sees {seen} of {expected}"

    # The client.

    def _heard(self, attempt: Attempt, told: Outcome | StoreError) -> None:
        assert attempt.told is None, "answered twice"
        attempt.told = told
        if isinstance(told, Rejected):
            self._check_refusal(attempt)

    def _check_refusal(self, attempt: Attempt) -> None:
        """A refusal is a strong read: at some moment since it was asked, the row was like that."""
        log = self.backend.log.everything
        self.model.replay(log[self.model.end :])
        found = self.model.was_present(attempt.name, attempt.low, len(log))
        wanted = attempt.change.expectation == EXPECT_PRESENT
        assert (not wanted) in found, f"{attempt} was refused, but the row was never like that"

    def _change(self, chance: random.Random, name: str) -> tuple[Change, str | None]:
        kind = chance.choice((PUT, UPDATE, UPDATE, UPDATE, DELETE))
        row = [(b"name", variant.encode(name)), (b"number", variant.encode(1))]
        if kind == DELETE:
            return Change(kind, row, [], IGNORE), None
        mark = f"{len(self.attempts)}"
        cells = [*_cells(chance, updates=kind == UPDATE), _put(MARK, mark.encode())]
        expectation = chance.choice((IGNORE, IGNORE, EXPECT_PRESENT, EXPECT_ABSENT))
        return Change(kind, row, cells, expectation), mark


async def _logged(owner: ShardOwner, body: record.Options) -> None:
    with suppress(StoreError):
        await owner.submit_hidden(body)


def _cells(chance: random.Random, *, updates: bool) -> Iterator[Cell]:
    """Yield some cells: small, large, deleted, counted."""
    for name in COLUMNS:
        choice = chance.choice(("none", "none", "small", "large", "delete"))
        if choice == "small":
            yield _put(name, b"small")
        elif choice == "large":
            yield _put(name, LARGE)
        elif choice == "delete" and updates:
            yield delete_cell(name, None)
    if updates and chance.random() < 0.2:
        yield increment_cell(b"n", variant.encode(1))


def _put(name: bytes, value: bytes) -> Cell:
    return put_cell(name, variant.encode(value.decode()), None)


IndexRows = dict[tuple[bytes, ...], dict[bytes, bytes]]
"""Values of the columns kept, by the key of the index's row."""


def index_rows_in(rows: RangeReader) -> IndexRows:
    """Return the rows of the table's local index."""
    low, high = table_prefix(INDEX.table_id), table_prefix(INDEX.table_id + 1)
    found: IndexRows = {}
    for stored in read_range(rows, low, high, backward=False):
        cells = stored_cells(rows, stored.row_key) or ()
        found[tuple(key.decode(stored.row_key[len(low) :]))] = {c.name: c.variant for c in cells}
    return found


def index_rows_of(rows: dict[str, Columns]) -> IndexRows:
    """Return the rows that the index must have: of each column the newest version."""
    found: IndexRows = {}
    for name, columns in rows.items():
        newest = {column: versions[max(versions)] for column, versions in columns.items()}
        kept = {c.encode() for c in INDEX.columns}
        row_key = (variant.encode(name), newest[MARK], variant.encode(1))
        found[row_key] = {c: value for c, value in newest.items() if c in kept}
    return found


def difference(found: dict[str, Columns], expected: dict[str, Columns]) -> list[str]:
    """Return where rows differ, values by their beginnings."""
    told = []
    for name in sorted(found.keys() | expected.keys()):
        if name not in found or name not in expected:
            told.append(f"row {name}: {name in found} is not {name in expected}")
            continue
        one, other = found[name], expected[name]
        told += [
            f"{name} {column!r}: {_short(one, column)} {_short(other, column)}"
            for column in sorted(one.keys() | other.keys())
            if one.get(column) != other.get(column)
        ]
    return told


def _short(columns: Columns, column: bytes) -> dict[int, bytes]:
    return {version: value[:12] for version, value in columns.get(column, {}).items()}


def rows_in(rows: ChunkReader) -> Iterator[tuple[str, Columns]]:
    """Yield the rows that are there, each with its cells by column and version."""
    for name in NAMES:
        encoded = key.encode([variant.encode(name), variant.encode(1)])
        cells = stored_cells(rows, row_key(TABLE.table_id, encoded))
        if cells is not None:
            columns: Columns = {}
            for cell in cells:
                columns.setdefault(cell.name, {})[cell.version_ms or 0] = cell.variant
            yield name, columns
