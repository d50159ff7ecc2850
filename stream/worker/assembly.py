"""The product and the simulation call the same ``assemble``. They differ in the logs,
clocks, disks and group, which the ``Environment`` holds. Nothing starts here: see
``Worker``.
"""

from __future__ import annotations

import asyncio
import time
from typing import NamedTuple

from rowtide.core.cluster.catalog import Catalog
from rowtide.core.protocol.authentication import Authenticator, Identity
from rowtide.core.protocol.worker_messages import FinishIndexRequest
from rowtide.core.release import VERSION
from rowtide.stream.api.admin import AdminOperations
from rowtide.stream.api.bulk import BulkOperations
from rowtide.stream.api.defined_column import DefinedColumnOperations
from rowtide.stream.api.directory import Directory
from rowtide.stream.api.exact_rows import ExactRows
from rowtide.stream.api.index import IndexOperations
from rowtide.stream.api.reshape import ReshapeOperations
from rowtide.stream.api.row import RowOperations
from rowtide.stream.api.share_token import ShareTokenOperations
from rowtide.stream.api.split_point import SplitPointOperations
from rowtide.stream.api.stream import StreamOperations
from rowtide.stream.api.table import TableOperations
from rowtide.stream.api.table_throttle import TableThrottle
from rowtide.stream.api.transaction import TransactionOperations
from rowtide.stream.api.unbuilt import UnbuiltOperations
from rowtide.stream.cluster.catalog_owner import CATALOG_SLOT
from rowtide.stream.cluster.hop_server import HopServer
from rowtide.stream.http.edge import Edge
from rowtide.stream.http.pages import introduction
from rowtide.stream.measures.consumption import Consumption
from rowtide.stream.routing.bounded_reads import BoundedReads
from rowtide.stream.routing.destinations import destinations
from rowtide.stream.routing.fan_out import FanOut
from rowtide.stream.routing.introduction import Introduction
from rowtide.stream.routing.routing import Router
from rowtide.stream.shard.logs import ShardLogs
from rowtide.stream.worker.balancer import Balancer
from rowtide.stream.worker.cluster_operations import ClusterOperations
from rowtide.stream.worker.health import Health
from rowtide.stream.worker.metrics import Metrics
from rowtide.stream.worker.ownership import Environment, OwnershipParts, SlotParts, WorkerSite
from rowtide.stream.worker.table_figure_operations import TableFigureOperations
from rowtide.stream.worker.worker_config import WorkerConfig
from rowtide.stream.worker.worker_metrics import WorkerParts, families
from rowtide.stream.worker.worker_operations import WorkerOperations
from rowtide.stream.worker.worker_status import ClusterStatus, WorkerStatus

__all__ = ["METRICS_BESIDE", "Assembly", "assemble"]

METRICS_BESIDE = "connectors.prom"
"""File in the data directory to which the connector process writes its metrics."""


class WatchedParts(NamedTuple):
    """What clients connect to, and what operators can read about the worker."""

    edge: Edge
    health: Health
    status: WorkerStatus


class Assembly(NamedTuple):
    """The parts of one worker, joined."""

    ownership: OwnershipParts
    directory: Directory
    operations: WorkerOperations
    router: Router
    bounded: BoundedReads
    watched: WatchedParts
    hops: HopServer

    @property
    def catalog(self) -> Catalog:
        """The catalog as this worker knows it."""
        return self.directory.catalog


def assemble(
    config: WorkerConfig, site: WorkerSite, around: Environment, tasks: asyncio.TaskGroup
) -> Assembly:
    """Return the parts of a worker; they start their later tasks in ``tasks``."""
    return _Assembler(config, site, around, tasks).assembly()


class _Assembler:
    """Joins parts that call each other in a circle.

    A method here reaches each part that is created later. No method is called before
    every part exists.
    """

    def __init__(
        self, config: WorkerConfig, site: WorkerSite, around: Environment, tasks: asyncio.TaskGroup
    ) -> None:
        self._config = config
        self._site = site
        self._tasks = tasks
        self._logs = ShardLogs(around.cluster, site.topics, site.slots)
        self._ownership = owned = OwnershipParts(
            config, site, around, tasks, lambda: SlotParts(self._indexes, self._reshapes)
        )
        self._directory = directory = Directory(
            owned.catalog.catalog,
            owned.roster.slots,
            config.limits,
            config.clock,
            _make_consumption(config, around, owned.catalog.catalog),
        )
        self._throttle = throttle = TableThrottle(config.limits, asyncio.get_running_loop().time)
        self._splits = SplitPointOperations(directory, self._forward)
        self._reshapes = ReshapeOperations(
            directory, owned.catalog, self._logs, owned.placement, self._splits, self._forward
        )
        self._indexes = IndexOperations(
            directory, owned.catalog, self._logs, throttle, owned.placement, self._finish_index
        )
        self._watched = self._watch(around)
        self._operations = self._join_operations()
        self._router = self._route()

    def assembly(self) -> Assembly:
        """Return the parts."""
        owned, directory, router = self._ownership, self._directory, self._router
        slots, standbys = owned.roster.slots, owned.roster.standbys
        bounded = BoundedReads(directory, slots, standbys, owned.catalog, owned.counts)
        hops = HopServer(owned.view.hop_secret, router.answer_forwarded, self._tasks)
        return Assembly(owned, directory, self._operations, router, bounded, self._watched, hops)

    def _watch(self, around: Environment) -> WatchedParts:
        """Build the edge for clients, and the health and status pages for operators."""
        config, owned = self._config, self._ownership
        catalog = self._directory.catalog
        edge = Edge(
            Authenticator(
                owned.view.credential, owned.view.has_instance, owned.catalog.confirmation_age_s
            ),
            None,
            self._tasks,
            clock=time.time,
            limits=config.http,
            slow_s=config.watching.slow_request_s,
            is_table=lambda instance, table: (instance, table) in catalog.tables,
        )
        health = Health(
            edge,
            owned.roster.slots,
            around.cluster,
            data_dir=config.data_dir,
            free_bytes_min=config.free_bytes_min,
            counts=owned.counts,
            drained=lambda: owned.handover.left,
            catalog_lost=lambda: owned.catalog.lost,
        )
        parts = WorkerParts(
            edge=edge,
            health=health,
            slots=owned.roster.slots,
            standbys=owned.roster.standbys,
            counts=owned.counts,
            catalog=self._directory.catalog,
            consumption=self._directory.consumption,
            indexes=self._indexes,
            lease_age_s=owned.leases.age_s,
            free_bytes_min=config.free_bytes_min,
        )
        edge.introduction = introduction(VERSION)
        edge.pages |= {b"/healthz": health.live, b"/readyz": health.ready}
        if config.watching.metrics:
            beside = config.data_dir / METRICS_BESIDE
            edge.pages[b"/metrics"] = Metrics(lambda: families(parts), beside=beside).page
        site = self._site
        status = WorkerStatus(parts, site.log, site.durability, site.address, site.started_s)
        return WatchedParts(edge, health, status)

    def _join_operations(self) -> WorkerOperations:
        """Build the parts that answer requests."""
        directory, owned, status = self._directory, self._ownership, self._watched.status
        catalog, placement = owned.catalog, owned.placement
        all_status = ClusterStatus(status, owned.peers).report
        balancer, tally = self._balance(), self._watched.edge.table_tally
        return WorkerOperations(
            rows=RowOperations(directory),
            transactions=TransactionOperations(directory),
            bulk=BulkOperations(directory),
            splits=self._splits,
            streams=StreamOperations(directory, owned.counts),
            tables=TableOperations(
                directory, catalog, self._logs, self._throttle, self._indexes, placement
            ),
            indexes=self._indexes,
            defined=DefinedColumnOperations(directory, placement, self._throttle),
            unbuilt=UnbuiltOperations(),
            exact=ExactRows(directory),
            reshapes=self._reshapes,
            balancer=balancer,
            placement=placement,
            handover=owned.handover,
            introduction=self._introduce(),
            admin=AdminOperations(directory, placement, status.report, self._config.clock),
            tokens=ShareTokenOperations(directory, placement),
            status=status,
            workers=ClusterOperations(
                directory, placement, owned.peers, owned.hop, owned.handover, all_status
            ),
            figures=TableFigureOperations(
                tally, directory.catalog, owned.peers, balancer.loads_request
            ),
            fan_out=FanOut(
                directory,
                owned.owners,
                lambda *call: self._router.ask(*call),
                catalog.refresh,
                address=self._site.address,
            ),
        )

    def _balance(self) -> Balancer:
        owned = self._ownership
        return Balancer(
            self._directory,
            owned.catalog,
            owned.placement,
            self._reshapes,
            self._forward,
            owned.owners,
            self._config.balance,
        )

    def _introduce(self) -> Introduction:
        return Introduction(
            self._config.credentials,
            self._ownership.catalog,
            self._forward,
            name=self._site.name,
            address=self._site.address,
        )

    def _route(self) -> Router:
        owned, operations = self._ownership, self._operations
        return Router(
            operations.handlers(self._directory.catalog),
            operations.among_workers(),
            owned.catalog,
            owned.hop,
            owned.owners,
            owned.is_serving,
            operations.make_divisions(),
            destinations(self._directory),
            address=self._site.address,
        )

    # Calls from parts to others that are created later.

    async def _finish_index(self, identity: Identity, body: bytes) -> bytes:
        """Ask the catalog's owner to check if an index is built."""
        if self._ownership.catalog.is_owner:
            return await self._indexes.finish_request(identity, body)
        operation = FinishIndexRequest.operation
        return await self._router.forward(CATALOG_SLOT, operation, identity, body)

    async def _forward(self, slot: int, operation: str, identity: Identity, body: bytes) -> bytes:
        return await self._router.forward(slot, operation, identity, body)


def _make_consumption(config: WorkerConfig, around: Environment, catalog: Catalog) -> Consumption:
    """Return the counter of consumption; it writes to the consumption file if there is one."""
    consumption = Consumption(
        config.clock.unix_s, partition_units_max=config.limits.partition_units_per_s
    )
    if around.stores.consumption is not None:
        consumption.keep(around.stores.consumption, catalog.tables_by_id.values)
    return consumption
