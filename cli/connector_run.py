"""``rowtide connector run``: runs connectors in this process, along with other such processes."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rowtide.cli.client import ProtocolClient
from rowtide.cli.connection import ClientCommand
from rowtide.cli.connector_folder import folder_option
from rowtide.cli.endpoint_call import endpoint_of
from rowtide.cli.event_loop import new_event_loop, receive_stop_signals
from rowtide.cli.log_format import LOG_FORMATS, set_up_logging
from rowtide.cli.more_workers import watch_parent
from rowtide.cli.own_modules import find_modules_here
from rowtide.cli.settings import Settings, SettingsError, load_settings
from rowtide.connectors.runtime.connector_metrics import MetricsFile
from rowtide.connectors.runtime.host import Host
from rowtide.connectors.runtime.place import ProcessContext
from rowtide.dashboards.runtime.dashboard_run import DashboardKind
from rowtide.stream.measures.collector import tune_collector

if TYPE_CHECKING:
    from rowtide.stream.log.kafka.cluster import KafkaCluster

__all__ = ["run"]


@click.command("run", cls=ClientCommand, prints=False)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option(
    "--kafka", metavar="HOST:PORT", help="Read the logs from this Kafka, not from the server."
)
@click.option("--topic-prefix", help="Topic prefix of `rowtide up`.")
@click.option("--config", type=click.Path(path_type=Path), help="Settings file of `rowtide up`.")
@folder_option
@click.option(
    "--metrics-file",
    type=click.Path(path_type=Path, resolve_path=True),
    help="Write Prometheus metrics to this file every two seconds.",
)
@click.option("--log-format", type=click.Choice(LOG_FORMATS), help="Log lines as text or JSON.")
@click.option("-v", "--verbose", count=True, help="Log details and tracebacks.")
def run(
    client: ProtocolClient,
    names: tuple[str, ...],
    config: Path | None,
    folder: Path,
    metrics_file: Path | None,
    verbose: int,
    **flags: Any,
) -> None:
    """Run connectors here, all or those named, until Ctrl-C.

    Any number of these processes, on any machines, share the shards of tables. `rowtide up`
    runs one beside each worker.
    """
    find_modules_here()
    try:
        settings = load_settings(config, os.environ, flags)
    except SettingsError as error:
        raise click.UsageError(str(error)) from error
    set_up_logging(verbose, settings.log_format)
    metrics = MetricsFile(metrics_file) if metrics_file is not None else None
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(_run(client, names, settings, str(folder), metrics))


async def _run(
    client: ProtocolClient,
    names: tuple[str, ...],
    settings: Settings,
    folder: str,
    metrics: MetricsFile | None,
) -> None:
    stop = asyncio.Event()
    receive_stop_signals(lambda _: stop.set())
    async with (
        endpoint_of(client) as endpoint,
        _reach_kafka(settings) as cluster,
        asyncio.TaskGroup() as tasks,
    ):
        beside = [tasks.create_task(watch_parent(stop), name="parent")]
        if cluster is not None:
            beside.append(tasks.create_task(cluster.brokers.watch(), name="leaders"))
        process = f"{socket.gethostname()}:{os.getpid()}"
        place = ProcessContext(endpoint, os.environ, folder, cluster, process)
        # A batch has thousands of rows with dozens of objects each, and no cycles. The collector's
        # search for cycles took a fifth of the CPU or more.
        tune_collector()
        await Host(place, names, metrics, [DashboardKind(place)]).run(stop)
        for task in beside:
            task.cancel()


@asynccontextmanager
async def _reach_kafka(settings: Settings) -> AsyncIterator[KafkaCluster | None]:
    if not settings.kafka:
        yield None
        return
    # Imported only if needed, because Kafka's client is slow to import.
    from rowtide.cli.kafka_start import kafka_config
    from rowtide.stream.log.kafka.cluster import KafkaCluster

    async with KafkaCluster(kafka_config(settings, settings.kafka)) as cluster:
        yield cluster
