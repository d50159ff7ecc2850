"""Workers are killed while tables, instances and access keys are created and removed:
every answer remains true, and nothing is left over.

Each object belongs to one thread, which calls any worker and repeats nothing. So the next
answer about it must fit the earlier ones: *unavailable* changed nothing, and only after
an *unknown* outcome may either be so.
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

from rowtide.cli.client import Access, NoAnswer, ProtocolClient, ServerError
from rowtide.stream.log.kafka.cluster import KafkaCluster
from rowtide.stream.log.kafka.config import KafkaConfig
from rowtide.stream.log.topics import TopicNames
from tests.api.calls import ask, key, put, puts, read_row, shown
from tests.support.waiting import until
from tests.workers.conftest import UNAVAILABLE, Retrying, Workers, repeat
from tests.workers.test_forwarding import create

pytestmark = pytest.mark.system

TABLES = ["a", "b", "c"]
KILLS = 3
BETWEEN_S = 2.0
UNTIL_S_MAX = 60.0
ABSENT, PRESENT = "OTSObjectNotExist", "OTSObjectAlreadyExist"


class Maker:
    """Makes something and removes it, again and again. ``there`` is None while that is unknown."""

    def __init__(self, workers: Workers, name: str) -> None:
        self.name = name
        self.there: bool | None = False
        self.done = 0
        self.failure: BaseException | None = None
        self._workers = workers
        self._stop = threading.Event()

    def run(self) -> None:
        """Continue until asked to stop."""
        try:
            while not self._stop.is_set():
                self._step()
                self._look()
        except BaseException as error:
            self.failure = error
            raise

    def stop(self) -> None:
        self._stop.set()

    def make(self, client: ProtocolClient) -> None:
        raise NotImplementedError

    def remove(self, client: ProtocolClient) -> None:
        raise NotImplementedError

    def is_reported(self, client: ProtocolClient) -> bool:
        """Return whether the catalog's owner reports that it exists, through any worker."""
        raise NotImplementedError

    def list_visible(self, client: ProtocolClient) -> set[bool]:
        """Return all that a worker that serves slots lets one see of whether it is there."""
        raise NotImplementedError

    def _makes(self) -> bool:
        """True if to make it next, or else to remove it."""
        return not self.there

    def _step(self) -> None:
        made = self._makes()
        code = self._code(self.make if made else self.remove)
        if code == "":
            self.there = made
            self.done += 1
        elif code == (PRESENT if made else ABSENT):
            assert self.there is None, f"{self.name}: {code}, but that was not so"
            self.there = made
        elif code not in UNAVAILABLE:
            assert code in ("OTSTimeout", "OTSInternalServerError", NoAnswer.__name__), code
            self._note_unknown(made=made)

    def _note_unknown(self, *, made: bool) -> None:
        """Take note that the outcome is unknown."""
        self.there = None

    def _look(self) -> None:
        """Check if any worker reports what we know."""
        found: list[bool] = []
        self._code(lambda client: found.append(self.is_reported(client)))
        if found and self.there is not None:
            assert found == [self.there], f"{self.name}: its worker denies that"

    def _code(self, attempt: Callable[[ProtocolClient], object]) -> str:
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


class TableMaker(Maker):
    """Of a table."""

    def make(self, client: ProtocolClient) -> None:
        ask(client, create(self.name))

    def remove(self, client: ProtocolClient) -> None:
        client.delete_table(self.name)

    def is_reported(self, client: ProtocolClient) -> bool:
        try:
            client.describe_table(self.name)
        except ServerError as error:
            if error.code != ABSENT:
                raise
            return False
        return True

    def list_visible(self, client: ProtocolClient) -> set[bool]:
        return {self.is_reported(client), self.name in client.list_table()}


class UserMaker(Maker):
    """Objects that decide which clients are accepted: checks that too, after an answer.

    A worker that has no slots yet, because it was killed, may learn of it a moment later.
    """

    def access(self, client: ProtocolClient) -> Access:
        """Return the credentials that are accepted while it exists."""
        raise NotImplementedError

    def lets_in(self, client: ProtocolClient) -> bool:
        """True if a worker lets that one in."""
        instance, key_id, secret = self.access(client)
        with type(client)(
            client.endpoint, instance=instance, access_key_id=key_id, access_key_secret=secret
        ) as user:
            try:
                user.list_table()
            except ServerError as error:
                if error.code != "OTSAuthFailed":
                    raise
                return False
        return True

    def list_visible(self, client: ProtocolClient) -> set[bool]:
        return {self.is_reported(client), self.lets_in(client)}

    def _look(self) -> None:
        super()._look()
        deadline = time.monotonic() + UNTIL_S_MAX
        found: list[bool] = [not self.there]
        while self.there is not None and found[-1] != self.there:
            assert time.monotonic() < deadline, f"{self.name}: let in: {found[-1]}"
            self._code(lambda client: found.append(self.lets_in(client)))


class InstanceMaker(UserMaker):
    """Of an instance."""

    def make(self, client: ProtocolClient) -> None:
        client.call_json("RowtideCreateInstance", {"name": self.name})

    def remove(self, client: ProtocolClient) -> None:
        client.call_json("RowtideDeleteInstance", {"name": self.name})

    def is_reported(self, client: ProtocolClient) -> bool:
        found = client.call_json("RowtideListInstances", {})["instances"]
        return self.name in [instance["name"] for instance in found]

    def access(self, client: ProtocolClient) -> Access:
        return client.access._replace(instance=self.name)


class KeyMaker(UserMaker):
    """Access keys, one after another; it is about the last one whose creation was answered.

    The id of one without an answer is unknown. A key that may be revoked is revoked
    again.
    """

    key_id, secret = "none", "none"

    def make(self, client: ProtocolClient) -> None:
        made = client.call_json("RowtideCreateKey", {})
        self.key_id, self.secret = made["access_key_id"], made["access_key_secret"]

    def remove(self, client: ProtocolClient) -> None:
        client.call_json("RowtideRevokeKey", {"access_key_id": self.key_id})

    def is_reported(self, client: ProtocolClient) -> bool:
        return self.key_id in keys(client)

    def access(self, client: ProtocolClient) -> Access:
        return Access(client.access.instance, self.key_id, self.secret)

    def _makes(self) -> bool:
        return self.there is False

    def _note_unknown(self, *, made: bool) -> None:
        self.there = False if made else None


def keys(client: ProtocolClient) -> frozenset[str]:
    """Return the ids of all access keys."""
    found = client.call_json("RowtideListKeys", {})["keys"]
    return frozenset(key["access_key_id"] for key in found)


@contextmanager
def making(workers: Workers) -> Iterator[list[Maker]]:
    """Make and remove everything meanwhile."""
    makers: list[Maker] = [TableMaker(workers, name) for name in TABLES]
    makers += [InstanceMaker(workers, "made"), KeyMaker(workers, "key")]
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


def check(workers: Workers, makers: list[Maker]) -> None:
    """Compare every worker's report with the answers, or else with the other reports."""
    for maker in makers:
        seen = set[bool]().union(*(maker.list_visible(client) for client in workers.clients))
        assert len(seen) == 1, f"{maker.name}: is, and is not"
        assert maker.there is None or seen == {maker.there}, maker.name
    assert len({keys(client) for client in workers.clients}) == 1


def use_and_delete(workers: Workers) -> None:
    """Hold that the tables that are left can be used; then delete them."""
    with workers.one(Retrying) as client:
        for name in client.list_table():
            repeat(partial(ask, client, put(name, key("k", 1), puts(n=1))))
            assert shown(read_row(client, name, key("k", 1))) == {"n": 1}
            repeat(partial(delete, client, name))


def delete(client: ProtocolClient, name: str) -> None:
    """Delete a table, unless an attempt without an answer did."""
    try:
        client.delete_table(name)
    except ServerError as error:
        if error.code != ABSENT:
            raise


async def test_what_was_answered_of_the_catalog_holds_when_workers_are_killed(
    workers: Workers, broker: str
) -> None:
    for _ in range(3):
        workers.start("--lease-ms", "1500")
    workers.wait_until_divided()
    with making(workers) as makers:
        kill_owners(workers, random.Random(5))
        until(lambda: all(m.done or m.failure for m in makers), "each did something")
    workers.wait_until_divided()
    check(workers, makers)
    use_and_delete(workers)
    # The next owner of the catalog removes the rest of half created or deleted tables.
    for worker in workers.running:
        worker.stop()
    workers.again(0)
    logs = TopicNames(workers.folder.name, "").shard("s")
    async with KafkaCluster(KafkaConfig(broker, topic_prefix=workers.folder.name)) as cluster:
        deadline = time.monotonic() + UNTIL_S_MAX
        while left := [name for name in await cluster.topics() if name.startswith(logs)]:
            assert time.monotonic() < deadline, f"{left} belong to no table"
            await asyncio.sleep(0.2)  # There is nothing to wait on from outside.
