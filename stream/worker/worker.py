"""One worker: all parts of rowtide in a process. It starts, runs and stops them.

The order of the start: directory, topics, leases, membership. The slots that the group
assigns then open. Last, the worker accepts clients. It stops in the reverse order:
clients, group, slots. Each slot is flushed, answers its requests and is released when
another worker asks for it. ``assembly.py`` builds the parts.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from pathlib import Path

from rowtide.core.cluster.catalog import Catalog
from rowtide.core.values.errors import Rejected
from rowtide.stream.cluster.backing import Backing
from rowtide.stream.cluster.topic_sweep import TopicSweep
from rowtide.stream.cluster.worker_directory import WorkerDirectory
from rowtide.stream.http.listening import bind, reachable
from rowtide.stream.http.pages import ConsoleAddress
from rowtide.stream.log.tails import Tails
from rowtide.stream.log.topics import TopicNames
from rowtide.stream.measures.clock import lease_clock
from rowtide.stream.measures.collector import tune_collector
from rowtide.stream.measures.consumption_file import ConsumptionFile
from rowtide.stream.measures.counts import Counts
from rowtide.stream.slot.local_rows import remove_old
from rowtide.stream.slot.slot import Slot
from rowtide.stream.slot.standby.standby import Standby
from rowtide.stream.worker.assembly import Assembly, assemble
from rowtide.stream.worker.disk_watch import watch_disk
from rowtide.stream.worker.ownership import Clocks, Environment, Stores, WorkerSite
from rowtide.stream.worker.worker_config import WorkerConfig

__all__ = ["Worker"]

logger = logging.getLogger(__name__)

DRAIN_S = 20.0
GRACE_S = 0.5
"""Busy clients call again within this time, and then learn that the connection ends."""


class Worker:
    """Runs until ``stop`` is set. Raises the error that makes a start impossible.

    ``own`` is ``config.data_dir``; the caller holds its lock before, during and after the
    run. ``backing`` is where the logs are.
    """

    def __init__(self, config: WorkerConfig, own: WorkerDirectory, backing: Backing) -> None:
        self.config = config
        self.port = config.port
        self.counts = Counts()
        self._own = own
        self._backing = backing
        self._cluster = backing.cluster
        self._started_s = time.time()
        self._parts: Assembly

    @property
    def catalog(self) -> Catalog:
        """The catalog as this worker knows it, once it runs."""
        return self._parts.catalog

    async def run(
        self,
        *,
        ready: Callable[[Worker], None],
        stop: asyncio.Event,
    ) -> None:
        """Serve until ``stop`` is set; call ``ready`` once clients are accepted."""
        try:
            await self._cluster.start()
            async with asyncio.TaskGroup() as tasks:
                await self._serve(tasks, ready, stop)
                raise _Stopped
        except* _Stopped:
            pass
        finally:
            await self._cluster.stop()

    def leave(self) -> None:
        """Report to probes that this worker is to stop, so that new clients go elsewhere."""
        self._parts.watched.edge.leaving = True

    def show_console(self, console: ConsoleAddress | None) -> None:
        """Send browsers that open the endpoint to a console, or to none, from now on."""
        self._parts.watched.edge.console = console

    async def _serve(
        self, tasks: asyncio.TaskGroup, ready: Callable[[Worker], None], stop: asyncio.Event
    ) -> None:
        topics = await self._create_topics()
        slots = (await self._cluster.topics())[topics.lease]
        # Bound before any other worker learns the address; it listens only once clients
        # may come.
        listener = bind(self.config.host, self.config.port)
        self.port = listener.getsockname()[1]
        hops = bind(self.config.host, 0)
        host = reachable(self.config.advertise or self.config.host)
        site = self._site(topics, slots, f"{host}:{hops.getsockname()[1]}")
        tails = self._backing.tails(lease_clock)
        parts = self._parts = assemble(self.config, site, self._environment(tails), tasks)
        parts.ownership.roster.look_after(range(slots))
        await parts.hops.serve_on(hops)
        await parts.watched.edge.serve_on(listener)  # For probes; clients come later.
        self._begin(tasks, tails, site)
        stopped = tasks.create_task(_until(stop), name="stop")
        start = tasks.create_task(self._start(), name="start")
        await asyncio.wait([stopped, start], return_when=asyncio.FIRST_COMPLETED)
        if start.done():
            start.result()
            disk = watch_disk(self.config.data_dir, parts.directory, self.config.free_bytes_min)
            tasks.create_task(disk, name="disk")
            tasks.create_task(parts.directory.consumption.run(), name="consumption")
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
                "`rowtide import` again until it reports success",
            )
        # The first start fixes the number: another value is ignored, and no topic waits
        # for it.
        wanted = topics.system(existing.get(topics.lease, self.config.slots))
        await self._cluster.create_topics([spec for spec in wanted if spec.name not in existing])
        logs = [name for name in existing if name.startswith(topics.shard(""))]
        await self._cluster.require_durable(wanted, logs)
        return topics

    def _site(self, topics: TopicNames, slots: int, address: str) -> WorkerSite:
        return WorkerSite(
            owner=self._own.owner,
            name=self._own.instance,
            address=address,
            topics=topics,
            slots=slots,
            lease=self._backing.lease(self.config.lease),
            started_s=self._started_s,
            dead_owners=self._backing.dead_owners(self._own),
            log=self._backing.place,
            durability=self._backing.durability,
        )

    def _environment(self, tails: Tails) -> Environment:
        """Return the environment of the product's workers."""
        stores = Stores(
            lambda number, *around: Slot(number, self._rows_path(number), *around),
            lambda number, *around: Standby(number, self._rows_path(number), *around),
            lambda slot: remove_old(self._rows_path(slot), self.config.slot.changelog_kept_s),
            ConsumptionFile(self.config.data_dir / "consumption.sqlite"),
        )
        clocks = Clocks(lease_clock, lease_clock)
        return Environment(
            self._cluster, tails, clocks, stores, self._backing.membership, self.counts
        )

    def _rows_path(self, number: int) -> Path:
        """Return where a slot's rows are, for its owner and for a copy alike."""
        return self.config.data_dir / "rows" / str(number)

    def _begin(self, tasks: asyncio.TaskGroup, tails: Tails, site: WorkerSite) -> None:
        """Start the tasks that run as long as the worker does."""
        parts, owned = self._parts, self._parts.ownership
        tasks.create_task(self._cluster.run(), name="cluster")
        tasks.create_task(parts.watched.health.run(), name="health")
        tasks.create_task(owned.leases.run(), name="leases")
        tasks.create_task(owned.leases.others.run(site.slots), name="others' leases")
        tasks.create_task(owned.takeover.run(), name="takeover")
        tasks.create_task(tails.run(), name="tails")
        tasks.create_task(owned.catalog.follow(), name="catalog")
        sweep = TopicSweep(owned.catalog, self._cluster, site.topics)
        tasks.create_task(sweep.run(), name="topic sweep")
        tasks.create_task(owned.placement.run(), name="placement")
        tasks.create_task(self._end_with_group(), name="group")
        tasks.create_task(parts.operations.balancer.run(), name="balancer")
        tasks.create_task(parts.operations.introduction.keep(), name="introduction")

    async def _end_with_group(self) -> None:
        """End the worker if its group membership is lost: it would get and lose no more slots."""
        await self._parts.ownership.lost.wait()
        raise _GroupLost("the worker's group membership is lost: restart the worker")

    async def _start(self) -> None:
        """Join the group, accept clients after ``Roster.wait_until_open``."""
        parts, owned = self._parts, self._parts.ownership
        await owned.catalog.ready.wait()
        self._own.belong(owned.view.hop_secret())  # Before the rows that are left here are opened.
        await owned.handover.join()
        await owned.roster.wait_until_open()
        await parts.operations.introduction.make()
        self._own.belong(owned.view.hop_secret())
        routed = parts.router.make_handlers()
        parts.watched.edge.open(routed, parts.bounded.handlers(routed))

    async def _stop(self) -> None:
        """Answer clients and hand over the slots; no acknowledged write depends on it."""
        parts, owned = self._parts, self._parts.ownership
        await parts.operations.introduction.part()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._end_clients(), name="clients end")
            # The slots' next workers answer later requests, through us.
            tasks.create_task(owned.handover.leave(), name="slots leave")
        await self._end_hops()
        await parts.directory.consumption.flush()
        owned.roster.stop()
        owned.hop.close()

    async def _end_clients(self) -> None:
        edge = self._parts.watched.edge
        notice_s = self.config.watching.drain_notice_s if edge.admitting else 0.0
        cut = await edge.drain(DRAIN_S, notice_s=notice_s, grace_s=GRACE_S)
        if cut:
            logger.warning("%d requests were cut off", cut)

    async def _end_hops(self) -> None:
        """Answer the requests that other workers forwarded, like those of our own clients."""
        if cut := await self._parts.hops.drain(DRAIN_S):
            logger.warning("%d requests of other workers were cut off", cut)


class _Stopped(Exception):
    """Ends the worker's tasks after a clean stop."""


class _GroupLost(Exception):
    """Ends the worker: without a group it would not learn which slots it has."""


async def _until(stop: asyncio.Event) -> None:
    await stop.wait()
