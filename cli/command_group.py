"""A command group that lists its commands in source order, with their whole first sentence."""

from __future__ import annotations

import click

__all__ = ["CommandGroup"]

SENTENCE_MAX = 200


class CommandGroup(click.Group):
    """Click sorts by name and cuts sentences; this group does neither."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of definition."""
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands."""
        with formatter.section("Commands"):
            formatter.write_dl(
                [
                    (name, command.get_short_help_str(SENTENCE_MAX))
                    for name, command in self.commands.items()
                ]
            )
