"""A server's program as it is called: this machine's own, or one unpacked into the cache."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from typing import NamedTuple

from demo.servers.server import NotStarted

__all__ = ["Program", "installed"]


class Program(NamedTuple):
    """What calls it, and where its libraries are (empty: where this machine has them)."""

    command: tuple[str, ...]
    library_path: str = ""

    def environment(self) -> Mapping[str, str]:
        libraries = {"LD_LIBRARY_PATH": self.library_path} if self.library_path else {}
        return {**os.environ, **libraries}

    def output(self, *options: str) -> str:
        """Run it to its end and return what it prints. Raises NotStarted where it fails.

        Its temporary files are its own: MariaDB's server deletes those of others as it starts.
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


def installed(name: str) -> str | None:
    """Return where this machine has a program; servers often stand beside PATH."""
    places = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])
    return shutil.which(name, path=places)
