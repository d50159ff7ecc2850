"""A server's program: this machine's own, or one that is unpacked into the cache."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from typing import NamedTuple

from demo.servers.server import NotStarted

__all__ = ["Program", "find_installed"]


class Program(NamedTuple):
    """The command, and the path of its libraries (empty: this machine's)."""

    command: tuple[str, ...]
    library_path: str = ""

    def environment(self) -> Mapping[str, str]:
        libraries = {"LD_LIBRARY_PATH": self.library_path} if self.library_path else {}
        return {**os.environ, **libraries}

    def output(self, *options: str) -> str:
        """Run it to its end and return its output. Raises NotStarted if it fails.

        It has its own directory of temporary files: MariaDB's server deletes those of others at its
        start.
        """
        with tempfile.TemporaryDirectory() as temporary:
            done = subprocess.run(
                [*self.command, *options],
                env={**self.environment(), "TMPDIR": temporary},
                capture_output=True,
                text=True,
                check=False,
            )
        if done.returncode:
            words = (done.stdout + done.stderr)[-500:]
            raise NotStarted(f"{' '.join(self.command)} failed: {words}")
        return done.stdout


def find_installed(name: str) -> str | None:
    """Return this machine's path of a program; servers are often not on PATH."""
    places = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])
    return shutil.which(name, path=places)
