"""Processes of rowtide that start as copies of a process that has loaded their modules.

To load them takes half a CPU second, and more than one with Kafka's client; a copy takes some
hundredths. A copy is a process like any other: it has its id, its environment and its output, and
tests signal and kill it. Only Linux copies processes safely; elsewhere programs are started.
Tests whose subject is the start of a program start it themselves.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Literal, Self

from rowtide.deploy.up import RUN, Child

__all__ = ["Kind", "end_copiers", "launch", "start"]

COPIER = Path(__file__).with_name("copying_process.py")
END_S_MAX = 30.0
STATUS_BYTES_MAX = 32

SERVER = (
    *("rowtide.cli.up", "rowtide.stream.worker.local_backing", "rowtide.stream.worker.worker"),
    "uvloop",
)
Kind = Literal["server", "server on Kafka", "connectors", "console"]
MODULES: dict[Kind, tuple[str, ...]] = {
    "server": SERVER,
    "server on Kafka": (
        *SERVER,
        *("rowtide.cli.kafka_start", "rowtide.stream.worker.kafka_backing"),
    ),
    "connectors": ("rowtide.cli.connector_run", "uvloop"),
    "console": ("rowtide.cli.console", "rowtide.console.process.serve", "uvloop"),
}
"""What each kind of process loads in any case."""

FIXED = ("PYTHON", "LD_", "MALLOC_", "TZ")
"""Variables that a process reads before it runs a command: a copy has them from its original."""


class Copier:
    """The process of a kind that is copied."""

    def __init__(self, kind: Kind) -> None:
        self._requests, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with other:
            self._process = subprocess.Popen(
                [sys.executable, "-P", str(COPIER), *MODULES[kind]],
                stdin=other.fileno(),
                start_new_session=True,
            )

    def copy(self, request: Mapping[str, object], output: int, error: int) -> Copy:
        """Return a copy that does what is requested."""
        answers, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with other, open(os.devnull, "rb") as nothing:
            files = [nothing.fileno(), output, error, other.fileno()]
            socket.send_fds(self._requests, [json.dumps(request).encode()], files)
        return Copy(answers)

    def close(self) -> None:
        """End it and all copies."""
        self._requests.close()
        self._process.wait(END_S_MAX)


class Copy:
    """One copy, with what tests use of ``subprocess.Popen``."""

    def __init__(self, answers: socket.socket) -> None:
        self._answers = answers
        self.pid = self._receive()
        self.returncode: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.wait()

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal, or None while it runs."""
        return self._read_status(0)

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code. Raise ``TimeoutExpired`` if there is none in that many seconds."""
        code = self._read_status(timeout)
        if code is None:
            raise subprocess.TimeoutExpired([f"process {self.pid}"], timeout or 0.0)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Let it end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it as a power cut would."""
        self.send_signal(signal.SIGKILL)

    def _read_status(self, timeout_s: float | None) -> int | None:
        if self.returncode is None:
            poll = select.poll()
            poll.register(self._answers, select.POLLIN)
            if poll.poll(None if timeout_s is None else timeout_s * 1000):
                self.returncode = self._receive()
                self._answers.close()
        return self.returncode

    def _receive(self) -> int:
        text = self._answers.recv(STATUS_BYTES_MAX)
        assert text, "the process that is copied has ended: its error is above"
        return int(text)


_copiers: dict[Kind, Copier] = {}
"""By kind, started when the first copy is needed."""
_making = threading.Lock()
"""Tests start servers from threads, too. A second copier of a kind would end with its copies."""


def end_copiers() -> None:
    """End all copies, and what they were made of."""
    while _copiers:
        _copiers.popitem()[1].close()


def launch(
    words: Sequence[str], environment: Mapping[str, str] | None, output: IO[bytes] | None
) -> Child:
    """Start ``rowtide`` for ``Up``."""
    kind: Kind = "server" if "local" in words or words[0] == "dev" else "server on Kafka"
    return start(kind, words, environment=environment, output=output, error=output)


def start(
    kind: Kind,
    words: Sequence[str],
    *,
    program: str = "",
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
    output: IO[bytes] | None = None,
    error: IO[bytes] | None = None,
) -> Child:
    """Start ``rowtide``, or a Python program, with arguments, in a session of its own."""
    variables = dict(os.environ if environment is None else environment)
    if sys.platform != "linux" or _fixed_of(variables) != _fixed_of(os.environ):
        run = ["-P", "-c", RUN] if not program else [program]
        return subprocess.Popen(
            [sys.executable, *run, *words],
            cwd=folder,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=error,
            start_new_session=True,
        )
    with _making:
        if kind not in _copiers:
            _copiers[kind] = Copier(kind)
    request = {
        "arguments": [program, *words],
        "environment": variables,
        "folder": str(folder or Path.cwd()),
    }
    return _copiers[kind].copy(
        request,
        1 if output is None else output.fileno(),
        2 if error is None else error.fileno(),
    )


def _fixed_of(variables: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in variables.items() if name.startswith(FIXED)}
