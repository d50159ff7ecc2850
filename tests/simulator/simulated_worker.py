"""A worker's slot with one shard on a log, rows, changelog and leases in memory.

Everything above those seams is the real thing: claiming, recovery, serving, flushing, trimming,
stepping down. What ownership means between workers is kept by one ``Ledger``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from rowtide.core.errors import Unavailable
from rowtide.core.limits import Limits
from rowtide.core.reshape import Reshape, Sealed
from rowtide.core.schema import (
    INTEGER,
    LOCAL,
    STRING,
    Index,
    KeyColumn,
    ShardRange,
    Table,
    TableOptions,
)
from rowtide.stream.kafka_changelog import ChangelogReader
from rowtide.stream.kafka_cluster import Cluster
from rowtide.stream.lease_keeper import LeaseKeeper
from rowtide.stream.log import Entry
from rowtide.stream.memory_log import MemoryLog, Storage
from rowtide.stream.row_store import RowStore
from rowtide.stream.shard_owner import ShardOwner
from rowtide.stream.slot import Slot
from rowtide.stream.slot_settings import SlotSettings
from rowtide.stream.topics import TopicNames
from tests.simulator.memory_changelog import MemoryChangelog, MemoryReader, MemoryWriter
from tests.simulator.memory_rows import Disk, MemoryRows

__all__ = [
    "INDEX",
    "LEASE_S",
    "MAX_VERSIONS",
    "SHARD",
    "TABLE",
    "Backend",
    "Leases",
    "SimulatedSlot",
]

LEASE_S = 1.0
MAX_VERSIONS = 2
STRING_COLUMN = 4
"""Of DefinedColumnType."""

SHARD = ShardRange("s1", 0)
KEPT = ("c0", "c1", "c2", "c3")
INDEX = Index("by_mark", 2, LOCAL, ("name", "mark", "number"), KEPT, 0)
"""A local index. Every change gives its row another mark, so that the index's row moves."""

TABLE = Table(
    "instance",
    "table",
    1,
    (KeyColumn("name", STRING), KeyColumn("number", INTEGER)),
    TableOptions(max_versions=MAX_VERSIONS, deviation_s=10**9),
    None,
    0,
    0,
    0,
    0,
    (SHARD,),
    defined_columns=tuple((name, STRING_COLUMN) for name in ("mark", *KEPT)),
    indexes=(INDEX,),
)


class Recording(Storage):
    """A log's storage that keeps what is trimmed, for the model. No fields of its own by slots."""

    everything: list[Entry]

    def write(self, pairs: object) -> int:
        base = super().write(pairs)  # type: ignore[arg-type]
        self.everything += self.entries[base - self.start :]
        return base


class ShardLog(MemoryLog):
    """A log whose broker may be away."""

    def __init__(self, name: str = "memory", *, batch_bytes_max: int = 16 << 20) -> None:
        super().__init__(name, batch_bytes_max=batch_bytes_max)
        storage = Recording()
        storage.everything = []
        self._storage: Recording = storage
        self.broker = Broker()

    def twin(self) -> ShardLog:
        """Return another writer's handle."""
        twin = super().twin()
        twin.broker = self.broker
        return twin

    @property
    def everything(self) -> list[Entry]:
        """Every entry that was ever written, trimmed or not."""
        return self._storage.everything

    async def append(self, entries: object, *, deadline_s: float) -> int:
        await asyncio.sleep(0.001)
        if self.broker.away:
            # The connection was refused: nothing was sent.
            raise Unavailable(f"{self.name}: no broker")
        return await super().append(entries, deadline_s=deadline_s)  # type: ignore[arg-type]

    async def read(self, offset: int, *, bytes_max: int, wait_s: float = 0.0) -> list[Entry]:
        await self.broker.ask(self.name)
        return await super().read(offset, bytes_max=bytes_max, wait_s=wait_s)

    async def bounds(self) -> tuple[int, int]:
        await self.broker.ask(self.name)
        return await super().bounds()

    async def trim(self, before: int) -> None:
        await self.broker.ask(self.name)
        await super().trim(before)


class Broker:
    """Whether the broker answers."""

    def __init__(self) -> None:
        self.away = False

    async def ask(self, name: str) -> None:
        """Raise ``Unavailable`` while it is away."""
        await asyncio.sleep(0.001)
        if self.away:
            raise Unavailable(f"{name}: no broker")


@dataclass(slots=True)
class Claim:
    """Who claimed, and when it was last seen to renew; its number is its place in the ledger."""

    owner: bytes
    seen_s: float = 0.0
    released: bool = False


class Ledger:
    """The lease topic: every claim in order."""

    def __init__(self) -> None:
        self.claims: list[Claim] = []


class Leases(LeaseKeeper):
    """One worker's leases. ``paused`` is a process that is cut off: it renews nothing."""

    def __init__(self, ledger: Ledger, owner: bytes) -> None:
        self.owner = owner
        self.paused = False
        self._ledger = ledger
        self._claim = -1
        self._sent_s = -LEASE_S
        self._lost = False

    def readable(self, slot: int) -> bool:
        """Say whether the last renewal was sent within the lease."""
        now_s = asyncio.get_running_loop().time()
        return self._claim >= 0 and not self._lost and now_s - self._sent_s < LEASE_S

    def lost(self, slot: int) -> bool:
        """Say whether a later claim was seen."""
        return self._lost

    async def claim(self, slot: int) -> int:
        """Claim, then wait until everyone who came before has stopped to read."""
        await asyncio.sleep(0.001)
        claims = self._ledger.claims
        now_s = asyncio.get_running_loop().time()
        waits = [c.seen_s + LEASE_S * 1.01 - now_s for c in claims if not c.released]
        claims.append(Claim(self.owner, now_s))
        self._claim, self._lost = len(claims) - 1, False
        self._sent_s = now_s
        await asyncio.sleep(max([0.0, *waits]))
        return self._claim

    async def still_last(self, slot: int) -> bool:
        """Read the ledger to its end, wherever a paused process still can."""
        await asyncio.sleep(0.001)
        self._lost = self._claim != len(self._ledger.claims) - 1
        return not self._lost

    async def release(self, slot: int) -> None:
        """Let a successor in at once."""
        claims = self._ledger.claims
        if self._claim >= 0:
            claims[self._claim].released = True
        self._claim = -1

    async def run(self) -> None:
        """Renew until cancelled."""
        while True:
            await asyncio.sleep(LEASE_S / 4)
            if not self.paused and self._claim >= 0:
                sent_s = asyncio.get_running_loop().time()
                if await self.still_last(0):
                    self._sent_s = self._ledger.claims[self._claim].seen_s = sent_s


class Backend:
    """What all workers share."""

    def __init__(self) -> None:
        self.log = ShardLog("shard")
        self.changelog = MemoryChangelog()
        self.ledger = Ledger()
        self.brokers = None

    def handle(self) -> ShardLog:
        """Return a handle on the shard's log for one opening of it."""
        return self.log.twin()


class Handles:
    """A ``Cluster`` as a slot uses it; remembers the last handle it gave."""

    def __init__(self, backend: Backend) -> None:
        self.brokers = None
        self.last = backend.handle()
        self._backend = backend

    def log(self, _topic: str, _partition: int = 0) -> ShardLog:
        """Return a new handle on the one log."""
        self.last = self._backend.handle()
        return self.last


class NoLinks:
    """The links of a slot whose one table has but a local index, there from the start."""

    def sources(self, _number: int) -> Sequence[ShardRange]:
        return ()

    def source(self, _shard_id: str) -> ShardOwner:
        raise Unavailable

    async def pin(self, _owner: ShardOwner) -> int | None:
        return None

    async def finish(self, _number: int) -> None:
        return


class NoReshapes:
    """The plans of a catalog whose one shard stays as it is."""

    async def catalog_read(self) -> None:
        """Nothing is to be read."""

    def planned(self, _slot: int) -> Sequence[Reshape]:
        return ()

    def plan(self, _reshape_id: str) -> Reshape | None:
        return None

    def arriving(self, _slot: int) -> Sequence[tuple[Table, ShardRange]]:
        return ()

    def is_arriving(self, _shard: ShardRange) -> bool:
        return False

    def is_here(self, _shard: ShardRange) -> bool:
        return False

    def held(self, _slot: int, _number: int) -> Sequence[ShardRange]:
        return (SHARD,)

    async def begin_copy(self, reshape: Reshape, _claim: int) -> Reshape:
        return reshape

    async def received(self, _shard: ShardRange) -> int:
        return -1

    def ended(self, _slot: int) -> Sequence[tuple[Table, ShardRange]]:
        return ()

    async def prepare(self, _reshape: Reshape) -> None:
        return

    async def finish(self, _reshape: Reshape, _seals: Mapping[str, Sealed]) -> None:
        return

    async def forget(self, _shard: ShardRange) -> None:
        return


class NoOthers:
    """Of a slot that nobody else serves."""

    async def obtain(self, _slot: int) -> None:
        return

    def give_way(self, _slot: int) -> bool:
        return False


class SimulatedSlot(Slot):
    """The slot of one worker process: made anew after a crash, on the same disk."""

    def __init__(
        self, backend: Backend, disk: Disk, leases: Leases, clock_us: Callable[[], int]
    ) -> None:
        self.handles = Handles(backend)
        self.disk = disk
        self._backend = backend
        self.writer = MemoryWriter(backend.changelog, lambda: backend.log.broker.away)
        super().__init__(
            0,
            cluster=cast(Cluster, self.handles),
            topics=TopicNames("simulated", "changelog"),
            leases=leases,
            path=Path("memory"),
            before_open=_nothing_before,
            handover=NoOthers(),
            tables=lambda _slot: [(TABLE, SHARD)],
            table_known=lambda number: number in (TABLE.table_id, INDEX.table_id),
            clock_us=clock_us,
            indexes=NoLinks(),
            reshapes=NoReshapes(),
            limits=Limits(),
            settings=SlotSettings(flush_s=5.0, trim_s=20.0),
        )
        self._writer = self.writer
        self.failed_s: list[float] = []
        """When it closed to open again."""

    def _close(self) -> None:
        self.failed_s.append(asyncio.get_running_loop().time())
        super()._close()

    def _opened_rows(self) -> RowStore:
        return MemoryRows(self.disk)

    def _changelog_reader(self) -> ChangelogReader:
        return MemoryReader(self._backend.changelog)


async def _nothing_before(_claim: int) -> None:
    return
