"""Reads a table's shards for an agent while Faust has this worker's partitions in order.

Before Faust moves partitions, the agent finishes the batch in hand and Kafka has all records of the
tables. Reading goes on when Faust has recovered the tables. Otherwise recovery would put older
values over what the agent has just written.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from aiokafka.errors import KafkaError
from faust.types import TP
from mode import Service

from rowtide.client.agents.durable_producer import DurableProducer, NotDelivered
from rowtide.client.agents.offers import Offers
from rowtide.client.agents.recovery_watch import RecoveryWatch
from rowtide.client.agents.table_partitions import (
    find_owned_partitions,
    find_recovered_ends,
    partition_of,
    require_exact_tables,
    table_partitions,
)
from rowtide.client.changes.lease_balance import Plan, plan_owned
from rowtide.client.changes.leases import ReaderLease
from rowtide.client.changes.shard_follower import ShardFollower
from rowtide.client.changes.source import SourceShard
from rowtide.client.changes.worker import ChangeWorker
from rowtide.core.values.errors import Unavailable

__all__ = ["AgentWorker", "ShardReading"]

logger = logging.getLogger(__name__)

READY_CHECK_S = 0.05
"""How often we look whether Faust has recovered its tables. It tells nobody."""

STOP_S_MAX = 10.0
"""How long a worker that ends waits for the agent's batch. Then its leases expire."""


class AgentWorker(ChangeWorker):
    """A reader of the shards whose partitions this worker has. Other shards it leaves alone."""

    def __init__(self, reading: ShardReading, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._reading = reading
        self._former: dict[str, ShardFollower] = {}
        """What followed each shard last. After a rewind an actor may still have its batch."""

    def plan(
        self,
        shards: Sequence[SourceShard],
        leases: Mapping[str, ReaderLease],
        over: Collection[str],
    ) -> Plan:
        """Return the shards to take: all that are ours and free. Without tables, a share."""
        if self._reading.has_tables or not self._reading.offers.is_open:
            return plan_owned(self.id, shards, leases, over, self.keeps)
        return super().plan(shards, leases, over)

    def keeps(self, shard_id: str) -> bool:
        """True if a shard is still ours."""
        return self._reading.offers.owns(shard_id)

    def holds(self, shard_id: str) -> bool:
        """True if the lease of a shard is certainly ours."""
        follower = self._followers.get(shard_id) or self._former.get(shard_id)
        return follower is not None and follower.is_leased and not follower.is_released

    def _forget_follower(self, follower: ShardFollower) -> None:
        self._former[follower.shard_id] = follower
        super()._forget_follower(follower)


class ShardReading(Service):  # type: ignore[misc]
    """The service of an app that reads for one channel.

    ``make_worker`` returns the reader. It is called when the app has started.
    """

    logger = logger

    def __init__(self, app: Any, make_worker: Callable[[ShardReading], AgentWorker]) -> None:
        super().__init__()
        self.app = app
        self._tables = RecoveryWatch(app)
        self.offers = Offers(self._settle, lambda: self._tables.is_ready)
        self._make_worker = make_worker
        self._worker: AgentWorker | None = None
        self._ended = asyncio.Event()
        self._partitions = 0
        self._owned: frozenset[int] = frozenset()
        app.on_partitions_revoked.connect(self._hand_over)

    def partition(self, shard_id: str) -> int:
        """Return the partition of the app's tables that has what is counted of a shard."""
        return partition_of(shard_id, self._partitions) if self._partitions else 0

    @property
    def has_tables(self) -> bool:
        """True if the app has tables, whose partitions divide the shards."""
        return bool(self.app.tables)

    async def on_start(self) -> None:
        """Check the app's settings. Raises ValueError."""
        require_exact_tables(self.app)
        if not isinstance(self.app.producer, DurableProducer):
            raise ValueError("Call change_channel() before anything uses the app's producer.")
        self.app.producer.guard(self._holds_all_taken)

    def _holds_all_taken(self) -> bool:
        """True if no other worker can count what an actor here has."""
        worker = self._worker
        return worker is None or all(map(worker.holds, self.offers.taken_shards))

    @Service.task  # type: ignore[untyped-decorator]
    async def _read(self) -> None:
        self._worker = self._make_worker(self)
        try:
            await self._worker.run()
        finally:
            self._ended.set()

    @Service.task  # type: ignore[untyped-decorator]
    async def _open_when_ready(self) -> None:
        while not self.should_stop:
            if not self.offers.is_open and self._tables.is_ready:
                self._partitions = table_partitions(self.app)
                self._owned = find_owned_partitions(self.app)
                self.app.producer.watch(find_recovered_ends(self.app))
                self.offers.open(self._owns)
            await self.sleep(READY_CHECK_S)

    def _owns(self, shard_id: str) -> bool:
        return not self._partitions or self.partition(shard_id) in self._owned

    async def verify(self, lease: ReaderLease) -> ReaderLease:
        """Return the lease of a shard that was just taken; its counts are complete here.

        Its last worker may have written to the changelog after we had recovered it, if Kafka's
        group dismissed that worker while it was alive. Then ``ForeignRecords`` ends the app: it
        must recover again. The last worker's records are in Kafka, because it released the lease
        after them, or its lease has expired.
        """
        for table in self.app.tables.values():
            place = TP(table.changelog_topic_name, self.partition(lease.shard_id))
            try:
                ends = await self.app.consumer.highwaters(place)
            except KafkaError as error:
                raise Unavailable(f"End of {place}: {error}") from error
            await self.app.producer.require_untouched(place, ends[place])
        return lease

    async def _settle(self) -> None:
        try:
            await self.app.producer.settle()
        except Exception as error:
            await self.app.crash(error)  # The tables are ahead of their changelog.
            raise

    async def _hand_over(self, *_: object, **__: object) -> None:
        """Finish what the agent has in hand. Faust waits before it gives partitions away."""
        self._tables.begin_rebalance()
        self.offers.close()
        async with asyncio.timeout(self.app.conf.broker_rebalance_timeout):
            await self.offers.drain()

    async def on_stop(self) -> None:
        """Give the shards back after the batch in hand."""
        self.offers.close()
        try:
            if self._worker is not None and not self.crashed:
                self._worker.stop()
                async with asyncio.timeout(STOP_S_MAX):
                    await self.offers.drain()
                    await self._ended.wait()
        except (NotDelivered, TimeoutError) as error:
            self.log.warning("The agent's batch is not finished and will come again: %r", error)
        finally:
            # Faust may just have replaced an actor that failed, and would wait for it for ever.
            self.offers.end()
