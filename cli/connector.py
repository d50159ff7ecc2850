"""``rowtide connector``: what moves changes out of tables and into them, and how it gets on."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import click

from rowtide.cli.client import Client
from rowtide.cli.command_group import CommandGroup
from rowtide.cli.connection import ClientCommand
from rowtide.cli.endpoint_call import asked, endpoint_of
from rowtide.cli.exits import Refused
from rowtide.cli.log_format import LOG_FORMATS, set_up_logging
from rowtide.cli.more_workers import watch_parent
from rowtide.cli.output import Output, emit_json, emit_table
from rowtide.cli.serving import kafka_config
from rowtide.cli.settings import SettingsError, load_settings
from rowtide.connectors.fields import SettingsRefused
from rowtide.connectors.runtime.declaration import Declaration, judge, parse_file
from rowtide.connectors.runtime.declarations import Declarations, Declared
from rowtide.connectors.runtime.host import Host
from rowtide.connectors.runtime.sink_run import Place
from rowtide.stream.endpoint import Endpoint
from rowtide.stream.kafka_cluster import Cluster, KafkaConfig

__all__ = ["connector"]


@click.group(cls=CommandGroup)
def connector() -> None:
    """Move changes between tables and other systems.

    Connectors are declared in a YAML file; see docs/connectors.md.
    """


_file = click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))


@connector.command("apply", cls=ClientCommand, writes=True, prints=False)
@_file
def apply(client: Client, file: Path) -> None:
    """Declare the connectors of FILE."""
    declarations = _parsed(file)
    for declaration in declarations:
        _judge(declaration)

    async def declare(endpoint: Endpoint) -> None:
        kept = Declarations(endpoint)
        for declaration in declarations:
            await kept.declare(declaration)

    asked(client, declare)
    for declaration in declarations:
        click.echo(f"Declared {declaration.name}.")


def _parsed(file: Path) -> list[Declaration]:
    try:
        return parse_file(file.read_text(encoding="utf-8"), str(file))
    except (OSError, UnicodeDecodeError, SettingsRefused) as error:
        raise click.UsageError(str(error)) from error


def _judge(declaration: Declaration) -> None:
    sys.path.insert(0, str(Path.cwd()))
    try:
        for doubt in judge(declaration, os.environ):
            click.echo(doubt, err=True)
    except SettingsRefused as error:
        raise click.UsageError(str(error)) from error


@connector.command("status", cls=ClientCommand)
@click.argument("names", nargs=-1, metavar="[NAME]...")
def status(client: Client, names: tuple[str, ...], output: Output) -> None:
    """Show how connectors get on."""
    found = asked(client, lambda endpoint: Declarations(endpoint).all())
    for name in names:
        if name not in found:
            raise Refused(f"There is no connector {name}")
    shown = [_shown(declared) for name, declared in found.items() if not names or name in names]
    if output == "json":
        emit_json(shown)
        return
    header = ("name", "table", "kind", "state")
    emit_table(header, [[item[name] for name in header] for item in shown])


def _shown(declared: Declared) -> dict[str, object]:
    declaration = declared.declaration
    return {
        "name": declared.name,
        "table": declaration.table if declaration else None,
        "kind": declaration.kind if declaration else None,
        "state": "paused" if declared.paused else "declared",
    }


@connector.command("run", cls=ClientCommand, prints=False)
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--kafka", metavar="HOST:PORT", help="Read the logs from Kafka, not from the server.")
@click.option("--topic-prefix", help="As `rowtide up` has it.")
@click.option("--config", type=click.Path(path_type=Path), help="The file of `rowtide up`.")
@click.option(
    "--folder",
    type=click.Path(path_type=Path, resolve_path=True),
    default=Path("rowtide-connectors"),
    show_default=True,
    help="Where connectors keep what is theirs on this machine.",
)
@click.option("--log-format", type=click.Choice(LOG_FORMATS), help="Lines for eyes, or JSON.")
@click.option("-v", "--verbose", count=True, help="Log details and tracebacks.")
def run(
    client: Client,
    names: tuple[str, ...],
    config: Path | None,
    folder: Path,
    verbose: int,
    **flags: Any,
) -> None:
    """Run connectors here, all or those named, until Ctrl-C.

    Start it as often as you like, here and elsewhere: the shards of tables are shared.
    """
    import uvloop

    sys.path.insert(0, str(Path.cwd()))
    try:
        settings = load_settings(config, os.environ, flags)
    except SettingsError as error:
        raise click.UsageError(str(error)) from error
    set_up_logging(verbose, settings.log_format)
    kafka = kafka_config(settings, settings.kafka) if settings.kafka else None
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run(client, names, kafka, folder))


async def _run(
    client: Client, names: tuple[str, ...], config: KafkaConfig | None, folder: Path
) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with (
        endpoint_of(client) as endpoint,
        _reached(config) as cluster,
        asyncio.TaskGroup() as tasks,
    ):
        parent = tasks.create_task(watch_parent(stop), name="parent")
        place = Place(endpoint, os.environ, str(folder), cluster)
        await Host(place, names).run(stop)
        parent.cancel()


@asynccontextmanager
async def _reached(config: KafkaConfig | None) -> AsyncIterator[Cluster | None]:
    if config is None:
        yield None
        return
    async with Cluster(config) as cluster:
        yield cluster
