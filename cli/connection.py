"""How a command finds its server and its key: flags, the environment, then the data directory.

Without flags and variables it uses the server of ``rowtide up`` on ``--data-dir``. Each of the four
values is searched separately, so ``--instance`` can be changed alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from rowtide.cli.client import ProtocolClient
from rowtide.cli.credentials import read_credentials, read_endpoint
from rowtide.cli.exits import CommandRefused, NotNow, raise_failures
from rowtide.cli.settings import Settings, flag, variable

__all__ = ["ClientCommand", "complete_table", "data_dir_given"]

_DATA_DIR = "rowtide.data_dir"


def _options() -> list[click.Option]:
    """Return new option objects, because click keeps state in them."""
    return [
        click.Option(["--endpoint"], envvar="ROWTIDE_ENDPOINT", help="http://HOST:PORT"),
        click.Option(["--instance"], envvar="ROWTIDE_INSTANCE", help="Name of the instance."),
        click.Option(
            ["--access-key-id"], envvar="ROWTIDE_ACCESS_KEY_ID", help="Id of the access key."
        ),
        click.Option(
            ["--access-key-secret"],
            envvar="ROWTIDE_ACCESS_KEY_SECRET",
            help="Secret of the access key. Other users can see flags, but not variables.",
        ),
        click.Option(
            ["--data-dir"],
            envvar="ROWTIDE_DATA_DIR",
            type=click.Path(path_type=Path),
            default=Settings().data_dir,
            show_default=True,
            help="Use the server that `rowtide up` or `rowtide dev` runs on this directory.",
        ),
        click.Option(
            ["--timeout", "timeout_s"],
            type=click.FloatRange(min=0, min_open=True),
            default=30.0,
            show_default=True,
            help="Seconds to wait for an answer.",
        ),
    ]


CONNECTION = ("endpoint", "instance", "access_key_id", "access_key_secret", "data_dir", "timeout_s")


class ClientCommand(click.Command):
    """A command that calls a server. Its function gets ``client``, and ``output`` if it prints.

    ``writes``: a call may change something, so a missing answer is another failure.
    """

    def __init__(
        self, *args: Any, writes: bool = False, prints: bool = True, **attributes: Any
    ) -> None:
        super().__init__(*args, **attributes)
        self._writes = writes
        if prints:
            choice = click.Choice(["table", "json"])
            text = "Output for people or for programs."
            self.params.append(
                click.Option(["--output", "-o"], type=choice, default="table", help=text)
            )
        self.params.extend(_options())

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command with a client; failures end it with one sentence."""
        given = {name: ctx.params.pop(name) for name in CONNECTION}
        ctx.meta[_DATA_DIR] = given["data_dir"]
        with (
            client_of(given) as client,
            raise_failures(writes=self._writes, begun=lambda: client.changed),
        ):
            ctx.params["client"] = client
            return super().invoke(ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the connection's options separately: they are the same for every command."""
        own: list[tuple[str, str]] = []
        shared: list[tuple[str, str]] = []
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                (shared if parameter.name in CONNECTION else own).append(record)
        for title, records in (("Options", own), ("Connection", shared)):
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


def data_dir_given() -> Path:
    """Return the data directory of the running command."""
    return Path(click.get_current_context().meta[_DATA_DIR])


def client_of(given: dict[str, Any]) -> ProtocolClient:
    """Return a client by the given values, and by the data directory for the others."""
    data_dir: Path = given["data_dir"]
    try:
        stored = read_credentials(data_dir)
        endpoint = given["endpoint"] or read_endpoint(data_dir)
    except (OSError, ValueError, KeyError) as error:
        raise CommandRefused(
            f"Cannot read the files of `rowtide up` in {data_dir}: {error}"
        ) from error
    if endpoint is None:
        raise NotNow(
            f"No rowtide runs on {data_dir}",
            "Start it with `rowtide up`, or name another --data-dir or --endpoint.",
        )
    return _connect(endpoint, given, stored._asdict() if stored else {})


def _connect(endpoint: str, given: dict[str, Any], stored: dict[str, str]) -> ProtocolClient:
    found = {name: given[name] or stored.get(name, "") for name in CONNECTION[1:4]}
    missing = [name for name, value in found.items() if not value]
    if missing:
        name = missing[0]
        raise click.UsageError(
            f"{flag(name)} (or {variable(name)}) is needed: {given['data_dir']} has no "
            f"credentials.json of `rowtide up`"
        )
    try:
        return ProtocolClient(endpoint, timeout_s=given["timeout_s"], **found)
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def complete_table(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return tables for shell completion; none if the server does not answer."""
    given: dict[str, Any] = {name: ctx.params.get(name) for name in CONNECTION}
    given["data_dir"] = given["data_dir"] or Settings().data_dir
    given["timeout_s"] = 2.0
    try:
        with client_of(given) as client, raise_failures(writes=False):
            return [name for name in client.list_table() if name.startswith(incomplete)]
    except click.ClickException:
        return []
