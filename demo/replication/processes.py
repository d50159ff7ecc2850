"""Processes that are restarted whenever they end, as by a service manager.

The demo kills each of them with kill -9; this module restarts them.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from rowtide.deploy.kafka.tether import TetheredProcess

__all__ = ["Kept", "command"]

POLL_S = 0.1
RESTART_S = 0.5
STOP_S_MAX = 30.0


def command(*arguments: str) -> list[str]:
    """Return a command line of rowtide in this Python environment."""
    return [str(Path(sys.executable).with_name("rowtide")), *arguments]


class Kept:
    """A process that is kept running until ``stop``. ``kill`` is kill -9; it is restarted."""

    def __init__(
        self, name: str, start: Callable[[], TetheredProcess], *, restart_s: float = RESTART_S
    ) -> None:
        self.name = name
        self.starts = 0
        self._start = start
        self._restart_s = restart_s
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._child = self._start_child()
        self._thread = threading.Thread(target=self._keep, name=name, daemon=True)
        self._thread.start()

    @property
    def is_running(self) -> bool:
        """True if it runs now."""
        with self._lock:
            return self._child.returncode() is None

    def kill(self) -> None:
        """Kill the process, as a power cut would."""
        with self._lock:
            self._child.kill()

    def stop(self) -> None:
        """Shut the process down for good."""
        self._ended.set()
        self._thread.join()
        with self._lock:
            self._child.terminate(STOP_S_MAX)

    def _keep(self) -> None:
        while not self._ended.wait(POLL_S):
            with self._lock:
                gone = self._child.returncode() is not None
                if gone:
                    self._child.kill()  # It has ended: this ends its watchdog.
            if gone:
                time.sleep(self._restart_s)
                with self._lock:
                    self._child = self._start_child()

    def _start_child(self) -> TetheredProcess:
        self.starts += 1
        return self._start()


def start_tethered(
    arguments: list[str], folder: Path, log: Path, environment: Mapping[str, str]
) -> TetheredProcess:
    """Start a process whose output is appended to a file."""
    with log.open("ab") as output:
        return TetheredProcess(arguments, folder=folder, environment=environment, output=output)
