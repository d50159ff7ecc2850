"""The option that names the folder of a machine's connectors."""

from __future__ import annotations

from pathlib import Path

import click

__all__ = ["folder_option"]

folder_option = click.option(
    "--folder",
    type=click.Path(path_type=Path, resolve_path=True),
    default=Path("rowtide-connectors"),
    show_default=True,
    help="Where connectors keep what is theirs on this machine.",
)
