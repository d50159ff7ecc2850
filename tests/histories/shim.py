"""Another time of day, and a slower disk, for one process: ``shim.c``, compiled where it is needed.

The C library's clock and flush calls are replaced by a preloaded library that reads what it should
do from a file. Without a C compiler, or where nothing can be preloaded (macOS), there is no shim,
and faults that need one say so.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path

__all__ = ["Shim", "missing"]

SOURCE = Path(__file__).with_name("shim.c")
SETTINGS = struct.Struct("=qq")


def missing() -> str:
    """Return what a shim lacks on this machine, empty for nothing."""
    if sys.platform != "linux":
        return "Linux"
    return "" if shutil.which("cc") else "a C compiler"


class Shim:
    """The library and its file in ``folder``; for processes that get ``environment``."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._library = folder / "shim.so"
        self._file = folder / "settings"
        self.skew_s = 0.0
        self._flush_s = 0.0
        if not self._library.exists():
            command = ["cc", "-O2", "-shared", "-fPIC", "-o", str(self._library)]
            subprocess.run([*command, str(SOURCE), "-ldl"], check=True)
        self._tell()

    @property
    def environment(self) -> dict[str, str]:
        """Variables of a process that is to use it."""
        return {"LD_PRELOAD": str(self._library), "ROWTIDE_SHIM": str(self._file)}

    def set_clock(self, skew_s: float) -> None:
        """Let the time of day be ``skew_s`` ahead, at once."""
        self.skew_s = skew_s
        self._tell()

    def slow_disk(self, flush_s: float) -> None:
        """Let every flush take ``flush_s`` longer."""
        self._flush_s = flush_s
        self._tell()

    def java(self, java: Path, folder: Path) -> Path:
        """Return a launcher of Java under this shim."""
        launcher = folder / "java"
        variables = " ".join(f"{name}='{value}'" for name, value in self.environment.items())
        launcher.write_text(f"#!/bin/sh\n{variables} exec '{java}' \"$@\"\n")
        launcher.chmod(0o755)
        return launcher

    def _tell(self) -> None:
        """Write in place: a process has the file in its memory."""
        settings = SETTINGS.pack(int(self.skew_s * 1e9), int(self._flush_s * 1e6))
        file = os.open(self._file, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.pwrite(file, settings, 0)
        finally:
            os.close(file)
