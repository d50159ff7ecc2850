"""How ``rowtide up`` starts Kafka, or connects to it, while the worker is imported.

A start waits for two things: the broker's JVM (a child that needs no Python), and the import of the
worker with Faust (0.8 s of CPU). Both run at once in two threads, while the event loop handles
signals. The worker starts after both, because it must read from the broker.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from rowtide.cli.serving import Ground
from rowtide.cli.settings import Settings
from rowtide.deploy.kafka.broker import EmbeddedBroker
from rowtide.deploy.kafka.config import EmbeddedConfig, default_cache_dir
from rowtide.deploy.kafka.errors import EmbeddedKafkaError
from rowtide.deploy.kafka.jars import KAFKA_VERSION
from rowtide.deploy.kafka.supervision import BrokerBack, BrokerEnded, BrokerEvent, supervise

if TYPE_CHECKING:
    from rowtide.stream.log.kafka.config import KafkaConfig
    from rowtide.stream.measures.counts import Counts

__all__ = ["ClusterUnreachable", "kafka_config", "kafka_ground"]

logger = logging.getLogger(__name__)


class ClusterUnreachable(Exception):
    """The Kafka cluster in the settings does not answer."""


class _StartEnded(Exception):
    """The user ended the start during the download of jars."""


@asynccontextmanager
async def kafka_ground(settings: Settings, stop: asyncio.Event) -> AsyncIterator[Ground | None]:
    """Yield Kafka as a worker's base once it answers; None if ``stop`` was set before."""
    broker = _make_broker(settings, stop)
    try:
        if not await _start(broker, settings, stop):
            yield None
            return
        from rowtide.stream.worker.kafka_backing import KafkaBacking

        bootstrap = settings.kafka if broker is None else broker.bootstrap
        backing = KafkaBacking(kafka_config(settings, bootstrap))
        if broker is None:
            yield Ground(backing, bootstrap)
        else:
            yield Ground(
                backing, bootstrap, lambda counts: supervise(broker, partial(_report, counts))
            )
    finally:
        if broker is not None:
            await asyncio.to_thread(broker.stop)


def _make_broker(settings: Settings, stop: asyncio.Event) -> EmbeddedBroker | None:
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
    """A progress bar on stderr; called in the downloading thread."""

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


async def _start(broker: EmbeddedBroker | None, settings: Settings, stop: asyncio.Event) -> bool:
    """Return True once Kafka answers and the worker is imported; False after a signal."""
    async with asyncio.TaskGroup() as tasks:
        imports = tasks.create_task(asyncio.to_thread(_worker_modules), name="imports")
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
        # Two threads that import modules with mutual imports see incomplete modules.
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
    from rowtide.core.values.errors import Unavailable
    from rowtide.stream.log.kafka.cluster import KafkaCluster

    logger.info("connecting to Kafka at %s", settings.kafka)
    try:
        async with KafkaCluster(kafka_config(settings, settings.kafka)):
            logger.info("Kafka answers")
    except Unavailable as error:
        raise ClusterUnreachable(str(error)) from error


def _worker_modules() -> None:
    """Import the modules of a worker; a second import is free."""
    importlib.import_module("rowtide.stream.worker.kafka_backing")
    importlib.import_module("rowtide.stream.worker.worker")


def _report(counts: Counts, event: BrokerEvent) -> None:
    if isinstance(event, BrokerEnded):
        logger.warning(
            "Kafka (pid %s) ended with status %s; restarting it", event.pid, event.returncode
        )
    elif isinstance(event, BrokerBack):
        counts.broker_restarts += 1
        logger.warning("Kafka answers again at %s", event.bootstrap)
    else:
        logger.warning("Kafka start failed, retry in %g s: %s", event.delay_s, event.error)


def kafka_config(settings: Settings, bootstrap: str) -> KafkaConfig:
    """Return the worker's configuration of Kafka."""
    from rowtide.stream.log.kafka.config import KafkaConfig

    return KafkaConfig.of(
        bootstrap,
        settings.durability,
        security=settings.kafka_security,
        topic_prefix=settings.topic_prefix,
    )
