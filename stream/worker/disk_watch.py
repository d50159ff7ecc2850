"""Watches how much room a worker's disk has left, so that writes are refused before it is full."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

from rowtide.stream.api.directory import Directory

__all__ = ["watch_disk"]

DISK_CHECK_S = 1.0


async def watch_disk(path: Path, directory: Directory, free_bytes_min: int) -> None:
    """Let writes be refused while the disk of ``path`` has less left; looks until cancelled."""
    while True:
        directory.learn_free_bytes(shutil.disk_usage(path).free, free_bytes_min)
        await asyncio.sleep(DISK_CHECK_S)
