"""The ``rowtide`` command. Subcommands are imported when called, so that it starts quickly."""

from __future__ import annotations

import errno
import importlib
import os
import signal
import sys
from typing import Any, NamedTuple

import click

from rowtide.core import native
from rowtide.core.release import VERSION

__all__ = ["main"]

PURE = "ROWTIDE_PURE"
"""Environment variable; with 1, Python replaces the compiled kernels."""


class _Place(NamedTuple):
    """The module of a command, and its line in the list of commands."""

    module: str
    name: str
    summary: str


COMMANDS = {
    "up": _Place("rowtide.cli.up", "up", "Start rowtide and keep it running until Ctrl-C."),
    "dev": _Place("rowtide.cli.up", "dev", "Start rowtide for a laptop or a test, without Kafka."),
    "worker": _Place("rowtide.cli.up", "worker", "Run one worker of a cluster on your Kafka."),
    "status": _Place("rowtide.cli.status", "status", "Show the state of the server."),
    "cluster": _Place(
        "rowtide.cli.cluster", "cluster", "Show and manage the workers of a cluster."
    ),
    "instance": _Place("rowtide.cli.instance", "instance", "Create, list and delete instances."),
    "key": _Place("rowtide.cli.key", "key", "Create, list and revoke access keys."),
    "token": _Place("rowtide.cli.token", "token", "Create, list and revoke share tokens."),
    "table": _Place("rowtide.cli.table", "table", "Create, change and delete tables."),
    "index": _Place(
        "rowtide.cli.index", "index", "Create, list and drop secondary indexes of tables."
    ),
    "shard": _Place(
        "rowtide.cli.shard", "shard", "List, split, merge and move the shards of tables."
    ),
    "row": _Place("rowtide.cli.row", "row", "Read and write rows."),
    "timeline": _Place(
        "rowtide.cli.timeline",
        "timeline",
        "Keep lists of messages in tables: chats, feeds, device messages.",
    ),
    "consumption": _Place(
        "rowtide.cli.consumption", "consumption", "Show the consumed capacity units."
    ),
    "search": _Place("rowtide.cli.search", "search", "Find rows by words and by columns."),
    "stream": _Place("rowtide.cli.stream", "stream", "Follow the changes of a table."),
    "connector": _Place(
        "rowtide.cli.connector",
        "connector",
        "Move changes between tables and other systems.",
    ),
    "dashboard": _Place(
        "rowtide.cli.dashboard",
        "dashboard",
        "Show numbers over a table that are exact at positions of its log.",
    ),
    "console": _Place(
        "rowtide.cli.console", "console", "Show the cluster in a browser: serve pages, print links."
    ),
    "verify": _Place(
        "rowtide.cli.verify", "verify", "Compare a table with its copy by a connector."
    ),
    "export": _Place("rowtide.cli.moving", "export_logs", "Export a local directory to a folder."),
    "import": _Place("rowtide.cli.moving", "import_logs", "Import an export into a Kafka cluster."),
    "completion": _Place(
        "rowtide.cli.completion", "completion", "Print the completion script of a shell."
    ),
}


UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Errors of a write to stdout if that is a file, or its disk is full."""


class LazyGroup(click.Group):
    """A group whose commands are imported on use. Listing them needs no import."""

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run the command line. Output that cannot be written ends it with one sentence."""
        try:
            return super().main(*args, **extra)
        except OSError as error:
            if error.errno not in UNWRITABLE or error.filename is not None:
                raise
            click.echo(f"Error: Cannot write the output: {error.strerror}", err=True)
            sys.exit(1)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands' names in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return one command."""
        place = COMMANDS.get(cmd_name)
        if place is None:
            return None
        command = getattr(importlib.import_module(place.module), place.name)
        assert isinstance(command, click.Command), place
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; Ctrl-C ends it with the code that shells expect."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo(err=True)
            ctx.exit(128 + signal.SIGINT)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, place.summary) for name, place in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION, prog_name="rowtide")
def main() -> None:
    """A self-hosted Table Store whose every change is a stream."""
    native.choose(pure=os.environ.get(PURE) == "1")
