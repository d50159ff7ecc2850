"""Confirmation before something is lost."""

from __future__ import annotations

import sys

import click

__all__ = ["confirm", "yes_option"]

yes_option = click.option("--yes", is_flag=True, help="Do not ask.")


def confirm(question: str, *, yes: bool) -> None:
    """Return only if the user agrees; without a terminal, only with ``--yes``."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"{question} Standard input is no terminal: give --yes.")
    click.confirm(question, abort=True, err=True)
