"""``rowtide up --workers N``: several processes as one server, started and stopped together."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from rowtide.cli.client import NoAnswer, ProtocolClient, ServerError
from rowtide.deploy.up import Ready, Up
from tests.api.calls import ask, key, put, puts, read_row, shown
from tests.support.waiting import until
from tests.workers.conftest import DIVIDED_S_MAX, Retrying
from tests.workers.test_forwarding import create

pytestmark = pytest.mark.system


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def status(ready: Ready) -> dict[str, int]:
    """Return a worker's process id and how many slots it has open; no process: 0."""
    try:
        with ProtocolClient(**ready._asdict()) as client:
            answer = client.call_json("RowtideStatus", {})
    except (NoAnswer, ServerError):
        return {"pid": 0, "slots": 0}
    return {"pid": answer["pid"], "slots": sum(slot["open"] for slot in answer["slots"])}


@pytest.mark.parametrize("parent_ends", ["stopped", "killed"])
def test_workers_live_and_end_together(
    cache_dir: Path, tmp_path: Path, parent_ends: str, free_port: int
) -> None:
    options = ["--port", str(free_port), "--workers", "2", "--cache-dir", str(cache_dir)]
    output = (tmp_path / "output").open("wb")
    with output, Up(tmp_path / "data", options=options, output=output) as up:
        first = up.start()
        second = first._replace(endpoint=f"http://127.0.0.1:{free_port + 1}")
        until(lambda: status(first)["slots"] == 2 == status(second)["slots"], s_max=DIVIDED_S_MAX)
        with Retrying(**first._asdict()) as client:
            ask(client, create("t"))
            ask(client, put("t", key("a", 1), puts(n=1)))
        child = status(second)["pid"]
        assert child != status(first)["pid"] == up.pid
        os.kill(child, signal.SIGKILL)
        until(lambda: status(second)["pid"] not in (0, child))
        until(lambda: status(first)["slots"] + status(second)["slots"] == 4)
        with Retrying(**second._asdict()) as client:
            assert shown(read_row(client, "t", key("a", 1))) == {"n": 1}
        child = status(second)["pid"]
        if parent_ends == "stopped":
            up.stop()
            assert not alive(child)
        else:
            up.kill()
            until(lambda: not alive(child))
    printed = (tmp_path / "output").read_text()
    assert f"another worker     http://127.0.0.1:{free_port + 1}" in printed
