"""One sink connector in this process: opened, fed, and begun again when it fails.

Its shards are shared, by their leases, with every other process that runs the same connector.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass

from rowtide.connectors.fields import Fields, SettingsRefused
from rowtide.connectors.registry import Surroundings, make_sink
from rowtide.connectors.rows import TableShape
from rowtide.connectors.runtime.back_off import BackOff
from rowtide.connectors.runtime.declaration import Declaration, begin_of
from rowtide.connectors.runtime.declarations import group_of
from rowtide.connectors.runtime.parking import ParkedRows
from rowtide.connectors.runtime.pipeline import Pipeline, Target
from rowtide.connectors.runtime.progress import Progress
from rowtide.connectors.sink import Sink
from rowtide.core.errors import OutcomeUnknown, StoreError, Unavailable
from rowtide.core.schema import KeyColumn
from rowtide.core.wire import ots_pb2 as pb
from rowtide.stream.change_api import ApiSource
from rowtide.stream.change_kafka import KafkaSource
from rowtide.stream.change_leases import TableLeases
from rowtide.stream.change_source import ChangeSource
from rowtide.stream.change_worker import Batch, ChangeWorker, FollowerSettings
from rowtide.stream.endpoint import Endpoint
from rowtide.stream.kafka_cluster import Cluster
from rowtide.stream.shard_follower import Unfinished

__all__ = ["Place", "SinkRun"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Place:
    """Where connectors run: what they reach, and what of this machine is theirs.

    ``environment`` resolves ``${NAME}``; ``folder`` holds a folder for each connector; ``cluster``
    is Kafka, where this process reaches it.
    """

    endpoint: Endpoint
    environment: Mapping[str, str]
    folder: str
    cluster: Cluster | None = None

    def surroundings(self, name: str) -> Surroundings:
        """Return what a connector may know of it."""
        kafka = self.cluster.config.bootstrap if self.cluster is not None else ""
        return Surroundings(name, f"{self.folder}/{name}", kafka)


class SinkRun:
    """Runs ``declaration`` until stopped."""

    def __init__(self, declaration: Declaration, place: Place) -> None:
        self.declaration = declaration
        self.progress = Progress()
        self.state = "starting"
        self.source: ChangeSource | None = None
        self.parked = ParkedRows(place.endpoint, declaration.name)
        self._place = place
        self._stopping = asyncio.Event()
        self._worker: ChangeWorker | None = None

    @property
    def shards(self) -> list[str]:
        """Return the shards that are read here now."""
        return self._worker.shards if self._worker is not None else []

    def stop(self) -> None:
        """Let ``run`` end after the batches in hand, whose shards others may go on with."""
        self._stopping.set()
        if self._worker is not None:
            self._worker.stop()

    async def run(self) -> None:
        """Run until stopped; whatever fails is tried again after a pause."""
        back_off = BackOff()
        while not self._stopping.is_set():
            self.state = "starting"
            try:
                await self._once(back_off)
            except Exception as error:  # noqa: BLE001 - of sinks and transforms, whatever it is.
                self._failed(error)
                await back_off.pause(self._stopping)
        self.state = "stopped"

    def _failed(self, error: Exception) -> None:
        self.state = "failed"
        self.progress.failed(f"{type(error).__name__}: {error}")
        known = isinstance(error, StoreError | SettingsRefused)
        name = self.declaration.name
        logger.warning("%s failed: %s", name, error, exc_info=None if known else error)

    async def _once(self, back_off: BackOff) -> None:
        declaration, place = self.declaration, self._place
        transforms = declaration.transforms
        api = ApiSource(place.endpoint, declaration.table, columns=transforms.wanted)
        self.source = api if place.cluster is None else KafkaSource(api, place.cluster)
        shape = transforms.shape(await table_shape(place.endpoint, declaration.table))
        where = f"connectors.{declaration.name}.sink"
        fields = Fields(declaration.sink, where, environment=place.environment)
        sink = make_sink(fields, place.surroundings(declaration.name))
        try:
            await sink.open(shape)
            await self._feed(api, sink, back_off)
        finally:
            self._worker = None
            await sink.close()

    async def _feed(self, api: ApiSource, sink: Sink, back_off: BackOff) -> None:
        declaration = self.declaration
        assert self.source is not None, "it was made with the sink"
        target = Target(
            sink,
            declaration.transforms,
            declaration.transforms.load(),
            self.parked,
            declaration.parked_max,
        )
        pipeline = Pipeline(api, target, self.progress, self._stopping)
        failures: list[Exception] = []

        async def handle(batch: Batch) -> None:
            try:
                await pipeline.handle(batch)
                back_off.succeeded()
            except (Unavailable, OutcomeUnknown, Unfinished):
                raise
            except Exception as error:
                # The leases are given up at once: another process may have more luck.
                failures.append(error)
                worker.stop()
                raise Unfinished from error

        worker = self._worker = ChangeWorker(
            self.source,
            TableLeases(self._place.endpoint, group_of(declaration.name)),
            handle,
            begin=begin_of(declaration.begin, "begin"),
            settings=follower_settings(declaration),
        )
        if self._stopping.is_set():
            worker.stop()
        self.state = "running"
        await worker.run()
        if failures:
            raise failures[0]


def follower_settings(declaration: Declaration) -> FollowerSettings:
    """Return how a connector's shards are read."""
    lease_s = declaration.lease_ms / 1000
    return FollowerSettings(
        lease_s=lease_s,
        checkpoint_s=min(1.0, lease_s / 5),
        batch_changes_max=declaration.batch_rows,
    )


async def table_shape(endpoint: Endpoint, table: str) -> TableShape:
    """Return a table's name and key. Raises OTSObjectNotExist."""
    asked = pb.DescribeTableRequest(table_name=table)
    told = await endpoint.call("DescribeTable", asked, pb.DescribeTableResponse)
    key = [KeyColumn(column.name, column.type) for column in told.table_meta.primary_key]
    return TableShape(table, tuple(key))
