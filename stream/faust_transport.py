"""How Faust reaches Kafka: a consumer that takes part in the group and fetches nothing by itself.

Knows aiokafka's consumer as Faust drives it: in a thread of its own, so that heartbeats go on
while the event loop is busy. Faust's producer is replaced by one that cannot send, for the
changelog of ``rows`` is written by flushes alone.

Invariants: everything is read ``read_committed``; the partitions of slots served here are
paused in aiokafka, so they cost no fetch; a failure that aiokafka's coordinator meets is
raised within ``CHECK_S`` seconds instead of waiting for a poll that never comes.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from aiokafka import AIOKafkaConsumer
from faust.transport.drivers.aiokafka import (
    AIOKafkaConsumerThread,
    Consumer,
    ConsumerRebalanceListener,
    Transport,
)
from faust.transport.producer import Producer
from mode import Service
from mode.threads import WorkerThread

__all__ = ["GroupSettings", "SlotTransport"]

FETCH_BYTES_MAX = 16 << 20
"""Per partition and request. Faust's 1 MiB holds a reader at 4,000 events/s, this gives 21,000."""

CHECK_S = 1.0
"""How often the thread looks for errors that aiokafka keeps for its next poll."""

FETCH_IDLE_S = 5.0
"""How often aiokafka's fetch loop wakes while every partition is paused (its own: 0.2)."""

POLL_INTERVAL_MS_MAX = 10 * 365 * 86_400_000
"""aiokafka leaves a group that is not polled for this long; paused partitions are never polled."""


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """What the consumer tells Kafka, in aiokafka's units."""

    bootstrap: str
    group: str
    instance: str | None
    session_timeout_ms: int
    security_protocol: str = "PLAINTEXT"
    sasl_mechanism: str | None = None
    sasl_username: str | None = None
    sasl_password: str | None = None
    ssl_context: ssl.SSLContext | None = None

    def security(self) -> dict[str, Any]:
        """aiokafka's arguments for encryption and authentication."""
        arguments: dict[str, Any] = {
            "security_protocol": self.security_protocol,
            "ssl_context": self.ssl_context,
        }
        if self.sasl_mechanism is not None:
            arguments["sasl_mechanism"] = self.sasl_mechanism
            arguments["sasl_plain_username"] = self.sasl_username
            arguments["sasl_plain_password"] = self.sasl_password
        return arguments


class _DaemonThread(WorkerThread):  # type: ignore[misc]
    """A thread that cannot keep the process alive when it hangs on a dead broker."""

    def __init__(self, service: Any, **options: Any) -> None:
        super().__init__(service, **options)
        self.daemon = True


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    """Pauses the served slots' partitions before the fetcher can ask for them."""

    async def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        self._thread.hold_active(assigned)
        await super().on_partitions_assigned(assigned)


class _ConsumerThread(AIOKafkaConsumerThread):  # type: ignore[misc]
    """aiokafka's consumer with our settings, in a daemon thread."""

    Worker = _DaemonThread

    def _create_worker_consumer(self, transport: SlotTransport) -> AIOKafkaConsumer:
        settings = transport.settings
        timeout_ms = settings.session_timeout_ms
        return AIOKafkaConsumer(
            client_id=settings.instance or settings.group,
            group_id=settings.group,
            group_instance_id=settings.instance,
            bootstrap_servers=settings.bootstrap,
            partition_assignment_strategy=[self.app.assignor],
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            max_partition_fetch_bytes=FETCH_BYTES_MAX,
            fetch_max_wait_ms=1500,
            max_poll_interval_ms=POLL_INTERVAL_MS_MAX,
            session_timeout_ms=timeout_ms,
            rebalance_timeout_ms=timeout_ms,
            heartbeat_interval_ms=timeout_ms // 3,
            **settings.security(),
        )

    async def on_start(self) -> None:
        await super().on_start()
        self._ensure_consumer()._fetcher._fetcher_timeout = FETCH_IDLE_S

    async def on_thread_stop(self) -> None:
        consumer = self._consumer
        if consumer is not None and consumer._coordinator is not None:
            # aiokafka keeps a static member in the group when it stops. A clean stop hands the
            # slots over at once; only a crash is waited for, by the session time-out.
            consumer._coordinator._group_instance_id = None
        await super().on_thread_stop()

    def hold_active(self, assigned: Iterable[Any]) -> None:
        """Stop aiokafka from fetching what slot opening reads by itself."""
        consumer = self._ensure_consumer()
        actives = self.app.assignor.assigned_actives()
        for partition in assigned:
            if partition in actives:
                # With a position it does not look one up at the broker either.
                consumer.seek(partition, 0)
                consumer.pause(partition)

    @Service.task  # type: ignore[untyped-decorator]
    async def _thread_keepalive(self) -> None:
        # Replaces mode's timer of the same name and period.
        while not self.should_stop:
            await self.sleep(CHECK_S)
            if self._consumer is not None and not self.should_stop:
                self._consumer._coordinator.check_errors()

    def _crash(self, reason: BaseException) -> None:
        # Wherever the crash was seen: events of this loop are set in its thread only.
        if not self.thread_loop.is_closed():
            self.thread_loop.call_soon_threadsafe(super()._crash, reason)

    def on_crash(self, msg: str, *fmt: Any, **kwargs: Any) -> None:
        """Say nothing here (mode writes to stderr): whoever keeps the app logs the reason."""


class _Consumer(Consumer):  # type: ignore[misc]
    """Faust's consumer without its clockwork for source topics, of which there are none."""

    RebalanceListener = _Listener

    def _new_consumer_thread(self) -> _ConsumerThread:
        return _ConsumerThread(self, loop=self.loop, beacon=self.beacon)

    async def perform_seek(self) -> None:
        """Nothing is committed, so there is nothing to seek to."""

    async def verify_all_partitions_active(self) -> None:
        """Paused partitions are not active, and that is no fault."""


class _NoProducer(Producer):  # type: ignore[misc]
    """A producer that opens no connection. Any send is refused by the base class."""

    async def on_start(self) -> None:
        """Start no buffer."""


class SlotTransport(Transport):  # type: ignore[misc]
    """Faust's driver for the group of workers."""

    Consumer = _Consumer
    Producer = _NoProducer

    def __init__(self, app: Any, settings: GroupSettings) -> None:
        super().__init__(app.conf.broker_consumer, app)
        self.settings = settings
