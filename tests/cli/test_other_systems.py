"""``rowtide dev`` where what only Linux and macOS have is missing, as it is on Windows.

Windows is not at hand. A ``sitecustomize`` hides uvloop, ``fcntl``, ``resource``, poll(), signal
handlers of the event loop, the clocks and calls of POSIX. Locks are then those of ``msvcrt``, which
stands here on the locks of bytes that Linux has.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rowtide.cli.client import ProtocolClient
from rowtide.core.values.schema import STRING, KeyColumn
from rowtide.deploy.up import Ready, Up

pytestmark = pytest.mark.system

HIDDEN = """
import select
for name in ("poll", "epoll"):
    delattr(select, name)
import asyncio, os, subprocess, sys, tempfile, threading, time, types, fcntl

def locking(number, mode, size):
    assert mode == msvcrt.LK_NBLCK
    fcntl_of_linux.lockf(number, fcntl_of_linux.LOCK_EX | fcntl_of_linux.LOCK_NB, size, 0, 1)

fcntl_of_linux = fcntl
msvcrt = types.ModuleType("msvcrt")
msvcrt.LK_NBLCK, msvcrt.locking = 2, locking
sys.modules["msvcrt"] = msvcrt
for name in ("fcntl", "resource", "uvloop", "pwd", "grp"):
    sys.modules[name] = None

def add_signal_handler(*_):
    raise NotImplementedError

asyncio.SelectorEventLoop.add_signal_handler = add_signal_handler
for name in ("pread", "pwrite", "uname", "O_DIRECTORY", "getuid", "geteuid"):
    delattr(os, name)
for name in ("clock_gettime", "CLOCK_MONOTONIC", "CLOCK_BOOTTIME"):
    delattr(time, name)
"""


@pytest.fixture
def elsewhere(tmp_path: Path) -> dict[str, str]:
    """Return the environment of a process that believes to be on another system."""
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "sitecustomize.py").write_text(HIDDEN)
    paths = [str(tmp_path / "hidden"), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def local(folder: Path, environment: dict[str, str]) -> Up:
    return Up(
        folder / "data",
        options=["--port", "0"],
        command="dev",
        environment=environment,
    )


@pytest.fixture
def server(tmp_path: Path, elsewhere: dict[str, str]) -> Iterator[tuple[Up, Ready]]:
    with local(tmp_path, elsewhere) as up:
        yield up, up.start(timeout_s=60)


def test_a_server_starts_writes_and_stops_at_a_signal(
    server: tuple[Up, Ready], tmp_path: Path, elsewhere: dict[str, str]
) -> None:
    up, ready = server
    with ProtocolClient(**ready._asdict()) as client:
        client.create_table("t", [KeyColumn("k", STRING)])
        assert list(client.list_table()) == ["t"]
    os.kill(up.pid, signal.SIGTERM)
    up.wait()
    # The lock went with its process, and what was written is there.
    with local(tmp_path, elsewhere) as again, ProtocolClient(**again.start()._asdict()) as client:
        assert list(client.list_table()) == ["t"]


def test_a_second_server_on_the_directory_is_refused(
    server: tuple[Up, Ready], tmp_path: Path, elsewhere: dict[str, str]
) -> None:
    up, _ = server
    second = subprocess.run(
        [
            *(sys.executable, "-c", "from rowtide.cli.main import main; main()"),
            *("dev", "--port", "0", "--data-dir", str(tmp_path / "data")),
        ],
        env=elsewhere,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert second.returncode == 1, second.stderr
    assert f"is in use by process {up.pid}" in second.stderr


def test_the_event_loop_is_that_of_asyncio(elsewhere: dict[str, str]) -> None:
    program = "from rowtide.cli.event_loop import new_event_loop; print(type(new_event_loop()))"
    finished = subprocess.run(
        [sys.executable, "-c", program], env=elsewhere, capture_output=True, text=True, check=True
    )
    assert "asyncio" in finished.stdout


CLIENT = """
import socket
from rowtide.client.blocking_endpoint import _is_silent
from rowtide.client.changes.clock import lease_clock

assert lease_clock() <= lease_clock()
ours, theirs = socket.socketpair()
assert _is_silent(ours)
theirs.close()
assert not _is_silent(ours)
ours.close()
"""


def test_a_client_needs_neither_poll_nor_the_clocks_of_posix(elsewhere: dict[str, str]) -> None:
    subprocess.run([sys.executable, "-c", CLIENT], env=elsewhere, check=True)
