"""One build of a dashboard in this process: it reads the table, folds, and keeps its state.

Leases divide the shards among all processes that run it. A shard that is taken begins at the
position of its state, not at the checkpoint of its lease: both of its changes and its sums are in
one group of the log, so nothing counts twice, whenever a process is killed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from rowtide.client.changes.api import ApiSource
from rowtide.client.changes.leases import TableLeases
from rowtide.client.changes.shard_follower import ResumingHandle, Unfinished
from rowtide.client.changes.worker import Batch, ChangeWorker, FollowerSettings
from rowtide.connectors.runtime.connector_run import ConnectorRun, RunDeclaration
from rowtide.connectors.runtime.lag import measure_lag
from rowtide.connectors.runtime.place import ProcessContext
from rowtide.connectors.runtime.reader_run import ReaderRun
from rowtide.core.values.errors import LogTrimmed, StoreError
from rowtide.dashboards.runtime.applying import prepare_table
from rowtide.dashboards.runtime.build_folder import BuildFolder
from rowtide.dashboards.runtime.clean_up import remove_old_builds
from rowtide.dashboards.runtime.row_values import ColumnsMissing
from rowtide.dashboards.runtime.state_rows import StateTable
from rowtide.dashboards.runtime.stored_dashboards import (
    DashboardBuild,
    StoredDashboards,
    run_name,
)

if TYPE_CHECKING:
    from rowtide.client.changes.source import ChangeSource
    from rowtide.stream.log.kafka.cluster import KafkaCluster

__all__ = ["BuildDeclaration", "DashboardKind", "DashboardRun"]

logger = logging.getLogger(__name__)

READY_LOOK_S = 0.5
CLEAN_S = 60.0
BATCH_CHANGES_MAX = 10_000
"""Changes that may share one write of the state. A read of a log has at most 2 MiB of them. To fold
so many keeps the event loop busy for 0.1 s.
"""


class BuildDeclaration(NamedTuple):
    """A build as a host runs it. ``is_former``: a newer build is on its way."""

    build: DashboardBuild
    is_former: bool

    @property
    def name(self) -> str:
        """The name of reports, log lines and metrics."""
        return run_name(self.build.dashboard.name) + (".former" if self.is_former else "")

    @property
    def text(self) -> str:
        """What the run depends on: a build never changes what it folds."""
        return f"{self.build.id} {self.build.dashboard.lease_ms}"

    @property
    def described(self) -> str:
        """What the dashboard shows, in a few words."""
        return self.build.dashboard.described


class DeclaredBuild(NamedTuple):
    """See ``DeclaredRun`` of the host."""

    declaration: RunDeclaration | None
    paused: bool
    asked: int = 0


class DashboardKind:
    """Dashboards, as a kind of what a host runs."""

    def __init__(self, place: ProcessContext) -> None:
        self._stored = StoredDashboards(place.endpoint)

    async def all(self) -> Mapping[str, DeclaredBuild]:
        """Return the builds that should run, by name."""
        found: dict[str, DeclaredBuild] = {}
        for stored in (await self._stored.all()).values():
            former = None if stored.is_ready else stored.former
            for build, is_former in ((stored.build, False), (former, True)):
                if build is not None:
                    declared = BuildDeclaration(build, is_former)
                    found[declared.name] = DeclaredBuild(declared, stored.paused)
        return found

    def make_run(self, declaration: RunDeclaration, place: ProcessContext) -> ConnectorRun | None:
        """Return the run of a build, None for a connector."""
        if not isinstance(declaration, BuildDeclaration):
            return None
        return DashboardRun(declaration, place)


class DashboardRun(ReaderRun):
    """Runs one build."""

    def __init__(self, declaration: BuildDeclaration, place: ProcessContext) -> None:
        super().__init__(declaration, place)
        self.declaration: BuildDeclaration = declaration
        self._build = declaration.build
        self._api = ApiSource(place.endpoint, self._build.dashboard.table.name)
        self._state = StateTable(place.endpoint)
        self._folder = self._make_folder()

    async def measure(self) -> None:
        """Measure how far the dashboard is behind."""
        self.measured = await measure_lag(self._api, self._leases())

    def _make_folder(self) -> BuildFolder:
        return BuildFolder(self._place.endpoint, self._build, self._ending, self.progress)

    def _leases(self) -> TableLeases:
        return TableLeases(self._place.endpoint, self._build.consumer)

    async def _once(self) -> None:
        dashboard, place, cluster = self._build.dashboard, self._place, self._place.cluster
        # Use a new stream each time: the table may have been created again.
        self._api = ApiSource(place.endpoint, dashboard.table.name)
        self._failures, self._ending = [], asyncio.Event()
        self.progress.waiting.clear()
        self._folder = self._make_folder()
        await self._state.ensure()
        lease_s = dashboard.lease_ms / 1000
        worker = self._worker = ChangeWorker(
            self._api if cluster is None else _from_kafka(self._api, cluster),
            self._leases(),
            ResumingHandle(self._handle, self._folder.resume),
            begin="latest" if dashboard.is_of_changes else "rows",
            settings=FollowerSettings(
                lease_s=lease_s,
                checkpoint_s=min(1.0, lease_s / 5),
                batch_changes_max=BATCH_CHANGES_MAX,
            ),
        )
        if self._stopping.is_set():
            self._ending.set()
            worker.stop()
        self.state = "running"
        try:
            await self._run_worker(worker)
        except LogTrimmed as error:
            await self._rebuild(error)
        except ColumnsMissing as error:
            if not self.declaration.is_former:
                await prepare_table(place.endpoint, dashboard)
            await self._rebuild(error)
        finally:
            self._worker = None

    async def _run_worker(self, worker: ChangeWorker) -> None:
        async with asyncio.TaskGroup() as tasks:
            beside = [tasks.create_task(self._clean_often(), name="old builds")]
            if not self.declaration.is_former:
                beside.append(tasks.create_task(self._watch_ready(), name="ready"))
            try:
                await worker.run()
            finally:
                for task in beside:
                    task.cancel()
        if self._failures:
            raise self._failures[0]

    async def _rebuild(self, error: Exception) -> None:
        """Start a new build from the rows: this one cannot know all changes any more."""
        name = self._build.dashboard.name
        logger.warning("%s is built again from the rows: %s", name, error)
        self.progress.note_failure(f"built again from the rows: {error}")
        if not self.declaration.is_former:
            await StoredDashboards(self._place.endpoint).rebuild(name)
        await self._stopping.wait()  # The host stops this build.

    # Batches.

    async def _handle(self, batch: Batch) -> None:
        """Fold a batch and store the sums. A failure gives the shard back, to be resumed."""
        try:
            await self._folder.fold(batch)
        except Unfinished:
            raise
        except Exception as error:
            self._fail(error)
            raise Unfinished from error
        self.progress.count_batch(batch)
        self.back_off.reset()

    # Beside the worker.

    async def _watch_ready(self) -> None:
        """Let the build answer once it has read all rows."""
        stored, name = StoredDashboards(self._place.endpoint), self._build.dashboard.name
        while True:
            try:
                lag = await measure_lag(self._api, self._leases())
                if lag.begun and not lag.unread:
                    if await stored.mark_ready(name, self._build.id):
                        logger.info("%s has read all rows and answers", name)
                    return
            except StoreError as error:
                logger.debug("%s: whether it is ready is checked later: %s", name, error)
            await asyncio.sleep(READY_LOOK_S)

    async def _clean_often(self) -> None:
        """Remove what former builds left."""
        while True:
            await asyncio.sleep(CLEAN_S)
            try:
                await remove_old_builds(self._place.endpoint, self._build.dashboard)
            except StoreError as error:
                logger.debug("old builds are removed later: %s", error)


def _from_kafka(api: ApiSource, cluster: KafkaCluster) -> ChangeSource:
    """Return a source that reads the logs from the brokers."""
    from rowtide.connectors.runtime.kafka_source import (
        KafkaSource,  # A slow import.
    )

    return KafkaSource(api, cluster)
