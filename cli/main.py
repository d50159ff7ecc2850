"""The ``rowtide`` command. Subcommands are imported when they are called: start-up stays quick."""

from __future__ import annotations

import importlib
from importlib.metadata import version

import click

__all__ = ["main"]

COMMANDS = {
    "up": "rowtide.cli.up:up",
}


class LazyGroup(click.Group):
    """A group whose commands are imported on use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands' names in the order a reader asks for them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return one command."""
        target = COMMANDS.get(cmd_name)
        if target is None:
            return None
        module, _, name = target.partition(":")
        command = getattr(importlib.import_module(module), name)
        assert isinstance(command, click.Command), target
        return command


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(version("rowtide"), prog_name="rowtide")
def main() -> None:
    """A self-hosted Table Store whose every change is a stream."""
