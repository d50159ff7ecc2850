"""One sink connector in this process: it is opened, fed, and restarted after failures.

Leases divide its shards among all processes that run the connector. A sink whose target
is files of one machine (``Traits.alone``) runs in one process at a time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from rowtide.client.changes.api import ApiSource
from rowtide.client.changes.leases import TableLeases
from rowtide.client.changes.shard_follower import Unfinished
from rowtide.client.changes.worker import Batch, ChangeWorker, FollowerSettings
from rowtide.connectors.fields import Fields
from rowtide.connectors.registry import make_sink
from rowtide.connectors.runtime.declaration import Declaration, begin_of
from rowtide.connectors.runtime.declarations import group_of
from rowtide.connectors.runtime.home import at_home
from rowtide.connectors.runtime.lag import measure_lag
from rowtide.connectors.runtime.pipeline import Pipeline, Target
from rowtide.connectors.runtime.place import ProcessContext, table_shape
from rowtide.connectors.runtime.reader_run import ReaderRun
from rowtide.connectors.sinks.sink import Sink, traits_of
from rowtide.core.values.errors import OutcomeUnknown, StoreError, Unavailable

if TYPE_CHECKING:
    from rowtide.client.changes.source import ChangeSource
    from rowtide.stream.log.kafka.cluster import KafkaCluster

__all__ = ["SinkRun"]

logger = logging.getLogger(__name__)

LOOK_AGAIN_S = 2.0


class SinkRun(ReaderRun):
    """Runs the sink of a ``declaration``."""

    declaration: Declaration

    def __init__(self, declaration: Declaration, place: ProcessContext) -> None:
        super().__init__(declaration, place)
        self._api = ApiSource(
            place.endpoint, declaration.table, columns=declaration.transforms.wanted
        )
        self._leases = TableLeases(place.endpoint, group_of(declaration.name))
        self._look.set()

    async def measure(self) -> None:
        """Measure how far the connector is behind."""
        leases = TableLeases(self._place.endpoint, group_of(self.declaration.name))
        self.measured = await measure_lag(self._api, leases)

    async def _once(self) -> None:
        declaration, place = self.declaration, self._place
        # Use a new stream each time: the table may have been created again.
        self._api = ApiSource(
            place.endpoint, declaration.table, columns=declaration.transforms.wanted
        )
        shape = declaration.transforms.shape(await table_shape(place.endpoint, declaration.table))
        where = f"connectors.{declaration.name}.sink"
        fields = Fields(declaration.sink, where, environment=place.environment)
        sink = make_sink(fields, place.surroundings(declaration.name))
        async with self._at_home(sink):
            if self._stopping.is_set():
                return
            try:
                await sink.open(shape)
                await self._run_pipeline(sink)
            finally:
                self._worker = None
                await sink.close()

    @asynccontextmanager
    async def _at_home(self, sink: Sink) -> AsyncIterator[None]:
        """Be the only process that runs the sink, if the sink requires it."""
        if not traits_of(sink).alone:
            yield
            return
        self.state = "waiting"
        async with at_home(self._place, self.declaration, self._api, self._stopping):
            yield

    async def _run_pipeline(self, sink: Sink) -> None:
        declaration, cluster = self.declaration, self._place.cluster
        transforms, self._failures = declaration.transforms, []
        target = Target(sink, transforms, transforms.load(), self._parked, declaration.parked_max)
        self._ending = asyncio.Event()
        pipeline = Pipeline(self._api, target, self.progress, self._ending)
        worker = self._worker = ChangeWorker(
            self._api if cluster is None else _from_kafka(self._api, cluster),
            self._leases,
            lambda batch: self._handle(pipeline, batch),
            begin=begin_of(declaration.begin, "begin"),
            settings=follower_settings(declaration, sink),
        )
        if self._stopping.is_set():
            self._ending.set()
            worker.stop()
        self.state = "running"
        async with asyncio.TaskGroup() as tasks:
            looking = tasks.create_task(self._look_often(pipeline, worker), name="parked rows")
            await worker.run()
            looking.cancel()
        if self._failures:
            raise self._failures[0]

    async def _handle(self, pipeline: Pipeline, batch: Batch) -> None:
        try:
            await pipeline.handle(batch)
        except (Unavailable, OutcomeUnknown, Unfinished):
            raise
        except Exception as error:
            self._fail(error)
            raise Unfinished from error
        self.back_off.reset()

    async def _look_often(self, pipeline: Pipeline, worker: ChangeWorker) -> None:
        while True:
            await self._look.wait()
            self._look.clear()
            try:
                if await pipeline.retry_or_skip(lambda: worker.shards):
                    # Another process has the shard, or had it until just now.
                    await asyncio.sleep(LOOK_AGAIN_S)
                    self._look.set()
            except Unfinished:
                return
            except StoreError as error:
                logger.warning("parked rows are retried or skipped later: %s", error)
                await asyncio.sleep(LOOK_AGAIN_S)
                self._look.set()
            except Exception as error:  # noqa: BLE001 - it is raised when the worker has ended.
                self._fail(error)
                return


def follower_settings(declaration: Declaration, sink: Sink) -> FollowerSettings:
    """Return how a connector's shards are read."""
    lease_s = declaration.lease_ms / 1000
    return FollowerSettings(
        lease_s=lease_s,
        checkpoint_s=min(1.0, lease_s / 5),
        batch_changes_max=declaration.batch_rows or traits_of(sink).batch_rows,
        skips_rows=traits_of(sink).changes_only,
    )


def _from_kafka(api: ApiSource, cluster: KafkaCluster) -> ChangeSource:
    """Return a source that reads the logs from the brokers."""
    from rowtide.connectors.runtime.kafka_source import (
        KafkaSource,  # A slow import.
    )

    return KafkaSource(api, cluster)
