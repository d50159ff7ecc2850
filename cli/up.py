"""The commands that start servers: ``rowtide up``, ``rowtide worker`` and ``rowtide dev``.

``up`` starts Kafka, unless the settings name one, and workers. ``worker`` starts one worker on a
Kafka. ``dev`` starts a single worker without Kafka.

The order matters. Settings are read and the port is tried before anything is written. Then the data
directory is locked, and only its owner changes its content or the ready file.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import click

from rowtide.cli.console_link import LinkRefused, NoConsole, make_link
from rowtide.cli.credentials import (
    SavedCredentials,
    load_or_create,
    remove_endpoint,
    write_endpoint,
    write_private,
)
from rowtide.cli.exits import CommandRefused
from rowtide.cli.field_text import field_texts
from rowtide.cli.log_format import LOG_FORMATS, set_up_logging
from rowtide.cli.serving import LOG_FOLDER, Serving, serve
from rowtide.cli.settings import (
    DURABILITIES,
    LOGS,
    Settings,
    SettingsError,
    flag,
    listening_url,
    load_settings,
)
from rowtide.cli.start_failures import explain_failure
from rowtide.core.release import VERSION
from rowtide.stream.cluster.worker_directory import WorkerDirectory
from rowtide.stream.measures.clock import AdvancedClock, MachineClock

__all__ = ["dev", "up", "worker"]

logger = logging.getLogger(__name__)

Decorated = TypeVar("Decorated", bound=Callable[..., None])

NOT_OF_A_WORKER = frozenset({"log", "workers", "java", "cache_dir"})
"""Settings of what ``rowtide up`` starts besides a worker."""

NOT_OF_DEV = frozenset(
    {
        *("log", "kafka", "topic_prefix", "durability", "workers", "advertise", "lease_ms"),
        *("standbys", "cache_dir", "java", "split_writes_per_s"),
    }
)
"""Settings that only several workers, or Kafka, need."""

SNIPPET = """\
    from tablestore import OTSClient
    client = OTSClient("{endpoint}", "{key_id}", "{secret}", "{instance}")
    print(client.list_table())
"""

_TYPES: dict[str, click.ParamType] = {
    "data_dir": click.Path(path_type=Path),
    "cache_dir": click.Path(path_type=Path),
    "java": click.Path(path_type=Path),
    "port": click.IntRange(0, 65535),
    "slots": click.INT,
    "workers": click.INT,
    "lease_ms": click.INT,
    "standbys": click.INT,
    "free_bytes_min": click.INT,
    "reclaim_rows_per_s": click.INT,
    "partition_units_per_s": click.INT,
    "table_operations_per_s": click.INT,
    "split_bytes": click.INT,
    "split_writes_per_s": click.INT,
    "merge_after_s": click.INT,
    "log": click.Choice(LOGS),
    "durability": click.Choice(DURABILITIES),
    "metrics": click.BOOL,
    "connectors": click.BOOL,
    "console": click.BOOL,
    "connector_dir": click.Path(path_type=Path),
    "log_format": click.Choice(LOG_FORMATS),
    "slow_request_s": click.FLOAT,
    "drain_notice_s": click.FLOAT,
}

_SHORTER = {"data_dir": ["--data"]}
"""Additional names of flags."""


def _setting_options(without: frozenset[str] = frozenset()) -> list[click.Parameter]:
    """Return a flag for each setting that a command line may have, except ``without``."""
    texts = field_texts(Settings)
    return [
        click.Option(
            [flag(f.name), *_SHORTER.get(f.name, ()), f.name],
            type=_TYPES.get(f.name, click.STRING),
            help=f"{texts[f.name]}  [default: {f.default}]" if f.default else texts[f.name],
        )
        for f in fields(Settings)
        if f.name not in {"kafka_security", *without}
    ]


def _add_other_flags(command: Decorated) -> Decorated:
    """Add the flags that are not settings."""
    for added in (
        click.option(
            "-v",
            "--verbose",
            count=True,
            help="Log details and tracebacks; -vv: those of libraries, too.",
        ),
        click.option(
            "--ready-file",
            type=click.Path(path_type=Path),
            help="JSON file to write when the server is ready.",
        ),
        click.option("--config", type=click.Path(path_type=Path), help="A TOML file of settings."),
    ):
        command = added(command)
    return command


@click.command(params=_setting_options())
@_add_other_flags
def up(config: Path | None, ready_file: Path | None, *, verbose: int, **flags: Any) -> None:
    """Start rowtide and keep it running until Ctrl-C.

    The first start downloads Kafka (110 MB) and creates an access key; later starts need no
    network. A second Ctrl-C stops at once. Settings come from the file, then from ROWTIDE_...
    variables, then from flags.
    """
    settings = _settings(config, flags, verbose)
    _start(settings, config, ready_file)


@click.command(params=_setting_options(NOT_OF_A_WORKER))
@_add_other_flags
def worker(config: Path | None, ready_file: Path | None, *, verbose: int, **flags: Any) -> None:
    """Run one worker on the Kafka that --kafka names, until Ctrl-C.

    All workers with the same Kafka and topic prefix are one cluster, on any number of machines.
    Each has its own data directory. Settings come from the file, then from ROWTIDE_...
    variables, then from flags.
    """
    settings = _settings(config, flags, verbose)
    if not settings.kafka:
        raise click.UsageError(
            "No Kafka is named: give --kafka HOST:PORT, or use `rowtide up`, which includes one."
        )
    _start(replace(settings, workers=1), config, ready_file)


@click.command(params=_setting_options(NOT_OF_DEV))
@click.option(
    "--ephemeral",
    is_flag=True,
    help="Keep everything in a temporary directory and delete it at the end.",
)
@click.option(
    "--test-clock",
    is_flag=True,
    help="Allow tests to advance the clock (docs/guides/testing.md). Needs --ephemeral.",
)
@_add_other_flags
def dev(
    config: Path | None,
    ready_file: Path | None,
    *,
    ephemeral: bool,
    test_clock: bool,
    verbose: int,
    **flags: Any,
) -> None:
    """Start rowtide for a laptop or a test, without Kafka and Java, until Ctrl-C.

    It is `rowtide up --log local`: one process with its logs in the data directory. An answered
    write is on the disk, as with Kafka. Settings come from the file, then from ROWTIDE_...
    variables, then from flags.
    """
    if not ephemeral:
        if test_clock:
            # Records of the future would remain, and later writes would have even later stamps.
            raise click.UsageError("--test-clock needs --ephemeral.")
        settings = _settings(config, {**flags, "log": "local"}, verbose)
        _start(settings, config, ready_file)
        return
    if flags["data_dir"] is not None:
        raise click.UsageError("--ephemeral creates its own directory: omit --data-dir.")
    with TemporaryDirectory(prefix="rowtide-dev-", ignore_cleanup_errors=True) as folder:
        flags["data_dir"] = Path(folder)
        settings = _settings(config, {**flags, "log": "local"}, verbose)
        settings = replace(settings, console=settings.console or False)  # Unless requested.
        _start(settings, config, ready_file, AdvancedClock() if test_clock else MachineClock())


def _settings(config: Path | None, flags: dict[str, Any], verbose: int) -> Settings:
    """Return the settings, and set up logging by them. Raises ``UsageError``."""
    set_up_logging(verbose)
    try:
        settings = load_settings(config, os.environ, flags)
    except SettingsError as error:
        raise click.UsageError(str(error)) from error
    set_up_logging(verbose, settings.log_format)
    return settings


def _start(
    settings: Settings,
    config: Path | None,
    ready_file: Path | None,
    clock: MachineClock | None = None,
) -> None:
    """Serve until a signal. Raises a failure that explains to the user what went wrong."""
    try:
        _try_port(settings)
        own = WorkerDirectory(settings.data_dir)
        _require_log(settings)
        if ready_file is not None:
            ready_file.unlink(missing_ok=True)
        credentials, is_new = load_or_create(settings.data_dir, settings.instance)
        notices = _notices(settings, credentials, ready_file, is_new=is_new)
        _run(Serving(settings, own, credentials, *notices, config, clock or MachineClock()))
    except click.ClickException:
        raise
    except Exception as error:
        raise explain_failure(error, settings) from error


def _require_log(settings: Settings) -> None:
    """Raise ``CommandRefused`` if the directory has another kind of log than requested."""
    for log, folder in (("local", LOG_FOLDER), ("kafka", "kafka")):
        if log != settings.log and (settings.data_dir / folder).exists():
            raise CommandRefused(
                f"{settings.data_dir} has its logs in '{folder}', which --log {settings.log} does "
                "not read",
                f"Give --log {log} to `rowtide up`, or choose another --data-dir.",
            )


def _try_port(settings: Settings) -> None:
    """Raise OSError if the port is not available, before a start that takes seconds."""
    family, kind, protocol, _, address = socket.getaddrinfo(
        settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    with socket.socket(family, kind, protocol) as attempt:
        if os.name == "posix":  # On Windows a port in use would be accepted.
            attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        attempt.bind(address)


def _notices(
    settings: Settings, credentials: SavedCredentials, ready_file: Path | None, *, is_new: bool
) -> tuple[Callable[[int, Sequence[str]], None], Callable[[str], None], Callable[[], None]]:
    """Return the functions to call when the server is ready, when its console is, and at the
    signal to stop."""
    shown = is_new or sys.stdout.isatty()

    def ready(port: int, more: Sequence[str]) -> None:
        endpoint = listening_url(settings.host, port)
        write_endpoint(settings.data_dir, endpoint)
        if ready_file is not None:
            write_private(ready_file, {"endpoint": endpoint, **credentials._asdict()})
        _announce([endpoint, *more], credentials, settings.data_dir, secret=shown)

    def console_ready(url: str) -> None:
        # A link would start the console, and expire before many people use it.
        linked = shown and not settings.console_waits
        _announce_console(url, credentials, linked=linked)

    def stopping() -> None:
        remove_endpoint(settings.data_dir)
        click.echo("\nStopping: finishing requests and flushing rows.", err=True)

    return ready, console_ready, stopping


def _run(serving: Serving) -> None:
    data_dir = serving.settings.data_dir
    click.echo(f"rowtide {VERSION}, data in {data_dir}", err=True)
    remove_endpoint(data_dir)  # A killed server leaves it.
    try:
        serve(serving)
    finally:
        remove_endpoint(data_dir)
    click.echo("Stopped.", err=True)


def _announce(
    endpoints: Sequence[str], credentials: SavedCredentials, data_dir: Path, *, secret: bool
) -> None:
    """Print what a client needs. The secret is printed to a terminal, or once when it is new.

    A service's later starts write to a log, which more people can read than the data directory.
    """
    shown = credentials.access_key_secret if secret else f"in {data_dir / 'credentials.json'}"
    endpoint = endpoints[0]
    click.echo(f"\nrowtide is ready.\n\n  endpoint           {endpoint}")
    for other in endpoints[1:]:
        click.echo(f"  another worker     {other}")
    click.echo(f"  instance           {credentials.instance}")
    click.echo(f"  access key id      {credentials.access_key_id}")
    click.echo(f"  access key secret  {shown}\n")
    if secret:
        click.echo("With the official SDK (pip install tablestore):\n")
        click.echo(
            SNIPPET.format(
                endpoint=endpoint,
                key_id=credentials.access_key_id,
                secret=credentials.access_key_secret,
                instance=credentials.instance,
            )
        )
    click.echo("Ctrl-C stops it.")


def _announce_console(url: str, credentials: SavedCredentials, *, linked: bool) -> None:
    """Print where the console is, if ``linked`` as a link that logs in once."""
    id_, secret_text, instance = credentials
    link = ""
    if linked:
        try:
            link = make_link(url, instance, id_, secret_text)
        except (NoConsole, LinkRefused) as error:
            logger.warning("no one-time link was made: %s", error)
    click.echo(f"\n  console            {link or url}")
    if link:
        click.echo("                     The link logs you in once, within 60 seconds.")
        click.echo("                     `rowtide console open` prints a new link.\n")
    else:
        click.echo("                     `rowtide console open` prints a link that logs you in.\n")
