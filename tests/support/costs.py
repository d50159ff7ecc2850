"""Measures the CPU time of each file of tests, with the processes that its tests start.

    ROWTIDE_TEST_COSTS=costs.txt pytest -p tests.support.costs tests/workers/test_move.py
    python -m tests.support.costs costs.txt

A line of the file is a test: CPU seconds, wall seconds, its id. Processes of pytest-xdist add to
one file. What a shared fixture costs counts for the first test that uses it. What a server does
between two tests counts for the second. CPU time is that of this process, of processes that it
waited for, and of all that descend from it and run.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path

import pytest

__all__ = ["measure_cpu_s", "summarise"]

TICKS = os.sysconf("SC_CLK_TCK")
COSTS = os.environ.get("ROWTIDE_TEST_COSTS", "")


def measure_cpu_s() -> float:
    """Return the CPU seconds of this process and of all that it started. Needs Linux."""
    total = 0.0
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        used = resource.getrusage(who)
        total += used.ru_utime + used.ru_stime
    return total + _running_ticks() / TICKS


def _running_ticks() -> int:
    """Return the ticks of all processes that descend from this one and were not waited for."""
    parents: dict[int, list[int]] = defaultdict(list)
    ticks: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            text = (folder / "stat").read_text()
        except OSError:
            continue  # It ended.
        fields = text[text.rindex(")") + 2 :].split()
        pid = int(folder.name)
        parents[int(fields[1])].append(pid)
        ticks[pid] = sum(map(int, fields[11:15]))
    found, total = [*parents[os.getpid()]], 0
    while found:
        pid = found.pop()
        total += ticks[pid]
        found += parents[pid]
    return total


_last = [0.0, 0.0]


def pytest_sessionstart() -> None:
    _note("collection")


def _note(name: str) -> None:
    cpu_s, wall_s = measure_cpu_s(), time.monotonic()
    if COSTS and _last[1]:
        with open(COSTS, "a", encoding="utf-8") as noted:
            noted.write(f"{cpu_s - _last[0]:.2f} {wall_s - _last[1]:.2f} {name}\n")
    _last[:] = cpu_s, wall_s


def pytest_collection_finish() -> None:
    _note("collection")


def pytest_runtestloop() -> None:
    _note("start of tests")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    _note("between tests")
    try:
        return (yield)
    finally:
        _note(item.nodeid)


def pytest_sessionfinish() -> None:
    _note("end")


def summarise(lines: list[str]) -> list[str]:
    """Return a line for each file: CPU and wall seconds, the dearest first."""
    found: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for line in lines:
        cpu, wall, name = line.split(" ", 2)
        row = found[name.strip().partition("::")[0]]
        row[0] += float(cpu)
        row[1] += float(wall)
    rows = sorted(found.items(), key=lambda item: -item[1][0])
    total = sum(row[0] for row in found.values())
    return [
        f"{total:8.1f} CPU s in all",
        *(f"{cpu:8.1f} CPU s {wall:8.1f} s  {name}" for name, (cpu, wall) in rows),
    ]


if __name__ == "__main__":
    print("\n".join(summarise(Path(sys.argv[1]).read_text().splitlines())))  # noqa: T201
