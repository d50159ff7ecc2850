"""``rowtide up``: Kafka, unless one is named, and a worker; until Ctrl-C.

Only here the environment is read and the parts are built. Everything that can be set is in
``settings.py``.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from rowtide.cli.credentials import load_or_create
from rowtide.cli.settings import Settings, SettingsError, load_settings
from rowtide.deploy.kafka.broker import EmbeddedBroker
from rowtide.deploy.kafka.config import EmbeddedConfig, default_cache_dir
from rowtide.deploy.kafka.errors import EmbeddedKafkaError
from rowtide.deploy.kafka.supervision import BrokerEvent, supervise
from rowtide.stream.worker import Credentials, Worker
from rowtide.stream.worker_directory import DirectoryBusy, WorkerDirectory

__all__ = ["up"]

SNIPPET = """\
    from tablestore import OTSClient
    client = OTSClient("{endpoint}", "{key_id}", "{secret}", "{instance}")
    print(client.list_table())
"""


@click.command()
@click.option("--data-dir", type=click.Path(path_type=Path), help="Where everything is kept.")
@click.option("--host", help="Address to listen on; loopback unless set.")
@click.option("--port", type=click.IntRange(0, 65535), help="Port to listen on; 0 is a free one.")
@click.option("--kafka", help="Use this cluster, HOST:PORT[,HOST:PORT], not the embedded one.")
@click.option("--java", type=click.Path(path_type=Path), help="A Java >= 17 for the embedded one.")
@click.option(
    "--durability",
    type=click.Choice(["fsync", "replicated"]),
    help="When a write is acknowledged: flushed by one broker, or held by two.",
)
@click.option("--config", type=click.Path(path_type=Path, exists=True), help="A TOML file.")
@click.option(
    "--ready-file", type=click.Path(path_type=Path), help="Written as JSON when clients may come."
)
@click.option("-v", "--verbose", is_flag=True, help="Log more.")
def up(config: Path | None, ready_file: Path | None, *, verbose: bool, **flags: object) -> None:
    """Start rowtide and keep it running until Ctrl-C."""
    logging.basicConfig(
        level=logging.INFO if verbose else logging.WARNING,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    logging.getLogger("aiokafka").setLevel(logging.ERROR)
    try:
        settings = load_settings(config, os.environ, flags)
    except SettingsError as error:
        raise click.ClickException(str(error)) from error
    try:
        own = WorkerDirectory(settings.data_dir)
        if ready_file is not None:
            ready_file.unlink(missing_ok=True)
        credentials = load_or_create(settings.data_dir, settings.instance)
        with _broker(settings) as broker:
            _run(settings, own, credentials, broker, ready_file)
    except (DirectoryBusy, EmbeddedKafkaError) as error:
        raise click.ClickException(str(error)) from error


@contextlib.contextmanager
def _broker(settings: Settings) -> Iterator[EmbeddedBroker | None]:
    """Run the embedded broker, unless the settings name a cluster."""
    if settings.kafka:
        yield None
        return
    config = EmbeddedConfig(
        settings.data_dir / "kafka",
        settings.cache_dir or default_cache_dir(os.environ, sys.platform),
        java=settings.java,
        fsync=settings.durability == "fsync",
    )
    with EmbeddedBroker(config, progress=_progress()) as broker:
        yield broker


def _progress():  # type: ignore[no-untyped-def]
    return None


def _run(
    settings: Settings,
    own: WorkerDirectory,
    credentials: Credentials,
    broker: EmbeddedBroker | None,
    ready_file: Path | None,
) -> None:
    import uvloop

    bootstrap = settings.kafka or (broker.bootstrap if broker is not None else "")
    worker = Worker(settings.worker(credentials, bootstrap), own)
    try:
        uvloop.run(_serve(worker, credentials, broker, ready_file))
    except* Exception as failures:  # noqa: BLE001  # The outermost frame: say why and end.
        logging.getLogger(__name__).exception("rowtide stops")
        raise click.ClickException(str(_first(failures))) from failures


async def _serve(
    worker: Worker,
    credentials: Credentials,
    broker: EmbeddedBroker | None,
    ready_file: Path | None,
) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)

    def ready(running: Worker) -> None:
        _announce(running, credentials, ready_file)

    async with asyncio.TaskGroup() as tasks:
        watch = None
        if broker is not None:
            watch = tasks.create_task(supervise(broker, _report), name="broker")
        await worker.run(ready=ready, stop=stop)
        if watch is not None:
            watch.cancel()


def _announce(worker: Worker, credentials: Credentials, ready_file: Path | None) -> None:
    endpoint = f"http://{worker.config.host}:{worker.port}"
    key_id, secret, instance = credentials
    click.echo(f"\nrowtide is ready.\n\n  endpoint           {endpoint}")
    click.echo(f"  instance           {instance}\n  access key id      {key_id}")
    click.echo(f"  access key secret  {secret}\n\nWith the official SDK (pip install tablestore):\n")
    click.echo(SNIPPET.format(endpoint=endpoint, key_id=key_id, secret=secret, instance=instance))
    click.echo("Ctrl-C stops it.")
    if ready_file is not None:
        content = {
            "endpoint": endpoint,
            "instance": instance,
            "access_key_id": key_id,
            "access_key_secret": secret,
        }
        draft = ready_file.with_name(ready_file.name + ".new")
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as out:
            json.dump(content, out)
        draft.replace(ready_file)


def _report(event: BrokerEvent) -> None:
    logging.getLogger(__name__).warning("embedded Kafka: %s", event)


def _first(failures: BaseExceptionGroup[BaseException]) -> BaseException:
    found: BaseException = failures
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found
