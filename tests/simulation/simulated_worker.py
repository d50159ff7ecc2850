"""A worker process: the product's parts, joined by the product's ``assemble``.

Doubles are Kafka (``memory_cluster.py``), RocksDB (``memory_rows.py``), the group and the hop
(``group.py``). There is no HTTP: clients call what handlers call, or hand their requests to the
routed handlers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from typing import cast

from rowtide.core.cluster.catalog import Catalog
from rowtide.core.protocol.authentication import Identity
from rowtide.core.values.errors import StoreError
from rowtide.stream.api.directory import Directory
from rowtide.stream.api.index import IndexOperations
from rowtide.stream.api.reshape import (
    ReshapeOperations,
)
from rowtide.stream.api.table import TableOperations
from rowtide.stream.cluster.backing import Member
from rowtide.stream.cluster.catalog_owner import CatalogOwner
from rowtide.stream.cluster.handover import Handover
from rowtide.stream.cluster.hop_client import HopClient
from rowtide.stream.cluster.placement import Placement
from rowtide.stream.cluster.roster import Roster
from rowtide.stream.log.cluster import TopicCluster
from rowtide.stream.log.local.cluster import LocalCluster
from rowtide.stream.log.tails import Tails
from rowtide.stream.log.topics import TopicNames
from rowtide.stream.shard.owner import ShardOwner
from rowtide.stream.slot.lease.lease_keeper import LeaseKeeper
from rowtide.stream.slot.lease.lease_settings import LeaseSettings
from rowtide.stream.slot.standby.standby_shard import StandbyShard
from rowtide.stream.worker.assembly import assemble
from rowtide.stream.worker.ownership import WorkerSite
from tests.simulation.environment import Machine, config_of, environment_of
from tests.simulation.group import Group, Hop, SimulatedMembership
from tests.simulation.local_disk import DiskStore, LogDisk
from tests.simulation.memory_cluster import MemoryCluster
from tests.simulation.memory_tails import MemoryTails
from tests.simulation.network import Link, Network
from tests.simulation.tables import INSTANCE, Place
from tests.simulation.virtual_time import Process

__all__ = ["LEASE_S", "TOPICS", "Shared", "SimulatedWorker"]

LEASE_S = 1.0
TOPICS = TopicNames("sim", "sim-rows-changelog")


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
        """Serve until asked to stop, then drain."""
        shared = self.shared
        try:
            async with asyncio.TaskGroup() as self.tasks:
                await self._start_log()
                self._assemble()
                self.assembled = True
                owned = self.parts.ownership
                self.tasks.create_task(self.leases.run(), name="leases")
                others = self.leases.others
                self.tasks.create_task(others.run(shared.group.slots), name="others' leases")
                self.tasks.create_task(owned.takeover.run(), name="takeover")
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

        A process ends if that fails. Here it retries, like a supervisor that restarts it.
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
        """Build the parts as the product does, in an environment of doubles."""
        site = WorkerSite(
            owner=self.owner_id,
            name=f"worker-{self.number}",
            address=self.address,
            topics=TOPICS,
            slots=self.shared.group.slots,
            lease=LeaseSettings(LEASE_S),
            started_s=0.0,
            dead_owners=self.machine.former,
        )
        tails = MemoryTails(
            cast(MemoryCluster, self.cluster), self.tasks, asyncio.get_running_loop().time
        )
        environment = environment_of(
            self.machine,
            cast(TopicCluster, self.cluster),
            cast(Tails, tails),
            cast(HopClient, self.shared.hop),
            self._new_membership,
            copies=self.shared.copies,
        )
        self.parts = assemble(config_of(self.machine.wheel), site, environment, self.tasks)
        self.edge = self.parts.router.make_handlers()

    def _new_membership(self, member: Member) -> SimulatedMembership:
        return SimulatedMembership(
            self.shared.group,
            self,
            on_assigned=member.on_assigned,
            on_revoked=member.on_revoked,
        )

    def answer(self, identity: Identity, operation: str, body: bytes) -> Awaitable[bytes]:
        """Answer what another worker asks."""
        return self._answer_forwarded(identity, operation, body)

    async def _answer_forwarded(self, identity: Identity, operation: str, body: bytes) -> bytes:
        answer = self.parts.router.answer_forwarded(identity, operation, body)
        return answer if isinstance(answer, bytes) else await answer

    # The parts that actions and checks use.

    @property
    def catalog(self) -> Catalog:
        """The catalog as this worker knows it."""
        return self.parts.catalog

    @property
    def catalog_owner(self) -> CatalogOwner:
        """What follows the catalog, or owns it."""
        return self.parts.ownership.catalog

    @property
    def leases(self) -> LeaseKeeper:
        """The leases of its slots."""
        return self.parts.ownership.leases

    @property
    def roster(self) -> Roster:
        """Its slots, and its copies of others."""
        return self.parts.ownership.roster

    @property
    def handover(self) -> Handover:
        """How slots come and go."""
        return self.parts.ownership.handover

    @property
    def placement(self) -> Placement:
        """What brings shards in line with the catalog."""
        return self.parts.ownership.placement

    @property
    def directory(self) -> Directory:
        """Tables, and the owners of rows."""
        return self.parts.directory

    @property
    def tables(self) -> TableOperations:
        """What changes tables."""
        return self.parts.operations.tables

    @property
    def indexes(self) -> IndexOperations:
        """What changes indexes."""
        return self.parts.operations.indexes

    @property
    def reshapes(self) -> ReshapeOperations:
        """What splits, merges and moves shards."""
        return self.parts.operations.reshapes

    def owners(self) -> Mapping[int, str]:
        """Return where each slot's worker is: as its lease says, else as the group does."""
        return self.parts.ownership.owners()

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

    def list_copied_shards(self) -> list[StandbyShard]:
        """Return the shards of which it would show a copy, of whatever age."""
        copies = [s for standby in self.roster.standbys.values() for s in standby.shards.values()]
        return [shard for shard in copies if shard.fresh_s is not None and not shard.has_ended]

    def has(self, place: Place) -> bool:
        """True if it serves, as it believes, the shard of a row."""
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

    def list_followed_shards(self) -> list[ShardOwner]:
        """Return the shards whose logs may be read, those that have ended among them."""
        return [self.directory.find_followable(shard) for _, shard in self.catalog.shards.values()]


class _Stopped(Exception):
    """Ends the worker's tasks after a clean stop."""
