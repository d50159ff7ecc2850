"""A whole rowtide as a child process, for the demo, the benchmarks and system tests.

``rowtide up`` writes its ready file when it serves, and stops cleanly at SIGTERM. Nothing here
depends on more than that. A child is ended by its process id, never by name.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple, Protocol, Self

__all__ = ["Child", "Launch", "NotReady", "Ready", "Up", "launch_program"]

RUN = "from rowtide.cli.main import main; main()"
"""Needs no script beside the interpreter; some installations have none."""

POLL_S = 0.01
STOP_S_MAX = 60.0
"""A drain flushes and stops the broker, which takes seconds. After this the child is killed."""


class Ready(NamedTuple):
    """The content of the ready file: what a client needs."""

    endpoint: str
    instance: str
    access_key_id: str
    access_key_secret: str


class NotReady(Exception):
    """The child ended, or did not serve in time."""


class Child(Protocol):
    """A process that was started; ``subprocess.Popen`` is one."""

    @property
    def pid(self) -> int: ...

    @property
    def returncode(self) -> int | None: ...

    def poll(self) -> int | None:
        """Return the exit code, or None while it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code. Raise ``subprocess.TimeoutExpired`` if it runs for longer."""

    def send_signal(self, number: int, /) -> None:
        """Send a signal, unless it has ended."""

    def kill(self) -> None:
        """Send SIGKILL, unless it has ended."""


Launch = Callable[[Sequence[str], Mapping[str, str] | None, IO[bytes] | None], Child]
"""Starts ``rowtide`` with arguments, an environment and a file for its output."""


def launch_program(
    words: Sequence[str], environment: Mapping[str, str] | None, output: IO[bytes] | None
) -> subprocess.Popen[bytes]:
    """Start ``rowtide`` as a program."""
    return subprocess.Popen(
        [sys.executable, "-P", "-c", RUN, *words],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        start_new_session=True,
    )


class Up:
    """``rowtide up``, or ``worker``, on one data directory; it can be started repeatedly.

    ``output`` gets what the child prints; None leaves it on the terminal. The child has its own
    process group, so that Ctrl-C reaches it only through its parent, once. ``environment`` is this
    process's unless given. With ``ephemeral``, for ``dev`` only, the child creates and removes its
    data directory; ``data_dir`` then only names its ready file. ``launch`` starts the child.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        options: Sequence[str] = (),
        output: IO[bytes] | None = None,
        command: str = "up",
        environment: Mapping[str, str] | None = None,
        ephemeral: bool = False,
        launch: Launch = launch_program,
    ) -> None:
        self._directory = ["--ephemeral"] if ephemeral else ["--data-dir", str(data_dir)]
        self._command = command
        self._environment = environment
        self.options = options
        self._output = output
        self._ready_file = data_dir.with_name(data_dir.name + ".ready.json")
        self._launch = launch
        self._child: Child | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """Process id of the running child."""
        assert self._child is not None, "not started"
        return self._child.pid

    def start(self, *, timeout_s: float = 180.0) -> Ready:
        """Start the child and wait until it serves. The very first start downloads Kafka."""
        assert self._child is None, "already started"
        self._ready_file.parent.mkdir(parents=True, exist_ok=True)
        self._ready_file.unlink(missing_ok=True)
        words = [self._command, *self._directory, "--ready-file", str(self._ready_file)]
        self._child = self._launch([*words, *self.options], self._environment, self._output)
        try:
            return self._wait(time.monotonic() + timeout_s)
        except BaseException:
            self.stop()
            raise

    def _wait(self, deadline: float) -> Ready:
        assert self._child is not None
        while time.monotonic() < deadline:
            if self._child.poll() is not None:
                raise NotReady(
                    f"rowtide {self._command} ended with exit code {self._child.returncode}"
                )
            if ready := self._read_ready():
                return ready
            time.sleep(POLL_S)
        raise NotReady(f"rowtide {self._command} was not ready in time")

    def _read_ready(self) -> Ready | None:
        try:
            found = json.loads(self._ready_file.read_text(encoding="utf-8"))
        except (FileNotFoundError, json.JSONDecodeError):
            return None
        return Ready(*(found[name] for name in Ready._fields))

    def wait(self) -> None:
        """Wait until the child ends."""
        assert self._child is not None, "not started"
        self._child.wait()

    def stop(self) -> None:
        """Let the child drain and stop; it can be started again."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the child, as a power cut would."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        child.send_signal(how)
        try:
            child.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
