"""A worker process: real parts of ``rowtide.stream``, joined as ``stream/worker/worker.py`` does.

Real are leases, take-over, roster, slots, shards, catalog, placement, tables and indexes, and what
they are made of. Doubles are Kafka (``memory_cluster.py``), RocksDB (``memory_rows.py``), the group
and the hop (``group.py``). There is no HTTP: clients call what handlers call, or hand their
requests to the router (``edge.py``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from rowtide.core.cluster.catalog import Catalog
from rowtide.core.protocol.authentication import Identity
from rowtide.core.protocol.worker_messages import (
    BeginCopyRequest,
    FinishIndexRequest,
    FinishReshapeRequest,
    ForgetShardRequest,
    HandOverRequest,
    IndexStateRequest,
    LeavingRequest,
    ReceivedRequest,
    SettleRequest,
)
from rowtide.core.values.errors import StoreError, Unavailable
from rowtide.core.values.limits import Limits
from rowtide.core.values.schema import ShardRange, Table
from rowtide.stream.api.directory import Directory
from rowtide.stream.api.index import IndexOperations
from rowtide.stream.api.reshape import (
    ReshapeOperations,
)
from rowtide.stream.api.split_point import SplitPointOperations
from rowtide.stream.api.table import TableOperations
from rowtide.stream.api.table_throttle import TableThrottle
from rowtide.stream.cluster.catalog_owner import CATALOG_SLOT, CatalogOwner
from rowtide.stream.cluster.handover import Handover
from rowtide.stream.cluster.hop import HopClient
from rowtide.stream.cluster.peers import Peers
from rowtide.stream.cluster.placement import Placement
from rowtide.stream.cluster.roster import Roster
from rowtide.stream.cluster.takeover import Takeover
from rowtide.stream.log.kafka.cluster import Cluster
from rowtide.stream.log.local.cluster import LocalCluster
from rowtide.stream.log.tails import Tails
from rowtide.stream.log.topics import TopicNames
from rowtide.stream.shard.logs import ShardLogs
from rowtide.stream.shard.owner import ShardOwner
from rowtide.stream.shard.row_store import RowStore
from rowtide.stream.slot.failures import StoreBehind
from rowtide.stream.slot.lease.lease_keeper import LeaseKeeper, LeaseSettings
from rowtide.stream.slot.settings import SlotSettings
from rowtide.stream.slot.slot import Slot
from rowtide.stream.slot.standby.standby import Standby
from rowtide.stream.slot.standby.standby_shard import StandbyShard
from rowtide.stream.slot.surroundings import SlotLinks, Surroundings
from rowtide.stream.slot.upkeep.reclaimer import ReclaimSettings
from tests.simulation.edge import router_of
from tests.simulation.group import Group, Hop, SimulatedMembership
from tests.simulation.local_disk import DiskStore, LogDisk
from tests.simulation.memory_cluster import MemoryCluster
from tests.simulation.memory_rows import Disk, MemoryRows
from tests.simulation.memory_tails import MemoryTails
from tests.simulation.network import Link, Network
from tests.simulation.tables import INSTANCE, Place
from tests.simulation.virtual_time import Process

__all__ = ["EPOCH_US", "LEASE_S", "TOPICS", "Shared", "SimulatedWorker", "Wheel"]

EPOCH_US = 1_700_000_000_000_000
LEASE_S = 1.0
TOPICS = TopicNames("sim", "sim-rows-changelog")
NO_PATH = Path("/nonexistent/rows")
SETTINGS = SlotSettings(flush_s=5.0, trim_s=20.0, reclaim=ReclaimSettings(pause_s=1e9))


@dataclass(slots=True)
class Shared:
    """What all workers share: the network with the broker, the group, the hop."""

    network: Network
    group: Group
    hop: Hop
    copies: bool = False
    """Whether each worker keeps copies of slots that others have."""
    log_disk: LogDisk | None = None
    """The local log of the only worker, where there is no broker."""


@dataclass(slots=True)
class Wheel:
    """A worker's clocks, which survive its processes. ``rate`` is that of the steady one."""

    rate: float = 1.0
    skew_us: int = 0

    def wall_us(self) -> int:
        """Return Unix microseconds, which may go back."""
        return EPOCH_US + int(asyncio.get_running_loop().time() * 1_000_000) + self.skew_us

    def lease_s(self) -> float:
        """Return seconds on a clock that never goes back."""
        return asyncio.get_running_loop().time() * self.rate


@dataclass(slots=True)
class Machine:
    """What of a worker survives its processes: disks by slot, clocks, who it was."""

    number: int
    disks: dict[int, Disk] = field(default_factory=dict)
    wheel: Wheel = field(default_factory=Wheel)
    former: frozenset[bytes] = frozenset()
    """Owner ids that are known to have ended: that of a directory of its own."""

    def disk(self, slot: int) -> Disk:
        """Return a slot's disk, an empty one where there was none."""
        return self.disks.setdefault(slot, Disk())


class SimulatedSlot(Slot):
    """A slot on a disk in memory."""

    disk: Disk

    def _opened_rows(self) -> RowStore:
        return MemoryRows(self.disk)

    def _behind(self, why: str) -> StoreBehind:
        self.disk.empty()
        return super()._behind(why)


class SimulatedStandby(Standby):
    """A copy on a disk in memory."""

    disk: Disk

    def _opened_rows(self) -> RowStore:
        return MemoryRows(self.disk)

    def _throw_away(self) -> None:
        super()._throw_away()
        self.disk.empty()


class SimulatedWorker:
    """One life of a worker process. ``run`` is its one task, in the context of its process."""

    def __init__(self, shared: Shared, machine: Machine, life: int) -> None:
        self.number = machine.number
        self.machine = machine
        self.shared = shared
        self.process = Process()
        self.link = Link(shared.network)
        self.cluster: MemoryCluster | LocalCluster = MemoryCluster(self.link)
        self.log_store: DiskStore | None = None
        if shared.log_disk is not None:
            self.log_store = DiskStore(shared.log_disk, self.link)
            self.cluster = LocalCluster(
                self.log_store,
                prefix=TOPICS.prefix,
                clock_ms=lambda: machine.wheel.wall_us() // 1000,
                thread=self.log_store.thread,
            )
        self.owner_id = bytes([self.number, life % 256, life // 256]) + bytes(5)
        self.address = f"worker-{self.number}-{life}:1"
        self.stopping = asyncio.Event()
        self.assembled = False
        self.ended = False
        self.thawed_s = 0.0
        """When it last went on after a stop."""

    async def run(self) -> None:
        """Serve until told to stop, then drain."""
        shared = self.shared
        try:
            async with asyncio.TaskGroup() as self.tasks:
                await self._start_log()
                self._assemble()
                self._assemble_edge()
                self.assembled = True
                self.tasks.create_task(self.leases.run(), name="leases")
                self.tasks.create_task(self.leases.watch(shared.group.slots), name="others' leases")
                self.tasks.create_task(self.takeover.run(), name="takeover")
                self.tasks.create_task(self.catalog_owner.follow(), name="catalog")
                self.tasks.create_task(self.placement.run(), name="placement")
                shared.hop.peers[self.address] = self
                self.roster.stand_by(frozenset(range(shared.group.slots)))
                await self.handover.join()
                await self.stopping.wait()
                await self.handover.leave()
                self.roster.stop()
                raise _Stopped
        except* _Stopped:
            pass
        finally:
            if not self.ended:
                shared.hop.peers.pop(self.address, None)
                shared.group.leave(self.address)
                if isinstance(self.cluster, LocalCluster):
                    await self.cluster.stop()

    async def _start_log(self) -> None:
        """Open the local log, if there is one, and create the system's topics in it.

        A process ends where that fails. Here it tries again, as whoever starts it would.
        """
        if not isinstance(self.cluster, LocalCluster):
            return
        self.tasks.create_task(self.cluster.run(), name="log")
        while True:
            try:
                await self.cluster.start()
                await self.cluster.create_topics(TOPICS.system(self.shared.group.slots))
            except StoreError:
                await asyncio.sleep(1.0)
            else:
                return

    def _assemble(self) -> None:
        """Build the parts and join them, see ``Worker._assemble``."""
        wheel, slots = self.machine.wheel, self.shared.group.slots
        cluster = cast(Cluster, self.cluster)
        hop = cast(HopClient, self.shared.hop)
        self.catalog_owner = CatalogOwner(
            self.cluster.log(TOPICS.catalog),
            self.cluster.log(TOPICS.catalog),
            owner=self.owner_id,
            clock_us=wheel.wall_us,
            changed=self._catalog_changed,
            clock_s=wheel.lease_s,
        )
        self.leases = LeaseKeeper(
            self.cluster,
            TOPICS.lease,
            owner=self.owner_id,
            address=self.address,
            dead=self.machine.former,
            settings=LeaseSettings(LEASE_S),
            clock_s=wheel.lease_s,
        )
        copies = self._new_standby if self.shared.copies else None
        self.roster = Roster(self._new_slot, self.tasks, copies)
        self.tails = MemoryTails(
            cast(MemoryCluster, self.cluster), self.tasks, asyncio.get_running_loop().time
        )
        peers = Peers(hop, self.owners, self.catalog, address=self.address)
        self.handover = Handover(self.leases, self.roster, hop, peers, self._new_membership)
        self.placement = Placement(self.catalog_owner, self.roster.slots, hop, peers)
        limits = Limits(source_slice_rows=2)
        self.directory = Directory(self.catalog, self.roster.slots, limits, wheel.wall_us)
        throttle = TableThrottle(limits, asyncio.get_running_loop().time)
        logs = ShardLogs(cluster, TOPICS, slots)
        made = (self.directory, self.catalog_owner, logs, throttle)
        self.indexes = IndexOperations(*made, self.placement, self._finish_index)
        splits = SplitPointOperations(self.directory, self._forward)
        self.reshapes = ReshapeOperations(
            self.directory,
            self.catalog_owner,
            logs,
            self.placement,
            splits,
            self._forward,
        )
        self.tables = TableOperations(*made, self.indexes, self.placement)
        self.takeover = Takeover(
            self.leases,
            self.roster,
            slots=slots,
            address=self.address,
            standbys=lambda _slot: (),
            ready=self.catalog_owner.ready.is_set,
        )

    def _assemble_edge(self) -> None:
        """Build what clients' requests pass through."""
        self.router = router_of(
            self.directory,
            self.catalog_owner,
            cast(HopClient, self.shared.hop),
            self.owners,
            self.roster.slots,
            address=self.address,
        )
        self.edge = self.router.routed()

    # What the parts ask of each other.

    @property
    def catalog(self) -> Catalog:
        """The catalog as this worker knows it."""
        return self.catalog_owner.catalog

    def owners(self) -> Mapping[int, str]:
        """Return where each slot's worker is: as its lease says, else as the group does."""
        leased = {slot: address for slot, address in self.leases.addresses.items() if address}
        return {**self.handover.membership.owners(), **leased}

    def answer(self, identity: Identity, operation: str, body: bytes) -> Awaitable[bytes]:
        """Answer what another worker asks."""
        handlers: dict[str, Callable[[Identity, bytes], Awaitable[bytes]]] = {
            SettleRequest.operation: self.placement.settle_request,
            IndexStateRequest.operation: self.indexes.state_request,
            FinishIndexRequest.operation: self.indexes.finish_request,
            FinishReshapeRequest.operation: self.reshapes.finish_request,
            BeginCopyRequest.operation: self.reshapes.begin_copy_request,
            ForgetShardRequest.operation: self.reshapes.forget_request,
            ReceivedRequest.operation: self._received,
            HandOverRequest.operation: self.handover.hand_over_request,
            LeavingRequest.operation: self.handover.leaving_request,
        }
        handler = handlers.get(operation)
        return (
            self._passed_on(identity, operation, body)
            if handler is None
            else handler(identity, body)
        )

    async def _passed_on(self, identity: Identity, operation: str, body: bytes) -> bytes:
        told = self.router.passed_on(identity, operation, body)
        return told if isinstance(told, bytes) else await told

    async def _received(self, identity: Identity, body: bytes) -> bytes:
        return self.reshapes.received_request(identity, body)

    def _new_membership(self) -> SimulatedMembership:
        return SimulatedMembership(
            self.shared.group,
            self,
            on_assigned=lambda numbers: self.roster.assign(numbers),
            on_revoked=lambda numbers: self.roster.revoke(numbers),
        )

    def _new_slot(self, number: int) -> Slot:
        links = SlotLinks(
            self.leases,
            self._opening(number),
            self._tables_of,
            self._table_known,
            self.indexes,
            self.reshapes,
            self.handover,
        )
        slot = SimulatedSlot(number, NO_PATH, self._surroundings(), links)
        slot.disk = self.machine.disk(number)
        slot.opens_on(self.roster.left.get(number, {}))
        return slot

    def _surroundings(self) -> Surroundings:
        return Surroundings(self.cluster, TOPICS, Limits(), SETTINGS, self.machine.wheel.wall_us)

    def _opening(self, number: int) -> Callable[[int], Coroutine[Any, Any, None]]:
        if number == CATALOG_SLOT:
            return self.catalog_owner.open
        return lambda _claim: self._catalog_proven()

    def _new_standby(self, number: int) -> Standby:
        standby = SimulatedStandby(
            number,
            NO_PATH,
            self._surroundings(),
            tails=cast(Tails, self.tails),
            catalog_read=self._catalog_read,
            catalog_proven=self._catalog_proven,
            tables=lambda slot: [*self.reshapes.ended(slot), *self._tables_of(slot)],
            coming=self.reshapes.arriving,
            table_known=self._table_known,
            clock_s=asyncio.get_running_loop().time,
        )
        standby.disk = self.machine.disk(number)
        return standby

    def _table_known(self, table_id: int) -> bool:
        return table_id in self.catalog.tables_by_id or table_id >= self.catalog.next_table_id

    async def _catalog_proven(self) -> None:
        await self.catalog_owner.ready.wait()
        await self.catalog_owner.prove()

    async def _catalog_read(self) -> None:
        await self.catalog_owner.ready.wait()
        await self.catalog_owner.refresh()

    def _catalog_changed(self) -> None:
        for slot in self.roster.slots.values():
            slot.retable()
        for standby in self.roster.standbys.values():
            standby.settle()
        self.placement.wake.set()

    def _tables_of(self, slot: int) -> list[tuple[Table, ShardRange]]:
        shards = self.catalog.shards.values()
        return [
            (table, shard) for table, shard in shards if shard.slot == slot and not shard.sealed_us
        ]

    async def _finish_index(self, identity: Identity, body: bytes) -> bytes:
        if self.catalog_owner.owning:
            return await self.indexes.finish_request(identity, body)
        return await self._forward(CATALOG_SLOT, FinishIndexRequest.operation, identity, body)

    async def _forward(self, slot: int, operation: str, identity: Identity, body: bytes) -> bytes:
        address = self.owners().get(slot)
        if address is None or address == self.address:
            raise Unavailable("The partition is not available.")
        return await self.shared.hop.call(address, identity, operation, body)

    def rejoin(self) -> None:
        """Come back to the group that had given us up, unless we leave."""
        membership = self.handover.membership
        if isinstance(membership, SimulatedMembership) and not self.handover.left:
            self.shared.group.join(self, membership)

    # What is looked at from outside.

    @property
    def alive(self) -> bool:
        """Whether it can still do something, be it stopped for now."""
        return not self.ended

    def open_shards(self) -> list[ShardOwner]:
        """Return the shards it serves."""
        return [o for slot in self.roster.slots.values() for o in slot.shards.values()]

    def copied_shards(self) -> list[StandbyShard]:
        """Return the shards of which it would show a copy, of whatever age."""
        copies = [s for standby in self.roster.standbys.values() for s in standby.shards.values()]
        return [shard for shard in copies if shard.fresh_s is not None and not shard.ended]

    def has(self, place: Place) -> bool:
        """Say whether it serves, as it believes, the shard of a row."""
        table = self.catalog.tables.get((INSTANCE, place.table))
        if table is None:
            return False
        try:
            self.directory.owner(table, place.key)
        except StoreError:
            return False
        return True

    @property
    def settled(self) -> bool:
        """Whether all its slots are open, it serves every shard, and none is being changed."""
        slots = list(self.roster.slots.values())
        if len(slots) < self.shared.group.slots or not all(s.opened.is_set() for s in slots):
            return False
        shards = self.catalog.shards.values()
        living = {shard.shard_id for _, shard in shards if not shard.sealed_us}
        served = {owner.shard.shard_id for owner in self.open_shards()}
        return bool(living) and living == served and not self.catalog.reshapes

    def followed(self) -> list[ShardOwner]:
        """Return the shards whose logs may be read, those that have ended among them."""
        return [self.directory.followed(shard) for _, shard in self.catalog.shards.values()]


class _Stopped(Exception):
    """Ends the worker's tasks after a clean stop."""
