"""The feed on real Kafka with two workers: splits, moves, and both kinds of processes killed.

``test_feed_together.py`` has the same with one worker, more readers and more steps.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from rowtide.cli.client import ProtocolClient
from rowtide.deploy.ports import free_ports
from rowtide.deploy.up import Up
from tests.console.feed.test_feed_together import (
    CAUGHT_UP_S_MAX,
    SEED,
    SLOTS,
    FeedWorld,
    Processes,
    RandomReader,
)
from tests.support.consoles import Visitor
from tests.support.copies import launch
from tests.support.waiting import until, until_async

pytestmark = [pytest.mark.kafka, pytest.mark.system]

READERS = 5
ROWS = 20
"""Written while each change is made."""


class KafkaProcesses(Processes):
    """Two workers of one Kafka, and a console of the first one."""

    def __init__(self, folder: Path, broker: str, closing: ExitStack) -> None:
        ports = free_ports("127.0.0.1")
        self._output = closing.enter_context((folder / "output").open("wb"))
        self._port = next(ports)
        self._folder = folder
        self._console = None
        self.workers: list[Up] = []
        for number in range(2):
            options = ["--kafka", broker, "--port", str(next(ports)), "--slots", str(SLOTS)]
            options += ["--topic-prefix", folder.name, "--console", "false"]
            options += ["--table-operations-per-s", "0"]
            up = Up(
                folder / f"worker{number}",
                options=options,
                output=self._output,
                command="worker",
                launch=launch,
            )
            self.workers.append(closing.enter_context(up))
        self.server = self.workers[0]
        self.ready = self.server.start()
        self.workers[1].start()
        closing.callback(self.kill_console)

    @property
    def output(self) -> str:
        """What all processes printed."""
        return (self._folder / "output").read_text(errors="replace")

    def restart_worker(self, number: int) -> None:
        """Kill a worker and start it again. The other one takes its slots over meanwhile."""
        self.workers[number].kill()
        self.workers[number].start()

    def log_in(self) -> Visitor:
        """Return a visitor of the console who has the key of the first worker."""
        visitor = Visitor(self._port)
        key = {"access_key_id": self.ready.access_key_id, "instance": self.ready.instance}
        fields = {**key, "access_key_secret": self.ready.access_key_secret}
        assert visitor.post("/login", fields).status == 303
        return visitor


@pytest.fixture
def processes(tmp_path: Path, broker: str) -> Iterator[KafkaProcesses]:
    """Two workers and a console."""
    with ExitStack() as closing:
        running = KafkaProcesses(tmp_path, broker, closing)
        until(lambda: all(count_slots(running).values()), lambda: count_slots(running))
        running.start_console()
        yield running


def count_slots(processes: KafkaProcesses) -> dict[str, int]:
    """Return how many slots each of two workers has open."""
    with ProtocolClient(**processes.ready._asdict(), timeout_s=30.0) as client:
        workers = client.call_json("RowtideClusterStatus", {})["workers"]
    found = {one["address"]: sum(slot["open"] for slot in one.get("slots", ())) for one in workers}
    return found if len(found) == 2 else {**found, "the other": 0}


@pytest.fixture
def world(processes: KafkaProcesses) -> Iterator[FeedWorld]:
    """A table with a stream, and a token to follow it."""
    made = FeedWorld(processes, random.Random(SEED))
    with made.client:
        yield made


class ShardsByButtons:
    """Splits and moves the shards of the table as a person does, in the page of shards."""

    def __init__(self, processes: KafkaProcesses) -> None:
        self._visitor = processes.log_in()
        self._path = f"/i/{processes.ready.instance}/t/t/shards"

    def opened(self) -> list[dict[str, Any]]:
        """Return the open shards as the page shows them."""
        answer = self._visitor.get(f"{self._path}.json")
        assert answer.status == 200, answer.text
        return [line for line in answer.document["lines"] if line["state"] == "open"]

    def split(self) -> None:
        """Split the first shard in the middle of the keys."""
        shard = self.opened()[0]["shard"]
        answer = self._visitor.change(f"{self._path}/split", {"shard": shard, "at": "d"})
        assert answer.status == 303, answer.text
        until(lambda: len(self.opened()) == 2, self.opened)

    def move(self) -> None:
        """Move a shard to the other worker."""
        found: list[tuple[str, str]] = []

        def has_choice() -> bool:
            found[:] = self._choices()
            return bool(found)

        until(has_choice, self.opened)
        shard, worker = found[0]
        answer = self._visitor.change(f"{self._path}/move", {"shard": shard, "worker": worker})
        assert answer.status == 303, answer.text
        until(lambda: self._place_of_child(shard) == worker, self.opened)

    def _choices(self) -> list[tuple[str, str]]:
        """Return (shard, worker) for each shard that another worker can take."""
        return [
            (line["shard"], target["worker"])
            for line in self.opened()
            for target in line["targets"]
            if not target["is_owner"]
        ]

    def _place_of_child(self, shard: str) -> object:
        return next((line["worker"] for line in self.opened() if shard in line["parents"]), None)


async def test_five_readers_on_two_workers_get_each_record_once(
    world: FeedWorld, processes: KafkaProcesses
) -> None:
    shards = ShardsByButtons(processes)
    changes: list[Callable[[], None]] = [
        shards.split,
        shards.move,
        lambda: processes.restart_worker(1),
        processes.restart_console,
        lambda: processes.restart_worker(0),
    ]
    found = [RandomReader(world, number) for number in range(READERS)]
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(reader.run()) for reader in found]
        await world.write(ROWS)
        for change in changes:
            await write_meanwhile(tasks, world, asyncio.to_thread(change))
        await until_async(
            lambda: all(reader.numbers() == world.written for reader in found),
            lambda: f"seed {SEED}: {[len(reader.client.records) for reader in found]}",
            s_max=CAUGHT_UP_S_MAX,
        )
        # Readers leave at random moments: all changes may be made before each has done so twice.
        await until_async(
            lambda: min(reader.connections for reader in found) > 2,
            lambda: f"seed {SEED}: {[reader.connections for reader in found]}",
        )
        for task in running:
            task.cancel()
    assert sum(map(len, world.written.values())) == ROWS * (len(changes) + 1)
    assert all(reader.numbers() == world.written for reader in found)
    assert "Traceback" not in processes.output


async def write_meanwhile(
    tasks: asyncio.TaskGroup, world: FeedWorld, change: Awaitable[None]
) -> None:
    """Write rows while a change is made; return when both are done."""
    writing = tasks.create_task(world.write(ROWS))
    await change
    await writing
