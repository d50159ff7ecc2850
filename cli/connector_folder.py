"""The option for the folder of this machine's connectors, and its default."""

from __future__ import annotations

from pathlib import Path

import click

from rowtide.cli.settings import Settings

__all__ = ["folder_of", "folder_option"]

RUN_HERE = Path("rowtide-connectors")

folder_option = click.option(
    "--folder",
    type=click.Path(path_type=Path, resolve_path=True),
    default=RUN_HERE,
    show_default=True,
    help="Directory of connectors' files on this machine.",
)


def folder_of(connector: str, data_dir: Path) -> Path:
    """Return the folder of connectors that has the files of ``connector``.

    It is the one of ``rowtide up`` on ``data_dir``, unless only ``rowtide connector run`` has files
    of the connector here.
    """
    beside = Settings(data_dir=data_dir).connector_folder
    here = (RUN_HERE / connector).is_dir() and not (beside / connector).is_dir()
    return (RUN_HERE if here else beside).resolve()
