"""Runs a worker, and what it needs besides, in one event loop until a signal.

The first SIGINT or SIGTERM drains, the second ends the process at once. That is safe: nothing
acknowledged depends on a drain. No Kafka module is imported unless the logs are in Kafka
(``cli/kafka_start.py``).
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rowtide.cli.built_python import log_interpreter
from rowtide.cli.connector_process import ConnectorProcess
from rowtide.cli.console_process import ConsoleProcess
from rowtide.cli.credentials import SavedCredentials
from rowtide.cli.event_loop import new_event_loop, receive_stop_signals
from rowtide.cli.more_workers import MoreWorkers, watch_parent
from rowtide.cli.open_files import allow_open_files
from rowtide.cli.settings import Settings
from rowtide.connectors.runtime.connector_table import CONNECTOR_TABLE
from rowtide.stream.cluster.worker_directory import WorkerDirectory
from rowtide.stream.measures.clock import MachineClock
from rowtide.stream.measures.collector import pause_collector

if TYPE_CHECKING:
    from rowtide.stream.cluster.backing import Backing
    from rowtide.stream.measures.counts import Counts
    from rowtide.stream.worker.worker import Worker
    from rowtide.stream.worker.worker_config import WorkerConfig

__all__ = ["LOG_FOLDER", "Ground", "Serving", "serve"]

logger = logging.getLogger(__name__)

LOG_FOLDER = "log"
"""Folder of a local log in the data directory."""


class Ground(NamedTuple):
    """The base of a worker. ``bootstrap`` is Kafka's address, empty without Kafka.

    ``watch`` runs beside the worker; it counts in the worker's counts.
    """

    backing: Backing
    bootstrap: str = ""
    watch: Callable[[Counts], Coroutine[Any, Any, None]] | None = None


@dataclass(frozen=True, slots=True)
class Serving:
    """What to run, and the functions to call at its events.

    ``ready`` gets the port and the endpoints of further workers. ``console_ready`` gets the
    console's URL, from another thread. ``stopping`` is called once, at the signal. ``config`` is
    the file of the settings. ``clock`` is the store's.
    """

    settings: Settings
    own: WorkerDirectory
    credentials: SavedCredentials
    ready: Callable[[int, Sequence[str]], None]
    console_ready: Callable[[str], None]
    stopping: Callable[[], None]
    config: Path | None = None
    clock: MachineClock = field(default_factory=MachineClock)


def serve(serving: Serving) -> None:
    """Run until a signal. Raises what made the start fail, or ended the run (in a group)."""
    pause_collector()
    allow_open_files()
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(_serve(serving))


async def _serve(serving: Serving) -> None:
    stop = _stop_at_signals(serving.stopping)
    # First of all: so it is loaded once the worker serves.
    console = ConsoleProcess(serving.settings)
    await console.preload()
    try:
        async with _ground(serving.settings, stop) as ground:
            if ground is not None:
                await _run_worker(serving, ground, console, stop)
    finally:
        await console.stop()


def _ground(settings: Settings, stop: asyncio.Event) -> AbstractAsyncContextManager[Ground | None]:
    """Return the base of the worker; it yields None if ``stop`` was set meanwhile."""
    if settings.log == "local":
        return _local_ground(settings)
    from rowtide.cli.kafka_start import kafka_ground

    return kafka_ground(settings, stop)


@asynccontextmanager
async def _local_ground(settings: Settings) -> AsyncIterator[Ground]:
    # In this thread: nothing else runs yet, and the allocator gives each thread memory of its own.
    from rowtide.stream.worker.local_backing import LocalBacking

    path = settings.data_dir / LOG_FOLDER
    yield Ground(LocalBacking(path, topic_prefix=settings.topic_prefix))


def _stop_at_signals(stopping: Callable[[], None]) -> asyncio.Event:
    stop = asyncio.Event()

    def receive(number: signal.Signals) -> None:
        if stop.is_set():
            os._exit(128 + number)
        stop.set()
        stopping()

    receive_stop_signals(receive)
    return stop


# Running.


async def _run_worker(
    serving: Serving, ground: Ground, console: ConsoleProcess, stop: asyncio.Event
) -> None:
    from rowtide.stream.worker.worker import Worker

    settings, bootstrap = serving.settings, ground.bootstrap
    worker = Worker(worker_config(serving), serving.own, ground.backing)

    served, worker_stop = asyncio.Event(), asyncio.Event()
    connectors = _connectors(serving, worker, bootstrap)
    more = MoreWorkers(settings, serving.credentials, bootstrap, serving.config)
    log_interpreter()
    logger.info("starting the worker")

    def leave() -> None:
        if served.is_set():
            worker.leave()

    async with asyncio.TaskGroup() as tasks:
        watching = tasks.create_task(_run_more(serving, more, worker, served), name="more workers")
        stopping = _stop_in_turn((console, connectors), more, watching, stop, leave, worker_stop)
        beside = [
            watching,
            tasks.create_task(watch_parent(stop), name="parent"),
            tasks.create_task(_run_connectors(connectors, served), name="connectors"),
            tasks.create_task(_run_console(serving, worker, console), name="console"),
            tasks.create_task(stopping, name="stopping"),
        ]
        if ground.watch is not None:
            beside.append(tasks.create_task(ground.watch(worker.counts), name="broker"))
        try:
            await worker.run(ready=lambda _: served.set(), stop=worker_stop)
        finally:
            for task in beside:
                task.cancel()
            await console.stop()
            await connectors.stop()
            await more.stop()


def _connectors(serving: Serving, worker: Worker, bootstrap: str) -> ConnectorProcess:
    instance, wanted = serving.credentials.instance, serving.settings.connectors

    def is_declared() -> bool:
        return wanted and worker.catalog.table(instance, CONNECTOR_TABLE) is not None

    return ConnectorProcess(serving.settings, bootstrap, serving.config, is_declared)


async def _run_console(serving: Serving, worker: Worker, console: ConsoleProcess) -> None:
    """Run the console. While it serves, browsers that open the endpoint go to it."""
    from rowtide.stream.http.pages import ConsoleAddress

    is_first = True

    async def announce(url: str, port: int) -> None:
        nonlocal is_first
        worker.show_console(ConsoleAddress(serving.settings.console_url, port))
        if is_first:
            is_first = False
            await asyncio.to_thread(serving.console_ready, url)

    await console.run(started=announce, ended=lambda: worker.show_console(None))


async def _run_connectors(connectors: ConnectorProcess, served: asyncio.Event) -> None:
    await served.wait()
    await connectors.run()


async def _stop_in_turn(
    beside: Sequence[ConnectorProcess | ConsoleProcess],
    more: MoreWorkers,
    watching: asyncio.Task[None],
    stop: asyncio.Event,
    leave: Callable[[], None],
    worker_stop: asyncio.Event,
) -> None:
    """Stop all workers at once, and what is beside ours while its worker still answers it."""
    await stop.wait()
    leave()
    watching.cancel()  # It would restart the workers that end.
    await asyncio.wait([watching])
    more.signal_stop()
    for process in beside:
        await process.stop()
    worker_stop.set()


async def _run_more(
    serving: Serving, more: MoreWorkers, worker: Worker, served: asyncio.Event
) -> None:
    """Start the further workers once the first one serves, and announce that all are ready."""
    await served.wait()
    serving.ready(worker.port, await more.start())
    await more.watch()


def worker_config(serving: Serving) -> WorkerConfig:
    """Return the configuration of the worker."""
    from rowtide.core.cluster.balance import BalanceSettings
    from rowtide.core.values.limits import Limits
    from rowtide.stream.routing.introduction import Credentials as WorkerCredentials
    from rowtide.stream.slot.lease.lease_settings import LeaseSettings
    from rowtide.stream.slot.settings import SlotSettings
    from rowtide.stream.slot.upkeep.reclaimer import ReclaimSettings
    from rowtide.stream.worker.worker_config import WorkerConfig
    from rowtide.stream.worker.worker_metrics import Watching

    settings = serving.settings
    return WorkerConfig(
        data_dir=settings.data_dir,
        credentials=WorkerCredentials(*serving.credentials),
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
        clock=serving.clock,
    )
