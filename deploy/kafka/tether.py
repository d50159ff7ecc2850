"""A child process that does not outlive this one, however this one ends.

Linux has PDEATHSIG, but it fires when the *thread* that started the child ends, needs code
between fork and exec, and exists nowhere else. Instead a second small child, the watchdog (a
POSIX shell, 1 MB), reads from a pipe whose only writer is this process. The end of file tells
it that this process is gone, after kill -9 as well; then it ends the tethered child. A line on
the pipe releases it.

Both children lead sessions of their own, so that Ctrl-C in the terminal reaches neither:
the order in which things stop is ours.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

__all__ = ["TetheredProcess"]

# $1 is the child's pid, $2 the seconds it has to end by itself. ``kill -0`` asks whether it lives.
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
    """A running child and its watchdog. Not safe for use by two threads at once."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        folder: Path,
        environment: Mapping[str, str],
        output: IO[bytes],
        nice: bool = False,
    ) -> None:
        # Between these two lines a kill -9 of this process leaves an orphan: the next start on
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
        """Return the exit status, or None while the child lives."""
        return self._child.poll()

    def ask_to_end(self) -> None:
        """Send SIGTERM and do not wait."""
        self._child.terminate()

    def terminate(self, timeout_s: float) -> int:
        """Ask the child to end, insist after ``timeout_s``, and return its exit status."""
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
        """Let the watchdog go. The child must have ended, or its pid could be another's by now."""
        assert self._child.poll() is not None, "the child is still running"
        pipe = self._watchdog.stdin
        assert pipe is not None
        if not pipe.closed:
            with contextlib.suppress(BrokenPipeError):  # The watchdog was killed.
                os.write(pipe.fileno(), b"\n")
            pipe.close()
        self._watchdog.wait()
