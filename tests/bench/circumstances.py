"""Under which circumstances a benchmark ran: what its numbers can't be compared without.

Two interpreters of one version differ by a quarter and more, by how they were built, and a machine
that others share by as much from hour to hour. So a small piece of what our code does most is
timed, too: a call that unpacks two numbers.
"""

from __future__ import annotations

import os
import sys
import timeit
from datetime import UTC, datetime
from pathlib import Path
from struct import Struct

__all__ = ["circumstances", "format_circumstances"]

CPU_INFO = Path("/proc/cpuinfo")
CALLS = 500_000
ROUNDS = 5


def circumstances(name: str) -> dict[str, str]:
    """Return machine, load, date, interpreter and command of the benchmark ``name``."""
    return {
        "machine": _machine(),
        "load before": f"{os.getloadavg()[0]:.1f}",
        "date": datetime.now(UTC).date().isoformat(),
        "python": sys.version.split()[0],
        "a call that unpacks": f"{_call_ns():.0f} ns",
        "command": " ".join([f"python -m tests.bench.{name}", *sys.argv[1:]]),
    }


def format_circumstances(about: dict[str, str]) -> str:
    """Return circumstances as lines, for the head of a table."""
    return "".join(f"{name}: {value}\n" for name, value in about.items())


def _machine() -> str:
    """Return processor, number of cores, and memory in one line."""
    model = next(
        (
            line.split(":", 1)[1].strip()
            for line in CPU_INFO.read_text().splitlines()
            if line.startswith("model name")
        ),
        os.uname().machine,
    )
    gib = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    return f"{model}, {os.cpu_count()} cores, {gib:.0f} GiB"


def _call_ns() -> float:
    unpack_from, kept = Struct("<iq").unpack_from, bytes(32)

    def call(at: int) -> int:
        head, tail = unpack_from(kept, at)
        return int(head) + int(tail) + at

    return min(timeit.repeat(lambda: call(12), number=CALLS, repeat=ROUNDS)) / CALLS * 1e9
