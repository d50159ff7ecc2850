"""Workers are killed while tables are made and deleted: what was answered holds, nothing is left.

Each table is one thread's, which asks any worker and repeats nothing by itself. So the next answer
about the table must fit what the thread was told before: *unavailable* changed nothing, and only
after an *unknown* outcome may either be so.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from rowtide.cli.client import Client, NoAnswer, ServerError
from rowtide.core.wire import ots_pb2 as pb
from rowtide.stream.kafka.cluster import Cluster
from rowtide.stream.kafka.config import KafkaConfig
from rowtide.stream.kafka.topics import TopicNames
from tests.api.calls import ask, key, put, puts, shown, stored
from tests.workers.conftest import UNAVAILABLE, Retrying, Workers, repeated
from tests.workers.test_forwarding import create
from tests.workers.test_operations import UNTIL_S_MAX, until

pytestmark = pytest.mark.system

TABLES = ["a", "b", "c"]
KILLS = 3
BETWEEN_S = 2.0
ABSENT, PRESENT = "OTSObjectNotExist", "OTSObjectAlreadyExist"


class Maker:
    """Makes a table and deletes it, again and again. ``there`` is None while that is unknown."""

    def __init__(self, workers: Workers, name: str) -> None:
        self.name = name
        self.there: bool | None = False
        self.done = 0
        self.failure: BaseException | None = None
        self._workers = workers
        self._stop = threading.Event()

    def run(self) -> None:
        """Go on until told to stop."""
        try:
            while not self._stop.is_set():
                self._step()
                self._look()
        except BaseException as error:
            self.failure = error
            raise

    def stop(self) -> None:
        self._stop.set()

    def _step(self) -> None:
        made = not self.there
        request = create(self.name) if made else pb.DeleteTableRequest(table_name=self.name)
        code = self._code(lambda client: ask(client, request))
        if code == "":
            self.there = made
            self.done += 1
        elif code == (PRESENT if made else ABSENT):
            assert self.there is None, f"{self.name}: {code}, but that was not so"
            self.there = made
        elif code not in UNAVAILABLE:
            assert code in ("OTSTimeout", "OTSInternalServerError", NoAnswer.__name__), code
            self.there = None

    def _look(self) -> None:
        """See whether any worker tells what we know."""
        code = self._code(lambda client: client.describe_table(self.name))
        if code in ("", ABSENT) and self.there is not None:
            assert self.there == (code == ""), f"{self.name}: {code or 'there'}, but it is not so"

    def _code(self, attempt: Callable[[Client], object]) -> str:
        """Ask any worker; return what it refused with, if it did."""
        client = self._workers.another()
        try:
            attempt(client)
        except ServerError as error:
            return error.code
        except NoAnswer:
            time.sleep(0.05)  # It is down, perhaps.
            return NoAnswer.__name__
        finally:
            client.close()
        return ""


@contextmanager
def making(workers: Workers) -> Iterator[list[Maker]]:
    """Make and delete tables meanwhile."""
    makers = [Maker(workers, name) for name in TABLES]
    running = [threading.Thread(target=maker.run) for maker in makers]
    for thread in running:
        thread.start()
    try:
        yield makers
    finally:
        for maker in makers:
            maker.stop()
        for thread in running:
            thread.join()
    assert [maker.failure for maker in makers] == [None] * len(makers)


def owner_of_catalog(workers: Workers) -> int:
    """Return the number of the worker that has slot 0."""
    found: list[int] = []

    def look() -> bool:
        for number, client in enumerate(workers.clients):
            slots = client.call_json("RowtideStatus", {})["slots"]
            found.extend(number for slot in slots if slot["slot"] == 0 and slot["open"])
        return bool(found)

    until(look)
    return found[0]


def kill_owners(workers: Workers, chance: random.Random) -> None:
    """Kill the catalog's owner again and again, wherever it is."""
    for _ in range(KILLS):
        time.sleep(chance.random() * BETWEEN_S)  # Anywhere between two steps.
        victim = owner_of_catalog(workers)
        workers.running[victim].kill()
        workers.again(victim)


def check_and_delete(workers: Workers, makers: list[Maker]) -> None:
    """Hold what there is to what was told; then delete it."""
    with workers.one(Retrying) as client:
        listed = client.list_table()
        for maker in makers:
            assert maker.there is None or maker.there == (maker.name in listed)
        for name in listed:
            repeated(partial(ask, client, put(name, key("k", 1), puts(n=1))))
            assert shown(stored(client, name, key("k", 1))) == {"n": 1}
            repeated(partial(delete, client, name))


def delete(client: Client, name: str) -> None:
    """Delete a table, unless an attempt without an answer did."""
    try:
        client.delete_table(name)
    except ServerError as error:
        if error.code != ABSENT:
            raise


async def test_what_was_answered_of_a_table_holds_when_workers_are_killed(
    workers: Workers, broker: str
) -> None:
    for _ in range(3):
        workers.start("--lease-ms", "1500")
    workers.settled()
    with making(workers) as makers:
        kill_owners(workers, random.Random(5))
    assert all(maker.done for maker in makers), "each did something"
    check_and_delete(workers, makers)
    # Whoever takes the catalog over next removes what is left of tables half made or deleted.
    for worker in workers.running:
        worker.stop()
    workers.again(0)
    logs = TopicNames(workers.folder.name, "").shard("s")
    async with Cluster(KafkaConfig(broker, topic_prefix=workers.folder.name)) as cluster:
        deadline = time.monotonic() + UNTIL_S_MAX
        while left := [name for name in await cluster.topics() if name.startswith(logs)]:
            assert time.monotonic() < deadline, f"{left} belong to no table"
            await asyncio.sleep(0.2)  # There is nothing to wait on from outside.
