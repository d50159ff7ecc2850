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
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import pytest
from aiokafka import AIOKafkaConsumer

from demo.servers.server import free_port
from rowtide.cli.client import ProtocolClient
from rowtide.client import Client, PutRow
from rowtide.deploy.kafka.broker import EmbeddedBroker
from rowtide.deploy.kafka.config import EmbeddedConfig
from rowtide.deploy.up import Ready
from tests.changes.test_readers_together import World
from tests.support.waiting import until
from tests.system.conftest import MakeServer
from tests.system.server import Server
from tests.workers.conftest import Retrying

pytestmark = pytest.mark.system

ROOT = Path(__file__).resolve().parents[2]
TABLE = "orders"
ROUND_CHANGES = 400
"""Orders that are written between two faults."""
CUSTOMERS = [f"customer-{number}" for number in range(12)]
WORKERS = 2
COUNTED_S_MAX = 120.0
FAULT_WITHIN_S = 0.2
STOPPED_S_MAX = 1.5
"""Below the session of the group, which also Kafka's own pause must not end."""
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
        command = [sys.executable, "-m", "tests.system.agent_process", self.name]
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
def server(make_server: MakeServer) -> Ready:
    """A rowtide without Kafka: it goes on while the agents' Kafka is suspended."""
    started: Server = make_server("--log", "local", "--slots", "2")
    started.start()
    return started.ready()


@pytest.fixture
def kafka(tmp_path: Path, cache_dir: Path) -> Iterator[EmbeddedBroker]:
    """The agents' Kafka."""
    with EmbeddedBroker(EmbeddedConfig(tmp_path / "kafka", cache_dir)) as broker:
        yield broker


@pytest.fixture
def workers(tmp_path: Path, server: Ready, kafka: EmbeddedBroker) -> Iterator[AgentWorkers]:
    """No worker yet; the test starts them."""
    with ExitStack() as closing:
        yield AgentWorkers(tmp_path, server, kafka.bootstrap, closing)


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
def orders(server: Ready, seed: int) -> Iterator[Orders]:
    """The empty table of the page."""
    with Client(**server._asdict()) as client, Retrying(**server._asdict()) as admin:
        client.create_table(TABLE, {"id": str}, stream_hours=24)
        yield Orders(client, admin, random.Random(seed))


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


class Trial:
    """Orders are written and counted through faults."""

    def __init__(
        self, workers: AgentWorkers, orders: Orders, kafka: EmbeddedBroker, chance: random.Random
    ) -> None:
        self._workers = workers
        self._orders = orders
        self._kafka = kafka
        self._chance = chance

    def run(self, faults: str) -> None:
        """Have one fault after another; in the end the counts of memory and Kafka are exact."""
        for which in range(WORKERS):
            self._workers.start(which)
        for fault in faults:
            self._count_some()
            FAULTS[fault](self, self._chance.randrange(WORKERS))
        self._count_all()
        print(f"{faults}: {self._workers.restarts} workers ended by themselves")  # noqa: T201
        self._await_kafka()
        for which in range(WORKERS):
            self._workers.stop(which)
        self._workers.start(0)
        self._count_all()

    def _count_some(self) -> None:
        """Write orders, and wait until the workers are somewhere within them."""
        counted = self._orders.written.total() + self._chance.randrange(ROUND_CHANGES)
        self._orders.write(ROUND_CHANGES)
        self._orders.reshape()
        self._wait(lambda: self._workers.read_counts().total() >= counted)
        self._let_pass(FAULT_WITHIN_S)

    def _count_all(self) -> None:
        self._wait(lambda: self._workers.read_counts() == self._orders.written)

    def _await_kafka(self) -> None:
        """Wait until Kafka has the counts, which a worker has in memory before."""
        found = Counter[str]()

        def is_equal() -> bool:
            nonlocal found
            found = asyncio.run(read_changelog(self._kafka.bootstrap, self._workers.name))
            return found == self._orders.written

        until(is_equal, lambda: f"Kafka has {found}", s_max=COUNTED_S_MAX)

    def kill(self, which: int) -> None:
        """Kill a worker."""
        self._workers.kill(which)
        self._orders.write(20)
        self._workers.start(which)

    def kill_without_kafka(self, which: int) -> None:
        """Kill a worker while Kafka answers nothing: what it sent last is lost."""
        self._count_all()
        assert self._kafka.pid is not None
        os.kill(self._kafka.pid, signal.SIGSTOP)
        try:
            self._orders.write(ROUND_CHANGES)
            self._let_pass(STOPPED_S_MAX)
            self._workers.kill(which)
        finally:
            os.kill(self._kafka.pid, signal.SIGCONT)
        self._workers.start(which)

    def suspend(self, which: int) -> None:
        """Suspend a worker until the other one has taken over."""
        self._workers.suspend(which)
        self._orders.write(20)
        self._count_all()
        self._workers.resume(which)

    def _let_pass(self, s_max: float) -> None:
        time.sleep(self._chance.random() * s_max)  # A fault comes at any moment.

    def _wait(self, holds: Callable[[], bool]) -> None:
        until(holds, self._show, s_max=COUNTED_S_MAX)

    def _show(self) -> str:
        """Return what is missing, and what the workers printed."""
        counted, written = self._workers.read_counts(), self._orders.written
        difference = f"missing {written - counted}, too many {counted - written}"
        return f"{difference}\n{self._workers.last_words()}"


FAULTS = {"k": Trial.kill, "n": Trial.kill_without_kafka, "s": Trial.suspend}


@pytest.fixture
def trial(workers: AgentWorkers, orders: Orders, kafka: EmbeddedBroker, seed: int) -> Trial:
    """A trial that has not begun."""
    return Trial(workers, orders, kafka, random.Random(seed))


def test_agents_that_are_killed_count_each_change_once(trial: Trial) -> None:
    trial.run("kknkk")


@pytest.mark.slow
def test_agents_that_are_killed_twenty_times_count_each_change_once(trial: Trial) -> None:
    trial.run("kkkkn" * 4)


@pytest.mark.slow
def test_agents_that_are_suspended_count_each_change_once(trial: Trial) -> None:
    """Another worker takes over meanwhile. The suspended one must then write nothing old."""
    trial.run(10 * "s")
