"""Runs Kafka and a worker in one event loop until a signal.

What a start waits for: the broker's JVM (a child that needs no Python) and the import of the
worker with Faust under it (0.8 s of CPU) run at once, in two threads, while this loop minds
signals. Only then does the worker begin, because it must read the broker. The first SIGINT or
SIGTERM drains, the second ends the process at once: nothing acknowledged depends on a drain, and
the broker's watchdog ends the broker.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rowtide.cli.connector_process import ConnectorProcess
from rowtide.cli.credentials import Credentials
from rowtide.cli.more_workers import MoreWorkers, watch_parent
from rowtide.cli.open_files import allow_open_files
from rowtide.cli.settings import Settings
from rowtide.deploy.kafka.broker import EmbeddedBroker
from rowtide.deploy.kafka.config import EmbeddedConfig, default_cache_dir
from rowtide.deploy.kafka.errors import EmbeddedKafkaError
from rowtide.deploy.kafka.jars import KAFKA_VERSION
from rowtide.deploy.kafka.supervision import BrokerBack, BrokerEnded, BrokerEvent, supervise
from rowtide.stream.workers.worker_directory import WorkerDirectory

if TYPE_CHECKING:
    from rowtide.stream.measures.counts import Counts
    from rowtide.stream.workers.worker import Worker
    from rowtide.stream.workers.worker_config import WorkerConfig

__all__ = ["ClusterUnreachable", "Serving", "serve"]

logger = logging.getLogger(__name__)


class ClusterUnreachable(Exception):
    """The Kafka cluster that the settings name does not answer."""


class _StartEnded(Exception):
    """The user ended the start while jars were being fetched."""


@dataclass(frozen=True, slots=True)
class Serving:
    """What is run, and who is told.

    ``ready`` is told the port and the endpoints of further workers, ``stopping`` is called once, at
    the signal. ``config`` is the file that settings came from.
    """

    settings: Settings
    own: WorkerDirectory
    credentials: Credentials
    ready: Callable[[int, Sequence[str]], None]
    stopping: Callable[[], None]
    config: Path | None = None


def serve(serving: Serving) -> None:
    """Run until a signal; raises what made the start impossible, or ended it (in a group)."""
    import uvloop

    allow_open_files()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(serving))


async def _serve(serving: Serving) -> None:
    stop = _stop_at_signals(serving.stopping)
    broker = _embedded(serving.settings, stop)
    try:
        if await _started(broker, serving.settings, stop):
            await _run_worker(serving, broker, stop)
    finally:
        if broker is not None:
            await asyncio.to_thread(broker.stop)


def _stop_at_signals(stopping: Callable[[], None]) -> asyncio.Event:
    stop = asyncio.Event()

    def received(number: signal.Signals) -> None:
        if stop.is_set():
            os._exit(128 + number)
        stop.set()
        stopping()

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, received, number)
    return stop


def _embedded(settings: Settings, stop: asyncio.Event) -> EmbeddedBroker | None:
    """Return the broker to start, unless the settings name a cluster."""
    if settings.kafka:
        return None
    config = EmbeddedConfig(
        settings.data_dir / "kafka",
        settings.cache_dir or default_cache_dir(os.environ, sys.platform),
        java=settings.java,
        fsync=settings.durability == "fsync",
    )
    return EmbeddedBroker(config, progress=_JarProgress(stop))


class _JarProgress:
    """A progress bar on stderr; called in the thread that fetches."""

    def __init__(self, stop: asyncio.Event) -> None:
        self._stop = stop
        self._bar: Any = None
        self._done = 0

    def __call__(self, done: int, total: int, _name: str) -> None:
        if self._stop.is_set():
            raise _StartEnded
        if self._bar is None:
            label = f"Fetching Kafka {KAFKA_VERSION} (110 MB, once)"
            self._bar = click.progressbar(length=total, label=label, file=sys.stderr)
        self._bar.update(done - self._done)
        self._done = done
        if done == total:
            self._bar.render_finish()


# Starting.


async def _started(broker: EmbeddedBroker | None, settings: Settings, stop: asyncio.Event) -> bool:
    """Return True once Kafka answers and the worker is imported, False when ended by a signal."""
    async with asyncio.TaskGroup() as tasks:
        imports = tasks.create_task(asyncio.to_thread(_worker_module), name="imports")
        start = tasks.create_task(_start_kafka(broker, settings, stop, imports), name="kafka")
        stopped = tasks.create_task(stop.wait(), name="stop")
        await asyncio.wait([start, stopped], return_when=asyncio.FIRST_COMPLETED)
        if stop.is_set():
            if broker is not None:
                await asyncio.to_thread(broker.stop)
            start.cancel()
        stopped.cancel()
    return not stop.is_set()


async def _start_kafka(
    broker: EmbeddedBroker | None,
    settings: Settings,
    stop: asyncio.Event,
    imports: asyncio.Task[None],
) -> None:
    if broker is None:
        # Two threads that import modules which import each other see them half made.
        await imports
        await _reach(settings)
        return
    logger.info("starting Kafka %s", KAFKA_VERSION)
    try:
        await asyncio.to_thread(broker.start)
    except (EmbeddedKafkaError, _StartEnded):
        if not stop.is_set():
            raise
    else:
        logger.info("Kafka answers at %s (pid %s)", broker.bootstrap, broker.pid)


async def _reach(settings: Settings) -> None:
    """Raise ``ClusterUnreachable`` unless a broker of the cluster answers."""
    from rowtide.core.errors import Unavailable
    from rowtide.stream.kafka.cluster import Cluster

    logger.info("connecting to Kafka at %s", settings.kafka)
    try:
        async with Cluster(kafka_config(settings, settings.kafka)):
            logger.info("Kafka answers")
    except Unavailable as error:
        raise ClusterUnreachable(str(error)) from error


def _worker_module() -> None:
    """Import what a worker needs; a second import is free."""
    importlib.import_module("rowtide.stream.workers.worker")


# Running.


async def _run_worker(serving: Serving, broker: EmbeddedBroker | None, stop: asyncio.Event) -> None:
    from rowtide.stream.workers.worker import Worker

    settings = serving.settings
    bootstrap = settings.kafka if broker is None else broker.bootstrap
    worker = Worker(worker_config(settings, serving.credentials, bootstrap), serving.own)

    served, worker_stop = asyncio.Event(), asyncio.Event()
    connectors = _connectors(serving, worker, bootstrap)
    more = MoreWorkers(settings, serving.credentials, bootstrap, serving.config)
    logger.info("starting the worker")

    def leave() -> None:
        if served.is_set():
            worker.leave()

    async with asyncio.TaskGroup() as tasks:
        watching = tasks.create_task(_run_more(serving, more, worker, served), name="more workers")
        stopping = _stop_in_turn(connectors, more, watching, stop, leave, worker_stop)
        beside = [
            watching,
            tasks.create_task(watch_parent(stop), name="parent"),
            tasks.create_task(_run_connectors(connectors, served), name="connectors"),
            tasks.create_task(stopping, name="stopping"),
        ]
        if broker is not None:
            report = partial(_report, worker.counts)
            beside.append(tasks.create_task(supervise(broker, report), name="broker"))
        try:
            await worker.run(ready=lambda _: served.set(), stop=worker_stop)
        finally:
            for task in beside:
                task.cancel()
            await connectors.stop()
            await more.stop()


def _connectors(serving: Serving, worker: Worker, bootstrap: str) -> ConnectorProcess:
    from rowtide.connectors.runtime.declarations import CONNECTOR_TABLE

    instance, wanted = serving.credentials.instance, serving.settings.connectors

    def declared() -> bool:
        return wanted and worker.catalog.table(instance, CONNECTOR_TABLE) is not None

    return ConnectorProcess(serving.settings, bootstrap, serving.config, declared)


async def _run_connectors(connectors: ConnectorProcess, served: asyncio.Event) -> None:
    await served.wait()
    await connectors.run()


async def _stop_in_turn(
    connectors: ConnectorProcess,
    more: MoreWorkers,
    watching: asyncio.Task[None],
    stop: asyncio.Event,
    leave: Callable[[], None],
    worker_stop: asyncio.Event,
) -> None:
    """Let all workers stop at once, and connectors while their own worker still answers them."""
    await stop.wait()
    leave()
    watching.cancel()  # It would start again whatever ends.
    await asyncio.wait([watching])
    more.tell_to_stop()
    await connectors.stop()
    worker_stop.set()


async def _run_more(
    serving: Serving, more: MoreWorkers, worker: Worker, served: asyncio.Event
) -> None:
    """Start the further workers once the first serves, and say that all are ready."""
    await served.wait()
    serving.ready(worker.port, await more.start())
    await more.watch()


def _report(counts: Counts, event: BrokerEvent) -> None:
    if isinstance(event, BrokerEnded):
        logger.warning(
            "Kafka (pid %s) ended with status %s, starting it again", event.pid, event.returncode
        )
    elif isinstance(event, BrokerBack):
        counts.broker_restarts += 1
        logger.warning("Kafka is back at %s", event.bootstrap)
    else:
        logger.warning("Kafka does not start, next try in %g s: %s", event.delay_s, event.error)


def kafka_config(settings: Settings, bootstrap: str) -> Any:
    """Return how the worker reaches Kafka."""
    from rowtide.stream.kafka.config import KafkaConfig

    return KafkaConfig.of(
        bootstrap,
        settings.durability,
        security=settings.kafka_security,
        topic_prefix=settings.topic_prefix,
    )


def worker_config(settings: Settings, credentials: Credentials, bootstrap: str) -> WorkerConfig:
    """Return what a worker needs."""
    from rowtide.core.balance import BalanceSettings
    from rowtide.core.limits import Limits
    from rowtide.stream.routing.introduction import Credentials as WorkerCredentials
    from rowtide.stream.slots.lease_keeper import LeaseSettings
    from rowtide.stream.slots.reclaimer import ReclaimSettings
    from rowtide.stream.slots.settings import SlotSettings
    from rowtide.stream.workers.worker_config import WorkerConfig
    from rowtide.stream.workers.worker_metrics import Watching

    return WorkerConfig(
        kafka=kafka_config(settings, bootstrap),
        data_dir=settings.data_dir,
        credentials=WorkerCredentials(*credentials),
        host=settings.host,
        port=settings.port,
        slots=settings.slots,
        standbys=settings.standbys,
        advertise=settings.advertise,
        lease=LeaseSettings(lease_s=settings.lease_ms / 1000),
        free_bytes_min=settings.free_bytes_min,
        slot=SlotSettings(reclaim=ReclaimSettings(rows_per_s=settings.reclaim_rows_per_s)),
        limits=Limits(
            table_operations_per_s=settings.table_operations_per_s,
            partition_units_per_s=settings.partition_units_per_s,
        ),
        balance=BalanceSettings(
            split_bytes=settings.split_bytes,
            split_writes_per_s=settings.split_writes_per_s,
            merge_after_s=settings.merge_after_s,
        ),
        watching=Watching(
            metrics=settings.serves_metrics,
            slow_request_s=settings.slow_request_s,
            drain_notice_s=settings.drain_notice_s,
        ),
    )
