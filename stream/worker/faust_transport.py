"""How Faust reaches Kafka: a consumer that joins the group and fetches nothing.

This module knows aiokafka's consumer as Faust drives it: in its own thread, so that
heartbeats go on while the event loop is busy. A producer that cannot send replaces
Faust's, because only flushes write the changelog of ``rows``.

Invariants: the partitions of our slots are paused in aiokafka, so they cost no fetch. A
failure in aiokafka's coordinator is raised within ``CHECK_S`` seconds. Otherwise it would
wait for a poll that never comes.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from faust.transport.drivers import aiokafka as driver
from faust.transport.producer import Producer
from mode import Service
from mode.threads import WorkerThread
from mode.utils.futures import maybe_set_exception

from rowtide.stream.log.kafka.config import Security
from rowtide.stream.log.kafka.connection import tls_context
from rowtide.stream.worker.faust_config import MembershipConfig

__all__ = ["ChangelogMissing", "SlotCountMismatch", "SlotTransport"]

HEARTBEAT_MS_MAX = 500
"""A member learns of a rebalance at its next heartbeat, so all others wait this long."""

RETRY_MS = 250
"""aiokafka's pause after each failed request while the broker is away."""

CHECK_S = 1.0
"""Interval at which the thread checks for errors that aiokafka keeps for its next poll."""

FETCH_IDLE_S = 5.0
"""Interval at which aiokafka's fetch loop wakes while all partitions are paused (default
0.2).
"""

POLL_INTERVAL_MS_MAX = 10 * 365 * 86_400_000
"""aiokafka leaves a group after this long without a poll; paused partitions get no polls."""


own_logger = logging.getLogger(__name__)
logger = logging.getLogger("faust")
"""Faust's services log under Faust's name."""


class SlotCountMismatch(Exception):
    """The changelog topic's partition count differs from the configured number of slots."""


class ChangelogMissing(Exception):
    """The changelog topic does not exist (yet)."""


class _DaemonThread(WorkerThread):  # type: ignore[misc]
    """A thread that cannot keep the process alive when it hangs on a dead broker."""

    def __init__(self, service: Any, **options: Any) -> None:
        super().__init__(service, **options)
        self.daemon = True

    def run(self) -> None:
        try:
            super().run()
        except Exception as error:  # noqa: BLE001 - crash() has reported it, and no caller is above.
            logger.debug("the consumer's thread ended: %r", error)


class _Listener(driver.ConsumerRebalanceListener):  # type: ignore[misc]
    """Pauses the served slots' partitions before the fetcher can request them."""

    async def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        self._thread.hold_active(assigned)
        await super().on_partitions_assigned(assigned)
        self._thread.correct_address()


class _ConsumerThread(driver.AIOKafkaConsumerThread):  # type: ignore[misc]
    """aiokafka's consumer with our settings, in a daemon thread."""

    Worker = _DaemonThread
    logger = logger
    _is_away = False

    def _create_worker_consumer(self, transport: SlotTransport) -> Any:
        config = transport.config
        return driver.aiokafka.AIOKafkaConsumer(
            client_id=config.instance,
            group_id=config.group,
            group_instance_id=config.instance,
            bootstrap_servers=config.bootstrap,
            partition_assignment_strategy=[self.app.assignor],
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            retry_backoff_ms=RETRY_MS,
            max_poll_interval_ms=POLL_INTERVAL_MS_MAX,
            session_timeout_ms=config.session_timeout_ms,
            rebalance_timeout_ms=config.session_timeout_ms,
            heartbeat_interval_ms=min(config.session_timeout_ms // 3, HEARTBEAT_MS_MAX),
            **_security(config.security),
        )

    async def on_start(self) -> None:
        await super().on_start()
        consumer = self._ensure_consumer()
        consumer._fetcher._fetcher_timeout = FETCH_IDLE_S
        await _check_changelog(consumer, self.transport.config)

    async def on_thread_stop(self) -> None:
        consumer = self._consumer
        if self.app.leaving and consumer is not None and consumer._coordinator is not None:
            # aiokafka keeps a static member in the group when it stops. That is right
            # between two lives of the app. A worker that ends must hand its slots over at
            # once.
            consumer._coordinator._group_instance_id = None
        await super().on_thread_stop()

    def close(self) -> None:
        """Do nothing: the thread closes its consumer as it stops.

        Faust calls this when a rebalance meets a stopping app. It would close the sockets
        in the event loop of another thread.
        """

    def correct_address(self) -> None:
        """Rejoin if the other members know an address of a former life."""
        if self.app.assignor.address_is_stale:
            self._ensure_consumer()._coordinator.request_rejoin()

    def hold_active(self, assigned: Iterable[Any]) -> None:
        """Stop aiokafka from fetching partitions that the slots read themselves."""
        consumer = self._ensure_consumer()
        actives = self.app.assignor.assigned_actives()
        for partition in assigned:
            if partition in actives:
                # A set position also saves a look-up at the broker.
                consumer.seek(partition, 0)
                consumer.pause(partition)

    @Service.task  # type: ignore[untyped-decorator]
    async def _thread_keepalive(self) -> None:
        # Replaces mode's timer of the same name and period.
        while not self.should_stop:
            await self.sleep(CHECK_S)
            if self._consumer is not None and not self.should_stop:
                self._consumer._coordinator.check_errors()
                self._log_broker_state(self._consumer._coordinator.coordinator_id is None)

    def _log_broker_state(self, is_away: bool) -> None:
        # aiokafka writes dozens of lines a second meanwhile, and none when the broker is
        # back.
        if is_away != self._is_away:
            level = logging.WARNING if is_away else logging.INFO
            own_logger.log(level, "slots: the group's broker is %s", "away" if is_away else "back")
        self._is_away = is_away

    async def crash(self, reason: BaseException) -> None:
        """End this life of the app, and report the reason to the thread's starter too."""
        self.parent_loop.call_soon_threadsafe(maybe_set_exception, self._thread_running, reason)
        self.app._crash(reason)

    def _crash(self, reason: BaseException) -> None:
        # The crash may come from any thread, but only its own thread sets this loop's
        # events.
        if not self.thread_loop.is_closed():
            self.thread_loop.call_soon_threadsafe(super()._crash, reason)

    def _stopped_set(self) -> None:
        if self.thread_loop.is_closed():
            self._stopped.set()  # The thread has ended, and nothing waits in it.
        else:
            super()._stopped_set()

    def on_crash(self, msg: str, *fmt: Any, **kwargs: Any) -> None:
        """Log nothing here (mode writes to stderr): the keeper of the app logs the reason."""


class _Consumer(driver.Consumer):  # type: ignore[misc]
    """Faust's consumer without its timers for source topics, of which there are none."""

    RebalanceListener = _Listener
    logger = logger

    def _new_consumer_thread(self) -> _ConsumerThread:
        return _ConsumerThread(self, loop=self.loop, beacon=self.beacon)

    async def perform_seek(self) -> None:
        """Do nothing: no offset is committed, so there is no position to seek."""

    async def verify_all_partitions_active(self) -> None:
        """Do nothing: paused partitions are not active, and that is no error."""


class _NoProducer(Producer):  # type: ignore[misc]
    """A producer that opens no connection. The base class rejects any send."""

    logger = logger

    async def on_start(self) -> None:
        """Start no buffer."""


class SlotTransport(driver.Transport):  # type: ignore[misc]
    """Faust's driver for the group of workers."""

    Consumer = _Consumer
    Producer = _NoProducer

    def __init__(self, app: Any, config: MembershipConfig) -> None:
        super().__init__(app.conf.broker_consumer, app)
        self.config = config


async def _check_changelog(consumer: Any, config: MembershipConfig) -> None:
    await consumer._client.add_topic(config.changelog_topic)
    partitions = consumer.partitions_for_topic(config.changelog_topic)
    if not partitions:
        raise ChangelogMissing(f"topic {config.changelog_topic} does not exist")
    if len(partitions) != config.slots:
        raise SlotCountMismatch(
            f"topic {config.changelog_topic} has {len(partitions)} partitions, which fix the "
            f"number of slots: set slots to {len(partitions)}, not {config.slots}"
        )


def _security(security: Security) -> dict[str, Any]:
    return {
        "security_protocol": security.protocol,
        "ssl_context": tls_context(security),
        "sasl_mechanism": security.sasl_mechanism,
        "sasl_plain_username": security.sasl_username,
        "sasl_plain_password": security.sasl_password,
    }
