"""One worker: everything of rowtide that runs in a process, put together.

Starts in this order: its directory, its topics, leases, membership; the slots that the group
gives it open by themselves; then clients are let in. Stops in the reverse order: clients first,
then the group, then slots, one by one as other workers ask for them (flushed, answered, released).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from rowtide.core.cluster.catalog import Catalog
from rowtide.core.protocol.authentication import Authenticator, Credential, Identity
from rowtide.core.protocol.worker_messages import FinishIndexRequest
from rowtide.core.release import VERSION
from rowtide.core.values.errors import Rejected
from rowtide.core.values.schema import ShardRange, Table
from rowtide.stream.api.admin import AdminOperations
from rowtide.stream.api.bulk import BulkOperations
from rowtide.stream.api.defined_column import DefinedColumnOperations
from rowtide.stream.api.directory import Directory
from rowtide.stream.api.exact_rows import ExactRows
from rowtide.stream.api.index import IndexOperations
from rowtide.stream.api.reshape import (
    ReshapeOperations,
)
from rowtide.stream.api.row import RowOperations
from rowtide.stream.api.split_point import SplitPointOperations
from rowtide.stream.api.stream import StreamOperations
from rowtide.stream.api.table import TableOperations
from rowtide.stream.api.table_throttle import TableThrottle
from rowtide.stream.api.transaction import TransactionOperations
from rowtide.stream.api.unbuilt import UnbuiltOperations
from rowtide.stream.cluster.backing import Backing, Member, Membership
from rowtide.stream.cluster.catalog_owner import CATALOG_SLOT, CatalogOwner
from rowtide.stream.cluster.handover import Handover
from rowtide.stream.cluster.hop import HopClient, HopServer
from rowtide.stream.cluster.peers import Peers
from rowtide.stream.cluster.placement import Placement
from rowtide.stream.cluster.roster import Roster
from rowtide.stream.cluster.takeover import Takeover
from rowtide.stream.cluster.topic_sweep import TopicSweep
from rowtide.stream.cluster.worker_directory import WorkerDirectory
from rowtide.stream.http.edge import Edge
from rowtide.stream.http.listening import bind, reachable
from rowtide.stream.http.pages import introduction
from rowtide.stream.log.topics import TopicNames
from rowtide.stream.measures.collector import tune_collector
from rowtide.stream.measures.consumption import Consumption
from rowtide.stream.measures.consumption_file import ConsumptionFile
from rowtide.stream.measures.counts import Counts
from rowtide.stream.routing.bounded_reads import BoundedReads
from rowtide.stream.routing.destinations import destinations
from rowtide.stream.routing.fan_out import FanOut
from rowtide.stream.routing.introduction import Introduction
from rowtide.stream.routing.routing import Router
from rowtide.stream.shard.logs import ShardLogs
from rowtide.stream.slot.lease.lease_keeper import LeaseKeeper, lease_clock
from rowtide.stream.slot.local_rows import remove_old
from rowtide.stream.slot.slot import Slot
from rowtide.stream.slot.standby.standby import Standby
from rowtide.stream.slot.surroundings import SlotLinks, Surroundings
from rowtide.stream.worker.balancer import Balancer
from rowtide.stream.worker.cluster_operations import ClusterOperations
from rowtide.stream.worker.disk_watch import watch_disk
from rowtide.stream.worker.health import Health
from rowtide.stream.worker.metrics import Metrics
from rowtide.stream.worker.worker_config import WorkerConfig
from rowtide.stream.worker.worker_metrics import WorkerParts, families
from rowtide.stream.worker.worker_operations import WorkerOperations
from rowtide.stream.worker.worker_status import ClusterStatus, WorkerStatus

__all__ = ["METRICS_BESIDE", "Worker"]

logger = logging.getLogger(__name__)

METRICS_BESIDE = "connectors.prom"
"""File of metrics in the data directory that the process of connectors writes."""

DRAIN_S = 20.0
GRACE_S = 0.5
"""Clients that are busy call again within this time, and hear then that the connection ends."""


class Worker:
    """Runs until told to stop. Raises what makes a start impossible.

    ``own`` is ``config.data_dir``, locked by the caller from before until after. ``backing`` is
    where the logs are.
    """

    def __init__(self, config: WorkerConfig, own: WorkerDirectory, backing: Backing) -> None:
        self.config = config
        self._own = own
        self.port = config.port
        self._backing = backing
        self._cluster = backing.cluster
        self._started_s = time.time()
        self.counts = Counts()
        self._leased: Mapping[int, str] | None = None
        self._grouped: Mapping[int, str] | None = None
        self._known_owners: Mapping[int, str] = {}
        self._clock = config.clock
        self._lost = asyncio.Event()

    async def run(
        self,
        *,
        ready: Callable[[Worker], None],
        stop: asyncio.Event,
    ) -> None:
        """Serve until ``stop`` is set; call ``ready`` once clients are let in."""
        try:
            await self._cluster.start()
            async with asyncio.TaskGroup() as tasks:
                await self._serve(tasks, self._own, ready, stop)
                raise _Stopped
        except* _Stopped:
            pass
        finally:
            await self._cluster.stop()

    def leave(self) -> None:
        """Let probes send new clients elsewhere from now on: a worker that serves is to stop."""
        self._edge.leaving = True

    async def _serve(
        self,
        tasks: asyncio.TaskGroup,
        directory: WorkerDirectory,
        ready: Callable[[Worker], None],
        stop: asyncio.Event,
    ) -> None:
        topics = await self._create_topics()
        slots = (await self._cluster.topics())[topics.lease]
        # Bound before anybody learns the address, listening only when clients may come.
        listener = bind(self.config.host, self.config.port)
        self.port = listener.getsockname()[1]
        hops = bind(self.config.host, 0)
        self._hop_address = (
            f"{reachable(self.config.advertise or self.config.host)}:{hops.getsockname()[1]}"
        )
        self._assemble(directory, topics, slots, tasks)
        await self._hop_server.serve_on(hops)
        await self._edge.serve_on(listener)  # For probes; clients come later.
        tasks.create_task(self._cluster.run(), name="cluster")
        tasks.create_task(self._health.run(), name="health")
        tasks.create_task(self._leases.run(), name="leases")
        tasks.create_task(self._leases.watch(slots), name="others' leases")
        takeover = Takeover(
            self._leases,
            self._roster,
            slots=slots,
            address=self._hop_address,
            standbys=lambda slot: self._handover.membership.standbys(slot),
            ready=lambda: self._owner.ready.is_set() and not self._handover.left,
        )
        tasks.create_task(takeover.run(), name="takeover")
        tasks.create_task(self._tails.run(), name="tails")
        tasks.create_task(self._owner.follow(), name="catalog")
        sweep = TopicSweep(self._owner, self._cluster, self._topics)
        tasks.create_task(sweep.run(), name="topic sweep")
        tasks.create_task(self._placement.run(), name="placement")
        tasks.create_task(self._end_with_group(), name="group")
        tasks.create_task(self._balancer.run(), name="balancer")
        tasks.create_task(self._introduction.keep(), name="introduction")
        stopped = tasks.create_task(_until(stop), name="stop")
        start = tasks.create_task(self._start(), name="start")
        await asyncio.wait([stopped, start], return_when=asyncio.FIRST_COMPLETED)
        if start.done():
            start.result()
            disk = watch_disk(self.config.data_dir, self.directory, self.config.free_bytes_min)
            tasks.create_task(disk, name="disk")
            tasks.create_task(self._consumption.run(), name="consumption")
            tune_collector()
            ready(self)
            await stopped
        start.cancel()
        await self._stop()

    async def _create_topics(self) -> TopicNames:
        prefix = self._backing.topic_prefix
        topics = TopicNames.of(prefix)
        existing = await self._cluster.topics()
        if topics.importing in existing:
            raise Rejected(
                "OTSUnsupportOperation",
                f"an import into the topics {prefix}.* is not finished: run the same "
                "`rowtide import` again until it says so",
            )
        # Fixed at the first start: another number is passed over, and waited for in no topic.
        wanted = topics.system(existing.get(topics.lease, self.config.slots))
        await self._cluster.create_topics([spec for spec in wanted if spec.name not in existing])
        logs = [name for name in existing if name.startswith(topics.shard(""))]
        await self._cluster.require_durable(wanted, logs)
        return topics

    def _assemble(
        self, directory: WorkerDirectory, topics: TopicNames, slots: int, tasks: asyncio.TaskGroup
    ) -> None:
        """Build the parts and join them."""
        config = self.config
        self._topics = topics
        self._surroundings = Surroundings(
            self._cluster,
            topics,
            config.limits,
            config.slot,
            self._clock,
            self._clock.steady_s,
            self.counts,
        )
        self._owner = CatalogOwner(
            self._cluster.log(topics.catalog),
            self._cluster.log(topics.catalog),
            owner=directory.owner,
            clock_us=self._clock,
            changed=self._catalog_changed,
        )
        self._hop = HopClient(lambda: self.catalog.hop_secret)
        self._leases = LeaseKeeper(
            self._cluster,
            topics.lease,
            owner=directory.owner,
            address=self._hop_address,
            dead=self._backing.dead_owners(directory),
            settings=self._backing.lease(config.lease),
            counts=self.counts,
        )
        self._tails = self._backing.tails(lease_clock)
        self._roster = Roster(self._new_slot, tasks, self._new_standby, self._remove_left)
        self._roster.look_after(range(slots))
        self._peers = Peers(self._hop, self._owners, self.catalog, address=self._hop_address)
        self._handover = Handover(
            self._leases,
            self._roster,
            self._hop,
            self._peers,
            lambda: self._new_membership(directory, slots),
        )
        self._placement = Placement(self._owner, self._roster.slots, self._hop, self._peers)
        self._consumption = self._metered()
        self.directory = Directory(
            self.catalog, self._roster.slots, config.limits, self._clock, self._consumption
        )
        self._assemble_operations(ShardLogs(self._cluster, topics, slots))
        self._assemble_watching(tasks)
        self._assemble_routing(tasks)

    def _assemble_operations(self, logs: ShardLogs) -> None:
        self._rows = RowOperations(self.directory)
        self._transactions = TransactionOperations(self.directory)
        self._bulk = BulkOperations(self.directory)
        self._splits = SplitPointOperations(self.directory, self._forward)
        self._reshapes = ReshapeOperations(
            self.directory,
            self._owner,
            logs,
            self._placement,
            self._splits,
            self._forward,
        )
        self._balancer = Balancer(
            self.directory,
            self._owner,
            self._placement,
            self._reshapes,
            self._forward,
            self._owners,
            self.config.balance,
        )
        self._streams = StreamOperations(self.directory, self.counts)
        throttle = TableThrottle(self.config.limits, asyncio.get_running_loop().time)
        self._indexes = IndexOperations(
            self.directory,
            self._owner,
            logs,
            throttle,
            self._placement,
            self._finish_index,
        )
        self._tables = TableOperations(
            self.directory,
            self._owner,
            logs,
            throttle,
            self._indexes,
            self._placement,
        )
        self._defined = DefinedColumnOperations(self.directory, self._placement, throttle)
        self._unbuilt = UnbuiltOperations()
        self._exact = ExactRows(self.directory)

    def _assemble_routing(self, tasks: asyncio.TaskGroup) -> None:
        self._introduction = Introduction(
            self.config.credentials,
            self._owner,
            self._forward,
            name=self._own.instance,
            address=self._hop_address,
        )
        self._fan_out = FanOut(
            self.directory,
            self._owners,
            lambda *call: self._router.ask(*call),
            self._owner.refresh,
            address=self._hop_address,
        )
        operations = WorkerOperations(
            rows=self._rows,
            transactions=self._transactions,
            bulk=self._bulk,
            splits=self._splits,
            streams=self._streams,
            tables=self._tables,
            indexes=self._indexes,
            defined=self._defined,
            unbuilt=self._unbuilt,
            exact=self._exact,
            reshapes=self._reshapes,
            balancer=self._balancer,
            placement=self._placement,
            handover=self._handover,
            introduction=self._introduction,
            admin=self._admin,
            status=self._status,
            workers=self._workers,
            fan_out=self._fan_out,
        )
        self._router = Router(
            operations.handlers(self.catalog),
            operations.among_workers(),
            self._owner,
            self._hop,
            self._owners,
            self._serving,
            operations.divided(),
            destinations(self.directory),
            address=self._hop_address,
        )
        self._bounded = BoundedReads(
            self.directory, self._roster.slots, self._roster.standbys, self._owner, self.counts
        )
        self._hop_server = HopServer(lambda: self.catalog.hop_secret, self._router.passed_on, tasks)

    def _assemble_watching(self, tasks: asyncio.TaskGroup) -> None:
        """Build what clients and operators see, before there is anything to see."""
        config, watching = self.config, self.config.watching
        self._edge = Edge(
            Authenticator(self._credential, self._instance_exists, self._owner.told_age_s),
            None,
            tasks,
            clock=time.time,
            limits=config.http,
            slow_s=watching.slow_request_s,
        )
        self._health = Health(
            self._edge,
            self._roster.slots,
            self._cluster,
            data_dir=config.data_dir,
            free_bytes_min=config.free_bytes_min,
            counts=self.counts,
            drained=lambda: self._handover.left,
            catalog_lost=lambda: self._owner.lost,
        )
        parts = WorkerParts(
            edge=self._edge,
            health=self._health,
            slots=self._roster.slots,
            standbys=self._roster.standbys,
            counts=self.counts,
            catalog=self.catalog,
            consumption=self._consumption,
            indexes=self._indexes,
            lease_age_s=self._leases.age_s,
            free_bytes_min=config.free_bytes_min,
        )
        backing = self._backing
        self._status = WorkerStatus(
            parts, backing.place, backing.durability, self._hop_address, self._started_s
        )
        self._admin = AdminOperations(
            self.directory, self._placement, self._status.told, self._clock
        )
        self._workers = ClusterOperations(
            self.directory,
            self._placement,
            self._peers,
            self._hop,
            self._handover,
            ClusterStatus(self._status, self._peers).told,
        )
        self._edge.introduction = introduction(VERSION)
        self._edge.pages |= {b"/healthz": self._health.live, b"/readyz": self._health.ready}
        if watching.metrics:
            self._edge.pages[b"/metrics"] = Metrics(
                lambda: families(parts), beside=config.data_dir / METRICS_BESIDE
            ).page

    def _metered(self) -> Consumption:
        consumption = Consumption(
            self._clock.unix_s,
            partition_units_max=self.config.limits.partition_units_per_s,
        )
        file = ConsumptionFile(self.config.data_dir / "consumption.sqlite")
        consumption.keep(file, self.catalog.tables_by_id.values)
        return consumption

    @property
    def catalog(self) -> Catalog:
        """The catalog as this worker knows it."""
        return self._owner.catalog

    def _new_membership(self, directory: WorkerDirectory, count: int) -> Membership:
        member = Member(
            instance=directory.instance,
            address=self._hop_address,
            slots=count,
            standbys=self.config.standbys,
            on_standby=lambda slots: self._roster.stand_by(slots),
            on_assigned=lambda slots: self._roster.assign(slots),
            on_revoked=lambda slots: self._roster.revoke(slots),
            on_lost=self._lost.set,
        )
        return self._backing.membership(member)

    async def _end_with_group(self) -> None:
        """End the worker if its place in the group is not kept: slots would come and go no more."""
        await self._lost.wait()
        raise _GroupLost("the worker's place in the group is not kept any more")

    async def _start(self) -> None:
        """Join the group, wait for our slots (see ``Roster.opened``), let clients in."""
        await self._owner.ready.wait()
        self._own.belong(self.catalog.hop_secret)  # Before the rows that are left here are opened.
        await self._handover.join()
        await self._roster.opened()
        await self._introduction.make()
        self._own.belong(self.catalog.hop_secret)
        routed = self._router.routed()
        self._edge.open(routed, self._bounded.handlers(routed))

    async def _stop(self) -> None:
        """Answer clients, give the slots to others; nothing acknowledged depends on it."""
        await self._introduction.part()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._end_clients(), name="clients end")
            # Who comes meanwhile is answered by the slots' next workers, through us.
            tasks.create_task(self._handover.leave(), name="slots leave")
        await self._end_hops()
        await self._consumption.flush()
        self._roster.stop()
        self._hop.close()

    async def _end_clients(self) -> None:
        notice_s = self.config.watching.drain_notice_s if self._edge.admitting else 0.0
        cut = await self._edge.drain(DRAIN_S, notice_s=notice_s, grace_s=GRACE_S)
        if cut:
            logger.warning("%d requests were cut off", cut)

    async def _end_hops(self) -> None:
        """Answer what others have passed on, as what our own clients ask."""
        if cut := await self._hop_server.drain(DRAIN_S):
            logger.warning("%d requests of other workers were cut off", cut)

    # Slots.

    def _new_slot(self, number: int) -> Slot:
        links = SlotLinks(
            self._leases,
            self._owner.open if number == 0 else lambda _: self._catalog_proven(),
            self._tables_of,
            self._table_known,
            self._indexes,
            self._reshapes,
            self._handover,
        )
        slot = Slot(number, self._rows_path(number), self._surroundings, links)
        slot.reclaimer.hold(paused=self.catalog.reclaimer_paused)
        slot.opens_on(self._roster.left.get(number, {}))
        return slot

    def _new_standby(self, number: int) -> Standby:
        return Standby(
            number,
            self._rows_path(number),
            self._surroundings,
            tails=self._tails,
            catalog_read=self._catalog_read,
            catalog_proven=self._catalog_proven,
            tables=lambda slot: [*self._reshapes.ended(slot), *self._tables_of(slot)],
            coming=self._reshapes.arriving,
            table_known=self._table_known,
            clock_s=lease_clock,
        )

    def _rows_path(self, number: int) -> Path:
        """Return where a slot's rows are, for its owner as for who keeps a copy."""
        return self.config.data_dir / "rows" / str(number)

    def _remove_left(self, slot: int) -> float:
        return remove_old(self._rows_path(slot), self.config.slot.changelog_kept_s)

    async def _catalog_proven(self) -> None:
        await self._owner.ready.wait()
        await self._owner.prove()

    async def _catalog_read(self) -> None:
        await self._owner.ready.wait()
        await self._owner.refresh()

    def _catalog_changed(self) -> None:
        """Let every open shard know its table as the catalog has it now."""
        for slot in self._roster.slots.values():
            slot.retable()
            slot.reclaimer.hold(paused=self.catalog.reclaimer_paused)
        for standby in self._roster.standbys.values():
            standby.settle()
        self._placement.wake.set()

    def _serving(self, number: int) -> bool:
        slot = self._roster.slots.get(number)
        return slot is not None and slot.opened.is_set() and slot.readable()

    def _table_known(self, table_id: int) -> bool:
        """True if a table may exist. Ids only grow, so the catalog may still bring a higher one."""
        return table_id in self.catalog.tables_by_id or table_id >= self.catalog.next_table_id

    def _tables_of(self, slot: int) -> list[tuple[Table, ShardRange]]:
        shards = self.catalog.shards.values()
        return [
            (table, shard) for table, shard in shards if shard.slot == slot and not shard.sealed_us
        ]

    # What requests ask.

    def _credential(self, access_key_id: str) -> Credential | None:
        return self.catalog.credentials.get(access_key_id)

    def _instance_exists(self, name: str) -> bool:
        return name in self.catalog.instances

    async def _finish_index(self, identity: Identity, body: bytes) -> bytes:
        """Have the catalog's owner see whether an index is built."""
        if self._owner.owning:
            return await self._indexes.finish_request(identity, body)
        return await self._router.forward(
            CATALOG_SLOT, FinishIndexRequest.operation, identity, body
        )

    async def _forward(self, slot: int, operation: str, identity: Identity, body: bytes) -> bytes:
        return await self._router.forward(slot, operation, identity, body)

    def _owners(self) -> Mapping[int, str]:
        """Return where each slot's worker is: as its lease says, else as the group does."""
        leased, grouped = self._leases.addresses, self._handover.membership.owners()
        if leased is not self._leased or grouped is not self._grouped:
            self._leased, self._grouped = leased, grouped
            known = {slot: address for slot, address in leased.items() if address}
            self._known_owners = {**grouped, **known}
        return self._known_owners


class _Stopped(Exception):
    """Ends the worker's tasks after a clean stop."""


class _GroupLost(Exception):
    """Ends the worker: nothing would tell it of slots that come and go."""


async def _until(stop: asyncio.Event) -> None:
    await stop.wait()
