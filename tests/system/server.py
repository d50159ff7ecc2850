"""A server as a child process that a test starts, stops, kills and looks at.

The server is one process, the worker, which runs the broker as its child. ``kill`` ends the worker
as a power cut would, ``kill_broker`` the broker alone. Whatever happens in a test, ``stop_all``
leaves no process: it ends those it knows by their ids.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from rowtide.cli.client import NoAnswer, ProtocolClient, ServerError
from rowtide.deploy.kafka.orphan import find_broker
from rowtide.deploy.up import Child, NotReady, Ready
from tests.support.copies import start
from tests.support.waiting import until

__all__ = ["Server", "wait_until"]

POLL_S = 0.01
START_S_MAX = 90.0
STOP_S_MAX = 60.0
RUNNER = Path(__file__).with_name("worker_process.py")


class Server:
    """A server on one data directory. ``command`` starts it but for its directory and ready file;
    without one it is the runner beside this module, which takes ``options``. ``environment`` adds
    variables to our own."""

    def __init__(
        self,
        data_dir: Path,
        cache_dir: Path,
        *,
        options: tuple[str, ...] = (),
        command: tuple[str, ...] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.data_dir = data_dir
        self.options = options
        self.log = data_dir.with_name(data_dir.name + ".log")
        self.ready_file = data_dir.with_name(data_dir.name + ".ready.json")
        self._command = command
        self._cache_dir = cache_dir
        self._environment = {**os.environ, "ROWTIDE_CACHE_DIR": str(cache_dir)}
        self._environment |= environment or {}
        self._child: Child | None = None

    @property
    def pid(self) -> int:
        """Process id of the worker."""
        assert self._child is not None, "not started"
        return self._child.pid

    @property
    def ended(self) -> bool:
        """Whether the worker has ended, by itself or otherwise."""
        return self._child is None or self._child.poll() is not None

    @property
    def broker_pid(self) -> int | None:
        """Process id of the broker that runs on this directory, started by whomever."""
        return find_broker(self.data_dir.resolve() / "kafka" / "server.properties")

    def start(self) -> float:
        """Start and wait until it serves; return how many seconds that took."""
        began = time.monotonic()
        self.launch()
        while not self.ready_file.exists():
            if self._child is None or self._child.poll() is not None:
                raise NotReady(f"the server ended: {self.last_words()}")
            if time.monotonic() > began + START_S_MAX:
                raise NotReady(f"not ready in {START_S_MAX:.0f} s: {self.last_words()}")
            time.sleep(POLL_S)
        return time.monotonic() - began

    def launch(self) -> None:
        """Start and do not wait."""
        assert self._child is None, "already started"
        self.ready_file.unlink(missing_ok=True)
        places = ("--data-dir", str(self.data_dir), "--ready-file", str(self.ready_file))
        with self.log.open("ab") as output:
            if self._command:
                self._child = subprocess.Popen(
                    [*self._command, *places, *self.options],
                    env=self._environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                )
            else:
                self._child = start(
                    "server on Kafka",
                    ["--cache-dir", str(self._cache_dir), *places, *self.options],
                    program=str(RUNNER),
                    environment=self._environment,
                    output=output,
                    error=output,
                )

    def ready(self) -> Ready:
        """Return what the ready file says."""
        found = json.loads(self.ready_file.read_text())
        return Ready(*(found[name] for name in Ready._fields))

    def client(self, *, timeout_s: float = 30.0) -> ProtocolClient:
        """Return a new client of the server as it is now."""
        return ProtocolClient(**self.ready()._asdict(), timeout_s=timeout_s)

    def stop(self) -> int:
        """Let the server drain and end; return its exit code."""
        return self._end(signal.SIGTERM)

    def interrupt(self) -> None:
        """Press Ctrl-C and do not wait."""
        os.kill(self.pid, signal.SIGINT)

    def wait(self) -> int:
        """Wait until the server has ended by itself; return its exit code."""
        assert self._child is not None, "not started"
        code = self._child.wait(STOP_S_MAX)
        self._child = None
        return code

    def kill(self) -> None:
        """End the worker as a power cut would."""
        self._end(signal.SIGKILL)

    def kill_broker(self) -> None:
        """End the broker as a power cut would."""
        pid = self.broker_pid
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def stop_all(self) -> None:
        """Leave nothing running."""
        self.kill()
        self.kill_broker()

    def last_words(self, count: int = 30) -> str:
        """Return the end of what the server printed."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-count:])

    def _end(self, how: signal.Signals) -> int:
        child, self._child = self._child, None
        if child is None:
            return 0
        child.send_signal(how)
        try:
            return child.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
            raise


def wait_until(true: Callable[[], bool], *, what: str, timeout_s: float = 60.0) -> float:
    """Return how many seconds it took until ``true``; an unreachable server is not yet."""
    not_yet = (NoAnswer, ServerError, FileNotFoundError)
    return until(true, what, s_max=timeout_s, poll_s=POLL_S, not_yet=not_yet)
