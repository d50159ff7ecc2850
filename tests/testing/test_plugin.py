"""The pytest plugin, in a pytest of its own: what it starts, what it leaves, what it costs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rowtide.testing.instance import InstanceAccess
from rowtide.testing.server import Server
from tests.support.interrupts import heed_ctrl_c
from tests.testing.tables import create_with_index

pytestmark = pytest.mark.system

END_S_MAX, POLL_S = 60.0, 0.01
PYTEST = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:asyncio")

NOTED = """
import json, os, signal

def note(server):
    name = f"server-{os.environ.get('PYTEST_XDIST_WORKER', 'alone')}.json"
    with open(name + ".new", "w") as file:
        json.dump([server.endpoint, str(server.log_file.parent)], file)
    os.replace(name + ".new", name)
"""


def session(folder: Path, tests: str, *options: str, **environment: str) -> subprocess.Popen[str]:
    """Start a pytest in ``folder`` that runs ``tests``, whatever runs this one."""
    outside = {name: text for name, text in os.environ.items() if "PYTEST" not in name}
    (folder / "test_application.py").write_text(NOTED + tests)
    return subprocess.Popen(
        [*PYTEST, f"--basetemp={folder / 'temporary'}", *options, "test_application.py"],
        cwd=folder,
        env={**outside, **environment},
        preexec_fn=heed_ctrl_c,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def server_of(folder: Path, worker: str = "alone") -> tuple[str, Path]:
    """Return (endpoint, folder) of the server that a session had."""
    endpoint, files = json.loads((folder / f"server-{worker}.json").read_text())
    return endpoint, Path(files)


def require_gone(files: Path) -> None:
    """Wait until the server has said its last word and its directory is gone."""
    until_s = time.monotonic() + END_S_MAX
    while list(files.glob("rowtide-dev-*")):
        assert time.monotonic() < until_s, list(files.iterdir())
        time.sleep(POLL_S)
    assert (files / "server.log").read_text().endswith("Stopped.\n")


def test_it_imports_nothing_until_a_fixture_is_used() -> None:
    program = (
        "import sys, pytest; before = set(sys.modules); import rowtide.testing; "
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.split() == ["rowtide", "rowtide.testing"]


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [("assert True", 0, "1 passed"), ("assert False", 1, "1 failed")],
)
def test_the_server_ends_with_the_session(tmp_path: Path, body: str, code: int, words: str) -> None:
    test = f"def test_it(rowtide_server):\n    note(rowtide_server)\n    {body}\n"
    running = session(tmp_path, test)
    printed, _ = running.communicate(timeout=END_S_MAX)
    assert (running.returncode, words in printed) == (code, True), printed
    require_gone(server_of(tmp_path)[1])


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_the_server_ends_with_a_session_that_is_interrupted(
    tmp_path: Path, how: signal.Signals
) -> None:
    running = session(
        tmp_path,
        "def test_it(rowtide_server):\n    note(rowtide_server)\n"
        f"    os.kill(os.getpid(), {how:d})\n    signal.pause()\n",
    )
    running.communicate(timeout=END_S_MAX)
    assert running.returncode in (2, -how)
    require_gone(server_of(tmp_path)[1])


def test_each_process_of_xdist_has_a_server(tmp_path: Path) -> None:
    test = (
        "import pytest\n"
        "@pytest.mark.parametrize('number', range(4))\n"
        "def test_it(rowtide_server, rowtide_instance, number):\n"
        "    note(rowtide_server)\n"
        "    assert rowtide_instance.endpoint == rowtide_server.endpoint\n"
    )
    running = session(tmp_path, test, "-n", "2")
    printed, _ = running.communicate(timeout=END_S_MAX)
    assert "4 passed" in printed
    servers = [server_of(tmp_path, worker) for worker in ("gw0", "gw1")]
    assert len({endpoint for endpoint, _ in servers}) == 2
    for _, files in servers:
        require_gone(files)


def test_what_the_server_printed_is_shown_where_it_does_not_start(tmp_path: Path) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/rocksdict.py").write_text("raise RuntimeError('no database here')\n")
    test = "def test_it(rowtide_server):\n    pass\n"
    running = session(tmp_path, test, PYTHONPATH=str(tmp_path / "broken"))
    printed, _ = running.communicate(timeout=END_S_MAX)
    assert running.returncode == 1
    assert "rowtide dev ended with exit code" in printed
    assert "no database here" in printed


def test_settings_of_the_environment_are_not_the_servers(tmp_path: Path) -> None:
    test = "def test_it(rowtide_server):\n    assert rowtide_server.instance == 'demo'\n"
    running = session(tmp_path, test, ROWTIDE_KAFKA="production:9092", ROWTIDE_INSTANCE="prod")
    printed, _ = running.communicate(timeout=END_S_MAX)
    assert running.returncode == 0, printed


def test_a_clock_that_a_test_asks_for_late_says_what_to_do(tmp_path: Path) -> None:
    test = "def test_it(rowtide_instance, request):\n    request.getfixturevalue('rowtide_clock')\n"
    printed, _ = session(tmp_path, test).communicate(timeout=END_S_MAX)
    assert "1 failed" in printed
    assert "Name rowtide_clock among the arguments of the test" in printed


def test_each_instance_is_fresh_and_goes_with_its_tables(rowtide_server: Server) -> None:
    names = set()
    # More than a server may have at once.
    for _ in range(12):
        with rowtide_server.new_instance() as instance:
            client = instance.client()
            assert list(client.list_table()) == []
            create_with_index(client)
            names.add(instance.name)
    assert len(names) == 12
    with rowtide_server.client() as client:
        left = client.call_json("RowtideListInstances", {})["instances"]
    assert [found["name"] for found in left] == [rowtide_server.instance]


def test_an_instance_shows_no_secret(rowtide_instance: InstanceAccess) -> None:
    assert rowtide_instance.access_key_secret not in repr(rowtide_instance)
