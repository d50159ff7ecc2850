"""Watches the free space of a worker's disk, so that writes are rejected before it is full."""

from __future__ import annotations

import shutil
from pathlib import Path

from rowtide.stream.api.directory import Directory
from rowtide.stream.measures.ticks import sleep_to_tick

__all__ = ["watch_disk"]

DISK_CHECK_S = 1.0


async def watch_disk(path: Path, directory: Directory, free_bytes_min: int) -> None:
    """Report the free bytes of the disk of ``path`` to ``directory`` until cancelled.

    ``directory`` rejects writes while fewer than ``free_bytes_min`` are free.
    """
    while True:
        directory.learn_free_bytes(shutil.disk_usage(path).free, free_bytes_min)
        await sleep_to_tick(DISK_CHECK_S)
