"""``rowtide completion``: the script with which a shell completes commands, options and tables."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

__all__ = ["completion"]

SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script of SHELL.

    \b
    bash   eval "$(rowtide completion bash)"        in ~/.bashrc
    zsh    eval "$(rowtide completion zsh)"         in ~/.zshrc
    fish   rowtide completion fish > ~/.config/fish/completions/rowtide.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None, shell
    script = kind(ctx.find_root().command, {}, "rowtide", "_ROWTIDE_COMPLETE")
    # Not script.source(): it first runs bash to find its version.
    click.echo(script.source_template % script.source_vars())
