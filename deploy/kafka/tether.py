"""A child process that does not outlive this one, however this one ends.

Linux has PDEATHSIG, but it fires when the *thread* that started the child ends, needs code between
fork and exec, and exists only on Linux. Instead a second small child, the watchdog (a POSIX shell,
1 MB), reads from a pipe whose only writer is this process. At the end of file this process has
ended, also after kill -9. Then the watchdog ends the tethered child. A line on the pipe releases
the watchdog.

Both children lead sessions of their own, so that Ctrl-C in the terminal reaches neither. We decide
the order in which they stop.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

__all__ = ["TetheredProcess"]

# $1 is the child's pid, $2 the seconds for it to end. ``kill -0`` tests if it is running.
WATCHDOG = """
read -r _released && exit 0
kill -TERM "$1" 2>/dev/null
while [ "$2" -gt 0 ] && kill -0 "$1" 2>/dev/null; do sleep 1; set -- "$1" $(($2 - 1)); done
kill -KILL "$1" 2>/dev/null
"""
GRACE_S = 15

NICE = ("nice", "-n", "19")
"""Runs a command at the lowest priority, as the same process."""


class TetheredProcess:
    """A running child and its watchdog. Not safe for concurrent use by two threads."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        folder: Path,
        environment: Mapping[str, str],
        output: IO[bytes],
        nice: bool = False,
    ) -> None:
        # A kill -9 of this process between these two statements leaves an orphan. The next start on
        # the same directory finds it by its command line and ends it.
        self._child = subprocess.Popen(
            [*NICE, *command] if nice else command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        self._watchdog = subprocess.Popen(
            ["/bin/sh", "-c", WATCHDOG, "watchdog", str(self.pid), str(GRACE_S)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        return self._child.pid

    def returncode(self) -> int | None:
        """Return the exit status, or None while the child is running."""
        return self._child.poll()

    def ask_to_end(self) -> None:
        """Send SIGTERM without waiting."""
        self._child.terminate()

    def terminate(self, timeout_s: float) -> int:
        """Send SIGTERM, after ``timeout_s`` SIGKILL, and return the exit status."""
        self.ask_to_end()
        try:
            return self._child.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return self.kill()
        finally:
            self.release()

    def kill(self) -> int:
        """End the child with SIGKILL."""
        self._child.kill()
        try:
            return self._child.wait()
        finally:
            self.release()

    def release(self) -> None:
        """End the watchdog. The child must have ended, as another process may get its pid later."""
        assert self._child.poll() is not None, "the child is still running"
        pipe = self._watchdog.stdin
        assert pipe is not None
        if not pipe.closed:
            with contextlib.suppress(BrokenPipeError):  # The watchdog was killed.
                os.write(pipe.fileno(), b"\n")
            pipe.close()
        self._watchdog.wait()
