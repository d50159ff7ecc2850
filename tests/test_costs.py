"""The cost of a test has the processes that it started, whether they run or have ended."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.costs import measure_cpu_s, summarise

BURN = "import time\nwhile time.process_time() < 0.3: pass\nprint(flush=True)\ninput()"

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")


def test_a_process_counts_while_it_runs_and_once_it_has_ended() -> None:
    before_s = measure_cpu_s()
    with subprocess.Popen(
        [sys.executable, "-c", BURN], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        running_s = measure_cpu_s() - before_s
        child.communicate(b"\n")
    ended_s = measure_cpu_s() - before_s
    # The kernel counts the time of a running process in ticks.
    assert 0.3 - 2 / os.sysconf("SC_CLK_TCK") <= running_s <= ended_s + 0.1


def test_files_are_listed_by_their_cost() -> None:
    lines = ["1.00 2.00 a.py::test_one", "4.00 5.00 b.py::test_two", "2.00 1.00 a.py::test_x[a b]"]
    total, first, second = (line.split() for line in summarise(lines))
    assert total[:2] == ["7.0", "CPU"]
    assert (first[0], first[-1]) == ("4.0", "b.py")
    assert (second[0], second[-1]) == ("3.0", "a.py")
