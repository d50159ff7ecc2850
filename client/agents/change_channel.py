"""A Faust channel whose events are batches of a table's changes.

The consumer's position moves when the agent has acknowledged a batch. Faust's own acknowledgements
change nothing: Faust acknowledges also what an agent has failed on, and what it drops itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

from faust.channels import Channel
from faust.types import TP, Message

from rowtide.client.agents.changelog_queue import ChangelogQueue
from rowtide.client.agents.durable_producer import DurableProducer
from rowtide.client.agents.offers import AgentBatch
from rowtide.client.agents.shard_reading import AgentWorker, ShardReading
from rowtide.client.async_client import AsyncClient
from rowtide.client.changes.api import ApiSource
from rowtide.client.changes.leases import TableLeases
from rowtide.client.changes.shard_follower import ResumingHandle
from rowtide.client.changes.start import Begin
from rowtide.client.changes.worker import FollowerSettings
from rowtide.client.predicates import Predicate

__all__ = ["ChangeChannel", "change_channel"]

DRIVERS = ("kafka", "aiokafka")
"""Schemes of a broker's address with which Faust uses aiokafka."""

LOG_APPEND_TIME = 1
"""Kafka's number for a timestamp that the log gave."""


class ChangeChannel(Channel):  # type: ignore[misc]
    """A channel that is fed by ``reading``. Each event's value is an ``AgentBatch``."""

    def __init__(self, app: Any, *, reading: ShardReading, **options: Any) -> None:
        super().__init__(app, **options)
        self.reading = reading

    def _clone_args(self) -> Mapping[str, Any]:
        return {**super()._clone_args(), "reading": self.reading}

    def __str__(self) -> str:
        return "changes"

    def __aiter__(self) -> Self:
        iterator: Self = super().__aiter__()
        return iterator

    def owns(self, shard_id: str) -> bool:
        """True if this worker counts a shard now. False while Faust moves partitions."""
        return self.reading.offers.owns(shard_id)

    async def __anext__(self) -> Any:
        """Return the next event. Faust calls this where the channel's queue is empty: always."""
        return self._event_of(await self.reading.offers.take())

    def _event_of(self, batch: AgentBatch) -> Any:
        """Return an event of the shard's partition, so that Faust writes tables there."""
        partition = self.reading.partition(batch.shard_id)
        last = batch.changes[-1] if batch.changes else None
        message = Message(
            topic=batch.table,
            partition=partition,
            offset=last.sequence if last else 0,
            timestamp=(last.stamp if last else batch.stamp) / 1e6,
            timestamp_type=LOG_APPEND_TIME,
            headers=None,
            key=batch.shard_id.encode(),
            value=None,
            checksum=None,
            tp=TP(batch.table, partition),
            generation_id=self.app.consumer_generation_id,
        )
        return self.app.create_event(batch.shard_id, batch, None, message)


def change_channel(
    app: Any,
    client: AsyncClient,
    table: str,
    *,
    consumer: str,
    begin: Begin = "oldest",
    columns: Sequence[str] = (),
    filter: Predicate | None = None,
    settings: FollowerSettings | None = None,
) -> ChangeChannel:
    """Return a channel with the changes of a table that has a stream.

    ``app`` is a ``faust.App`` with the default driver, and must not have started. Its workers share
    the shards of ``consumer``. If the app has tables, the worker of a partition reads the shards of
    that partition. The other arguments are those of ``AsyncClient.changes``.

    Raises ValueError for another driver. The app crashes with ValueError at its start if its
    settings could lose counts (docs/guides/agents.md).
    """
    scheme = app.conf.broker_producer[0].scheme
    if scheme not in DRIVERS:
        raise ValueError(f"The broker's driver is {scheme}. A change channel needs aiokafka.")
    app.transport.Producer = DurableProducer
    app.tables._changelog_queue = ChangelogQueue(app)
    filter_bytes = b"" if filter is None else filter.encode()

    def make_worker(reading: ShardReading) -> AgentWorker:
        source = ApiSource(client.endpoint, table, columns=columns, filter=filter_bytes)
        leases = TableLeases(client.endpoint, consumer)
        handle = ResumingHandle(reading.offers.give, reading.verify)
        return AgentWorker(reading, source, leases, handle, begin=begin, settings=settings)

    reading = ShardReading(app, make_worker)
    app.service(reading)
    return ChangeChannel(app, reading=reading)
