"""Finds a broker that outlived its parent process, by its command line, and ends it.

The watchdog of ``tether`` makes such orphans rare. This handles the case that the watchdog was
killed too. No pid file is trusted, because its pid may belong to another program by now. The path
of ``server.properties`` in a command line identifies the broker of a data directory reliably.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from rowtide.deploy.kafka.errors import BrokerFailed

__all__ = ["end_orphan", "find_broker"]

PROC = Path("/proc")
POLL_S = 0.02


def find_broker(properties: Path) -> int | None:
    """Return the pid of the Java that runs on ``properties``, or None."""
    for pid, arguments in _processes():
        if arguments.rstrip().endswith(f"kafka.Kafka {properties}"):
            return pid
    return None


def end_orphan(properties: Path, *, grace_s: float = 20.0) -> int | None:
    """End a broker that still runs on ``properties``; return its pid."""
    pid = find_broker(properties)
    if pid is None:
        return None
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        if _has_ended(properties, pid, grace_s):
            return pid
    raise BrokerFailed(f"an earlier broker (pid {pid}) cannot be ended: end it by hand")


def _has_ended(properties: Path, pid: int, timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while find_broker(properties) == pid:
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True


def _processes() -> Iterator[tuple[int, str]]:
    """Yield pid and command line of every visible process."""
    if PROC.joinpath("self", "cmdline").exists():
        yield from _linux_processes()
    else:
        yield from _posix_processes()


def _linux_processes() -> Iterator[tuple[int, str]]:
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):  # It ended meanwhile.
                arguments = (entry / "cmdline").read_bytes()
                yield int(entry.name), os.fsdecode(arguments.replace(b"\0", b" "))


def _posix_processes() -> Iterator[tuple[int, str]]:
    """Read the processes from ``ps`` (macOS has no /proc)."""
    listing = subprocess.run(
        ["ps", "-axww", "-o", "pid=,command="], capture_output=True, text=True, check=True
    )
    for line in listing.stdout.splitlines():
        pid, _, arguments = line.strip().partition(" ")
        yield int(pid), arguments
