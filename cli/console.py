"""``rowtide console``: the web console on its own, and links into a running one."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path

import click

from rowtide.cli.beside_process import find_listener
from rowtide.cli.client import ProtocolClient
from rowtide.cli.command_group import CommandGroup
from rowtide.cli.connection import ClientCommand, data_dir_given
from rowtide.cli.console_link import (
    LinkRefused,
    NoConsole,
    console_beside,
    make_link,
    read_console_url,
)
from rowtide.cli.credentials import write_private
from rowtide.cli.event_loop import new_event_loop, receive_stop_signals
from rowtide.cli.exits import CommandRefused, NotNow
from rowtide.cli.log_format import LOG_FORMATS, set_up_logging
from rowtide.cli.more_workers import PARENT, watch_parent
from rowtide.cli.open_files import allow_open_files
from rowtide.cli.settings import CONSOLE_PORT_OFFSET, Settings, listening_url, variable
from rowtide.console.web.console_settings import ConsoleSettings, parse_hidden_columns
from rowtide.console.workers.calls import KeyPair
from rowtide.stream.http.listening import bind

__all__ = ["console"]

DEFAULT_PORT = Settings().port + CONSOLE_PORT_OFFSET


class _ConsoleGroup(CommandGroup):
    """``rowtide console --endpoint URL`` is ``rowtide console run --endpoint URL``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put ``run`` before options that no command is named for."""
        if not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names):
            args = ["run", *args]
        return super().parse_args(ctx, args)


@click.group("console", cls=_ConsoleGroup)
def console() -> None:
    """Show the cluster in a browser.

    `rowtide up`, `rowtide worker` and `rowtide dev` start a console beside each worker, on its
    port + 1000; `rowtide dev` at its first visitor. Without a command, this is `rowtide console
    run`.
    """


@console.command("run", cls=ClientCommand, prints=False)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=DEFAULT_PORT,
    show_default=True,
    help="Port to listen on; 0 chooses a free one.",
)
@click.option(
    "--console-url",
    default="",
    envvar=variable("console_url"),
    help="Address under which browsers reach the console through a proxy.",
)
@click.option(
    "--console-hide",
    default="",
    envvar=variable("console_hide"),
    metavar="TABLE.COLUMN,...",
    help="Columns whose values the console never shows.",
)
@click.option(
    "--ready-file",
    type=click.Path(path_type=Path),
    help="JSON file to write when the console is ready.",
)
@click.option("--log-format", type=click.Choice(LOG_FORMATS), help="Log lines as text or JSON.")
@click.option("-v", "--verbose", count=True, help="Log details and tracebacks.")
def run(
    client: ProtocolClient,
    host: str,
    port: int,
    console_url: str,
    console_hide: str,
    ready_file: Path | None,
    log_format: str | None,
    verbose: int,
) -> None:
    """Serve the web console of a server until Ctrl-C.

    The access key reads what all visitors share: the cluster's health, figures and streams. Each
    visitor logs in with a key of their own, which signs their actions.
    """
    set_up_logging(verbose, log_format or "text")
    instance, key_id, secret = client.access
    try:
        settings = ConsoleSettings(
            endpoint=client.endpoint,
            instance=instance,
            own_key=KeyPair(key_id, secret),
            host=host,
            port=port,
            public_url=console_url,
            hidden_columns=parse_hidden_columns(console_hide),
        )
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    allow_open_files()
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(_serve(settings, ready_file))


async def _serve(settings: ConsoleSettings, ready_file: Path | None) -> None:
    from rowtide.console.process.serve import serve_console

    try:
        listener = find_listener() or bind(settings.host, settings.port)
    except OSError as error:
        raise _refusal_to_listen(error, settings) from error
    port = int(listener.getsockname()[1])
    url = settings.public_url or listening_url(settings.host, port)
    stop = asyncio.Event()
    receive_stop_signals(lambda _: stop.set())

    def ready() -> None:
        if PARENT not in os.environ:  # A server says it where its people look.
            click.echo(f"The console is at {url}", err=True)
        if ready_file is not None:
            here = listening_url(settings.host, port)
            write_private(ready_file, {"url": here, "port": port, "pid": os.getpid()})

    async with asyncio.TaskGroup() as tasks:
        parent = tasks.create_task(watch_parent(stop), name="parent")
        await serve_console(settings.at_port(port), listener, stop=stop, ready=ready)
        parent.cancel()


def _refusal_to_listen(error: OSError, settings: ConsoleSettings) -> CommandRefused:
    where = f"port {settings.port} of {settings.host}"
    if error.errno == errno.EADDRINUSE:
        return CommandRefused(
            f"The console cannot listen: {where} is in use by another program",
            "Stop that program, or choose another port with --port (0 chooses a free one).",
        )
    return CommandRefused(f"The console cannot listen on {where}: {error.strerror}")


@console.command("open", cls=ClientCommand, prints=False)
@click.option("--url", help="Address of the console; unless set, that of the server.")
def open_console(client: ProtocolClient, url: str | None) -> None:
    """Print a link that logs you in to the console, once, within 60 seconds.

    The link has your access key's rights. Its secret part is behind the #, which browsers send to
    no server.
    """
    url = url or read_console_url(data_dir_given()) or console_beside(client.endpoint)
    try:
        click.echo(make_link(url, *client.access))
    except NoConsole as error:
        raise NotNow(
            str(error)[:1].upper() + str(error)[1:],
            "Does the server run, and was it started without --console false?",
        ) from error
    except LinkRefused as error:
        raise CommandRefused(f"The console makes no link: {error}") from error
