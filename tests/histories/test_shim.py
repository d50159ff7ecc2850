"""What a process sees under the shim: without this, clocks that never jump would break nothing.

Of a JVM only the time of day is looked at: no program of its runtime flushes a file when asked.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from rowtide.deploy.kafka.java import find_java
from tests.histories import shim
from tests.histories.faults import HOUR_S
from tests.histories.shim import Shim

pytestmark = pytest.mark.skipif(bool(shim.missing()), reason=f"needs {shim.missing()}")

FLUSH_S = 0.5
ROUNDED_S = 0.001

LOOK = """
import os, sys, time
for word in sys.stdin:
    began = time.monotonic()
    with open("flushed", "wb") as file:
        getattr(os, word.strip())(file.fileno())
    flushed = time.monotonic()
    print(time.time(), flushed, flushed - began, flush=True)
"""


class Seen(NamedTuple):
    """The time of day and the monotonic clock of a process, and how long a flush took it."""

    day_s: float
    monotonic_s: float
    flush_s: float


class Process:
    """A Python process under a shim."""

    def __init__(self, under: Shim, folder: Path) -> None:
        self.child = subprocess.Popen(
            [sys.executable, "-c", LOOK],
            env={**os.environ, **under.environment},
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def look(self, flush: str = "fsync") -> Seen:
        """Return what it sees now."""
        assert self.child.stdin is not None
        assert self.child.stdout is not None
        self.child.stdin.write(f"{flush}\n")
        self.child.stdin.flush()
        return Seen(*map(float, self.child.stdout.readline().split()))


@pytest.fixture
def idle_shim(tmp_path: Path) -> Shim:
    """A shim that does nothing yet."""
    return Shim(tmp_path / "shim")


@pytest.fixture
def process(idle_shim: Shim, tmp_path: Path) -> Iterator[Process]:
    """A process that runs under it."""
    found = Process(idle_shim, tmp_path)
    with found.child:
        yield found


def test_the_time_of_day_jumps_and_the_monotonic_clock_does_not(
    idle_shim: Shim, process: Process
) -> None:
    for skew_s in (0.0, HOUR_S, -HOUR_S, 0.0):
        idle_shim.set_clock(skew_s)
        before_s, monotonic_before_s = time.time(), time.monotonic()
        seen = process.look()
        after_s, monotonic_after_s = time.time(), time.monotonic()
        assert before_s - ROUNDED_S <= seen.day_s - skew_s <= after_s + ROUNDED_S
        assert monotonic_before_s <= seen.monotonic_s <= monotonic_after_s


@pytest.mark.parametrize("flush", ["fsync", "fdatasync"])
def test_a_flush_takes_longer(idle_shim: Shim, process: Process, flush: str) -> None:
    idle_shim.slow_disk(FLUSH_S)
    assert process.look(flush).flush_s >= FLUSH_S


def test_the_time_of_day_of_a_jvm_is_another_too(idle_shim: Shim, tmp_path: Path) -> None:
    idle_shim.set_clock(HOUR_S)
    java = idle_shim.java(find_java(None).path, tmp_path)
    before_s = time.time()
    result = subprocess.run(
        [java, "-Xlog:gc+init:stdout:timemillis", "-version"],
        capture_output=True,
        check=True,
        text=True,
    )
    # A line begins with the time at which it was logged: [1764000000000ms] ...
    seen_s = int(result.stdout.partition("ms]")[0].removeprefix("[")) / 1000
    assert before_s - ROUNDED_S <= seen_s - HOUR_S <= time.time() + ROUNDED_S
