"""A tethered child ends when the process that started it is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from demo.servers.server import has_ended
from rowtide.deploy.kafka.tether import TetheredProcess
from tests.support.waiting import until

OWNER = """
import signal, sys
from pathlib import Path
from rowtide.deploy.kafka.tether import TetheredProcess
with open("output", "wb") as output:
    child = TetheredProcess(["sleep", "600"], folder=Path("."), environment={}, output=output)
print(child.pid, flush=True)
signal.pause()
"""


def wait_for_end(pid: int, timeout_s: float = 20.0) -> None:
    until(lambda: has_ended(pid), f"pid {pid} has ended", s_max=timeout_s)


def test_a_child_does_not_outlive_an_owner_that_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OWNER], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        child = int(owner.stdout.readline())
        assert not has_ended(child)
        owner.send_signal(signal.SIGKILL)
        wait_for_end(child)


def test_a_child_ends_in_good_order_and_its_status_is_known(tmp_path: Path) -> None:
    command = ["sh", "-c", "trap 'exit 7' TERM; echo ready; while :; do sleep 0.01; done"]
    with (tmp_path / "output").open("wb") as output:
        child = TetheredProcess(
            command, folder=tmp_path, environment={"PATH": os.defpath}, output=output
        )
    try:
        while not (tmp_path / "output").read_text():
            assert child.returncode() is None
        assert child.terminate(timeout_s=10) == 7
    finally:
        if child.returncode() is None:
            child.kill()
    assert has_ended(child.pid)


def test_a_child_that_will_not_end_is_killed(tmp_path: Path) -> None:
    command = ["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.01; done"]
    with (tmp_path / "output").open("wb") as output:
        child = TetheredProcess(
            command, folder=tmp_path, environment={"PATH": os.defpath}, output=output
        )
    while not (tmp_path / "output").read_text():
        assert child.returncode() is None
    assert child.terminate(timeout_s=0.1) == -signal.SIGKILL
