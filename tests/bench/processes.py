"""What a server's processes cost, as Linux counts: CPU seconds and resident memory.

A server is the child that was started and everything below it. Java is the broker, the console is
known by its command line, and the rest is the worker. CPU time is that of each process's own
clock, to the nanosecond.
"""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

__all__ = ["Cpu", "Memory", "brokers", "cpu_alone_s", "cpu_of", "cpu_s", "memory", "processes_of"]

PROC = Path("/proc")
BROKER, CONSOLE, WORKER = "java", "console", "worker"


class Memory(NamedTuple):
    """Resident set sizes in MiB. A console is a copy of the process that loaded its modules: what
    the two share counts once.
    """

    worker_mib: float
    broker_mib: float
    console_mib: float


class Cpu(NamedTuple):
    """CPU seconds, user and system."""

    worker_s: float
    broker_s: float


class _Process(NamedTuple):
    pid: int
    name: str
    parent: int

    @property
    def cpu_s(self) -> float:
        """CPU seconds, user and system, of all its threads so far; 0 where it has ended."""
        with suppress(OSError):
            # The number of a process's CPU clock, as clock_getcpuclockid makes it on Linux.
            return time.clock_gettime(~self.pid << 3 | 2)
        return 0.0

    @property
    def role(self) -> str:
        """The part of a server that the process is."""
        if self.name == BROKER:
            return BROKER
        with suppress(OSError):
            if CONSOLE.encode() in (PROC / str(self.pid) / "cmdline").read_bytes().split(b"\0"):
                return CONSOLE
        return WORKER


def _processes() -> list[_Process]:
    found = []
    for folder in PROC.glob("[0-9]*"):
        try:
            text = (folder / "stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue  # It ended meanwhile.
        # The name stands in parentheses and may hold anything, parentheses too.
        name, rest = text[text.index("(") + 1 : text.rindex(")")], text[text.rindex(")") + 2 :]
        found.append(_Process(int(folder.name), name, int(rest.split()[1])))
    return found


def processes_of(root: int) -> list[_Process]:
    """Return the process ``root`` and all below it."""
    processes = _processes()
    pids = {root}
    while more := {p.pid for p in processes if p.parent in pids} - pids:
        pids |= more
    return [process for process in processes if process.pid in pids]


def cpu_s(root: int) -> float:
    """Return the CPU seconds, user and system, that a server has used so far."""
    return sum(process.cpu_s for process in processes_of(root))


def cpu_alone_s(pid: int) -> float:
    """Return the CPU seconds that one process has used so far, without those below it."""
    return _Process(pid, "", 0).cpu_s


def cpu_of(root: int) -> Cpu:
    """Return what a server's worker and broker have used so far."""
    seconds = dict.fromkeys((WORKER, BROKER, CONSOLE), 0.0)
    for process in processes_of(root):
        seconds[process.role] += process.cpu_s
    return Cpu(seconds[WORKER], seconds[BROKER])


def brokers(root: int) -> int:
    """Return how many Java processes a server has; the first start ever trains a second one."""
    return sum(process.name == BROKER for process in processes_of(root))


def memory(root: int) -> Memory:
    """Return the resident memory of the parts of a server."""
    sizes = dict.fromkeys((WORKER, BROKER, CONSOLE), 0.0)
    for process in processes_of(root):
        sizes[process.role] += _size_mib(process.pid, "Pss" if process.role == CONSOLE else "Rss")
    return Memory(sizes[WORKER], sizes[BROKER], sizes[CONSOLE])


def _size_mib(pid: int, name: str) -> float:
    """Return a sum of the kernel over all memory of a process: Rss, or Pss, its share of it."""
    lines = (PROC / str(pid) / "smaps_rollup").read_text().splitlines()
    (size_kib,) = (int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))
    return size_kib / 1024
