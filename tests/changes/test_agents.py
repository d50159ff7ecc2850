"""Faust agents count a table's changes exactly, though they fail and their processes are killed."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import pytest
from aiokafka import AIOKafkaConsumer

from demo.servers.server import free_port
from rowtide.cli.client import ProtocolClient
from rowtide.client import Client, PutRow
from rowtide.deploy.up import Ready
from tests.changes.test_readers_together import World
from tests.support.waiting import until

pytestmark = pytest.mark.system

ROOT = Path(__file__).resolve().parents[2]
TABLE = "orders"
ROUND_CHANGES = 400
"""Orders that are written between two faults."""
CUSTOMERS = [f"customer-{number}" for number in range(12)]
WORKERS = 2
COUNTED_S_MAX = 120.0
FAULT_WITHIN_S = 0.2
SESSION_S = 3.0
"""Kafka's group misses a killed worker for that long."""


class AgentWorkers:
    """Workers of the page's app. What runs at the end is killed."""

    def __init__(self, folder: Path, server: Ready, broker: str, closing: ExitStack) -> None:
        self.name = f"order-counts-{uuid4().hex[:8]}"
        self.restarts = 0
        """How often a worker ended by itself: it found that it had to recover again."""
        self._folder = folder
        self._closing = closing
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self._suspended: set[int] = set()
        self._environment = {
            **os.environ,
            "KAFKA": f"kafka://{broker}",
            "ROWTIDE_ENDPOINT": server.endpoint,
            "ROWTIDE_INSTANCE": server.instance,
            "ROWTIDE_ACCESS_KEY_ID": server.access_key_id,
            "ROWTIDE_ACCESS_KEY_SECRET": server.access_key_secret,
            "BROKER_SESSION_TIMEOUT": str(SESSION_S),
            "BROKER_HEARTBEAT_INTERVAL": str(SESSION_S / 6),
        }

    def start(self, which: int) -> None:
        """Start one of the workers."""
        self._report(which).unlink(missing_ok=True)
        command = [sys.executable, "-m", "tests.changes.agent_process", self.name]
        command += [str(self._report(which)), "--datadir", str(self._folder / f"faust-{which}")]
        command += ["worker", "--without-web", "--loglevel", "info", "--web-port", str(free_port())]
        with self._output(which).open("ab") as output:
            child = subprocess.Popen(
                command, cwd=ROOT, env=self._environment, stdout=output, stderr=output
            )
        self._closing.enter_context(child)
        self._closing.callback(child.kill)
        self._running[which] = child

    def kill(self, which: int) -> None:
        """End one as a power cut would."""
        child = self._running.pop(which)
        child.kill()
        child.wait()
        self._report(which).unlink(missing_ok=True)

    def suspend(self, which: int) -> None:
        """Stop one where it is, as a suspended machine."""
        self._suspended.add(which)
        self._running[which].send_signal(signal.SIGSTOP)

    def resume(self, which: int) -> None:
        """Let it go on."""
        self._running[which].send_signal(signal.SIGCONT)
        self._suspended.remove(which)

    def stop(self, which: int) -> None:
        """Let one finish."""
        child = self._running.pop(which)
        child.terminate()
        child.wait(COUNTED_S_MAX)
        self._report(which).unlink(missing_ok=True)

    def read_counts(self) -> Counter[str]:
        """Return how many orders of each customer the workers have counted that are not suspended.

        A worker that has ended by itself is started again.
        """
        for which, child in list(self._running.items()):
            if child.poll() is not None:
                self.restarts += 1
                self.start(which)
        found: Counter[str] = Counter()
        for which in self._running:
            if which not in self._suspended and self._report(which).exists():
                found.update(json.loads(self._report(which).read_text()))
        return found

    def last_words(self) -> str:
        """Return the ends of what the workers printed."""
        files = sorted(self._folder.glob("output-*"))
        return "\n".join(f"{file.name}:\n{file.read_text()[-3000:]}" for file in files)

    def _report(self, which: int) -> Path:
        return self._folder / f"counts-{which}.json"

    def _output(self, which: int) -> Path:
        return self._folder / f"output-{which}"


@pytest.fixture
def workers(tmp_path: Path, server: Ready, broker: str) -> Iterator[AgentWorkers]:
    """No worker yet; the test starts them."""
    with ExitStack() as closing:
        yield AgentWorkers(tmp_path, server, broker, closing)


class Orders:
    """The table of the page, and what was written to it."""

    def __init__(self, client: Client, admin: ProtocolClient, chance: random.Random) -> None:
        self.written: Counter[str] = Counter()
        self._client = client
        self._world = World(admin, TABLE, chance)
        self._chance = chance

    def write(self, orders: int) -> None:
        """Write orders of random customers; some replace an earlier one."""
        while orders > 0:
            numbers = self._chance.sample(range(1000), min(orders, 50))
            customers = self._chance.choices(CUSTOMERS, k=len(numbers))
            rows = [
                {"id": f"{number:03}", "customer": customer}
                for number, customer in zip(numbers, customers, strict=True)
            ]
            self._client.write([PutRow(TABLE, row) for row in rows])
            self.written.update(customers)
            orders -= len(rows)

    def reshape(self) -> None:
        """Split a shard, or merge two."""
        if self._chance.random() < 0.6:
            asyncio.run(self._split())
        else:
            asyncio.run(self._world.merge())

    async def _split(self) -> None:
        shard = self._chance.choice(await self._world.living())
        at = f"{self._chance.randrange(1000):03}"
        await self._world.reshape("RowtideSplitShard", {"shard": shard, "at": at})


@pytest.fixture
def orders(server: Ready, admin: ProtocolClient, seed: int) -> Iterator[Orders]:
    """The empty table of the page."""
    with Client(**server._asdict()) as client:
        client.create_table(TABLE, {"id": str}, stream_hours=24)
        yield Orders(client, admin, random.Random(seed))
        client.delete_table(TABLE)


async def read_changelog(broker: str, name: str) -> Counter[str]:
    """Return the counts that Kafka has, whatever the workers have in memory."""
    consumer = AIOKafkaConsumer(
        f"{name}-counts-changelog", bootstrap_servers=broker, auto_offset_reset="earliest"
    )
    latest: dict[str, tuple[int, int]] = {}
    async with consumer:
        ends = await consumer.end_offsets(consumer.assignment())
        for partition, end in ends.items():
            while await consumer.position(partition) < end:
                record = await consumer.getone(partition)
                assert record.key is not None
                assert record.value is not None
                latest[json.loads(record.key)] = json.loads(record.value)
    found: Counter[str] = Counter()
    for place, (number, _) in latest.items():
        found[place.split("/")[1]] += number
    return found


def count_through_faults(
    workers: AgentWorkers, orders: Orders, broker: str, chance: random.Random, faults: str
) -> None:
    """Kill (k) or suspend (s) workers while they count. In the end memory and Kafka are exact."""
    for which in range(WORKERS):
        workers.start(which)
    for fault in faults:
        counted = sum(orders.written.values()) + chance.randrange(ROUND_CHANGES)
        orders.write(ROUND_CHANGES)
        orders.reshape()
        wait_for(workers, lambda: workers.read_counts().total() >= counted, orders)  # noqa: B023
        time.sleep(chance.random() * FAULT_WITHIN_S)  # A fault comes at any moment.
        which = chance.randrange(WORKERS)
        if fault == "k":
            workers.kill(which)
            orders.write(20)
            workers.start(which)
        else:
            workers.suspend(which)
            orders.write(20)
            wait_for(workers, lambda: workers.read_counts() == orders.written, orders)
            workers.resume(which)
    wait_for(workers, lambda: workers.read_counts() == orders.written, orders)
    print(f"{faults}: {workers.restarts} workers ended by themselves")  # noqa: T201
    assert asyncio.run(read_changelog(broker, workers.name)) == orders.written
    for which in range(WORKERS):
        workers.stop(which)
    workers.start(0)
    wait_for(workers, lambda: workers.read_counts() == orders.written, orders)


def wait_for(workers: AgentWorkers, holds: object, orders: Orders) -> None:
    """Wait for counts. Show what is missing where they do not come."""

    def show() -> str:
        counted = workers.read_counts()
        missing, surplus = orders.written - counted, counted - orders.written
        return f"missing {missing}, too many {surplus}\n{workers.last_words()}"

    assert callable(holds)
    until(holds, show, s_max=COUNTED_S_MAX)


def test_agents_that_are_killed_count_each_change_once(
    workers: AgentWorkers, orders: Orders, broker: str, seed: int
) -> None:
    count_through_faults(workers, orders, broker, random.Random(seed), "kkkkk")


@pytest.mark.slow
def test_agents_that_are_killed_twenty_times_count_each_change_once(
    workers: AgentWorkers, orders: Orders, broker: str, seed: int
) -> None:
    count_through_faults(workers, orders, broker, random.Random(seed), 20 * "k")


@pytest.mark.slow
def test_agents_that_are_suspended_count_each_change_once(
    workers: AgentWorkers, orders: Orders, broker: str, seed: int
) -> None:
    """Another worker takes over meanwhile. The suspended one must then write nothing old."""
    count_through_faults(workers, orders, broker, random.Random(seed), 10 * "s")
