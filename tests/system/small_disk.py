"""A small file system of its own, which only root may mount, and a file that fills it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["PIECE", "Ballast", "NoDisk", "small_disk"]

PIECE = 1 << 20


class NoDisk(Exception):
    """A file system can't be mounted here."""


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[Path]:
    """Mount a file system of ``size`` bytes at ``folder``, which is made. Raises ``NoDisk``."""
    folder.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "rowtide-test", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode:
        raise NoDisk("a file system can't be mounted here: this test needs root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


class Ballast:
    """A file that takes space from everybody else."""

    def __init__(self, disk: Path) -> None:
        self._disk = disk
        self._file = disk / "ballast"

    @property
    def free(self) -> int:
        found = os.statvfs(self._disk)
        return found.f_bavail * found.f_frsize

    def leave(self, free: int) -> None:
        """Grow until at most ``free`` bytes are left."""
        with suppress(OSError), self._file.open("ab", buffering=0) as file:
            while (excess := self.free - free) > 0:
                file.write(bytes(min(PIECE, excess)))

    def drop(self) -> None:
        """Give all of it back."""
        self._file.unlink(missing_ok=True)
