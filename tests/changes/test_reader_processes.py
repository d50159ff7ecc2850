"""Readers that are processes, killed while they work: what one leaves another goes on with."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from rowtide.cli.client import ProtocolClient
from rowtide.deploy.up import Ready
from tests.changes.readers import Delivered
from tests.changes.test_readers_together import SEED, World, consumer

pytestmark = pytest.mark.system

ROUNDS = 4
DELIVERED_S_MAX = 60.0
ROOT = Path(__file__).resolve().parents[2]


class Processes:
    """Readers of one consumer; all write to one file. What runs at the end is killed."""

    def __init__(self, folder: Path, server: Ready, table: str, closing: ExitStack) -> None:
        self._file = folder / "delivered"
        self._closing = closing
        self._command = [sys.executable, "-m", "tests.changes.reader_process"]
        self._command += ["--server", json.dumps(server._asdict()), "--table", table]
        self._command += ["--consumer", consumer(), "--file", str(self._file)]
        self.running: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        child = self._closing.enter_context(subprocess.Popen(self._command, cwd=ROOT))
        self._closing.callback(child.kill)
        self.running.append(child)

    def kill(self) -> None:
        child = self.running.pop(0)
        child.kill()
        child.wait()

    def stop(self) -> None:
        child = self.running.pop(0)
        child.terminate()
        assert child.wait(DELIVERED_S_MAX) == 0

    def read_delivered(self) -> Delivered:
        found = Delivered()
        text = self._file.read_text() if self._file.exists() else ""
        for line in text.splitlines():
            name, number, stamp = json.loads(line)
            found.numbers[name].append(number)
            found.stamps[name].append(stamp)
        return found

    def await_all(self, written: dict[str, list[int]]) -> None:
        until = time.monotonic() + DELIVERED_S_MAX
        while (numbers := self.read_delivered().once()) != written:
            assert time.monotonic() < until, f"ROWTIDE_CHANGES_SEED={SEED}: {numbers} of {written}"
            time.sleep(0.05)  # There is nothing to wait on from outside.


@pytest.fixture
def processes(tmp_path: Path, server: Ready, table: str) -> Iterator[Processes]:
    """No reader yet; the test starts them."""
    with ExitStack() as closing:
        yield Processes(tmp_path, server, table, closing)


def test_killed_readers_lose_nothing(
    admin: ProtocolClient, table: str, processes: Processes
) -> None:
    world = World(admin, table, random.Random(SEED))
    asyncio.run(world.write(20))
    processes.start()
    for number in range(ROUNDS):
        processes.start()
        asyncio.run(world.split() if number % 2 == 0 else world.merge())
        asyncio.run(world.write(40))
        processes.kill()
        asyncio.run(world.write(10))
    processes.await_all(world.written)
    processes.stop()
