"""Workers are killed while shards are split, merged and moved: no write is lost or out of order."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import groupby, pairwise
from typing import Any

import pytest

from rowtide.cli.client import NoAnswer, ProtocolClient, ServerError
from tests.api.calls import ask, key, put, puts
from tests.api.test_reshape import all_rows, numbers_of, read_stream, shards
from tests.workers.conftest import SERVED_S_MAX, SLOTS, Retrying, Workers, repeat
from tests.workers.test_forwarding import create

pytestmark = pytest.mark.system

NAMES = [f"{letter}{number}" for letter in "abcdefgh" for number in range(2)]
ROUNDS = 4


class Writers:
    """Threads that write ever higher numbers, each to names of its own, whatever happens."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._stop = threading.Event()
        self.written = dict.fromkeys(NAMES, 0)
        self.failures: list[BaseException] = []

    def run(self, names: list[str]) -> None:
        """Write until asked to stop. A repeated put does no harm."""
        try:
            while not self._stop.is_set():
                for name in names:
                    number = self.written[name] + 1
                    repeat(partial(self._write, name, number))
                    self.written[name] = number
        except BaseException as error:
            self.failures.append(error)
            raise

    def _write(self, name: str, number: int) -> None:
        # Whatever worker is there now.
        client = self._workers.another()
        try:
            ask(client, put("moved", key(name, 1), puts(n=number)))
        finally:
            client.close()

    def stop(self) -> None:
        self._stop.set()


@contextmanager
def writing(workers: Workers, threads: int = 4) -> Iterator[Writers]:
    """Write meanwhile."""
    writers = Writers(workers)
    running = [
        threading.Thread(target=writers.run, args=(NAMES[n::threads],)) for n in range(threads)
    ]
    for thread in running:
        thread.start()
    try:
        yield writers
    finally:
        writers.stop()
        for thread in running:
            thread.join()
    assert not writers.failures


def change(client: ProtocolClient, chance: random.Random) -> str | None:
    """Ask for a change that is possible now; return what was asked, None where nothing is."""
    found = [shard for shard in shards(client, "moved") if shard["state"] == "open"]
    if not found:
        return None  # An earlier attempt was planned, though its answer was lost.
    some = chance.choice(found)
    fields: dict[str, Any] = {"table": "moved"}
    pairs = [(a, b) for a, b in pairwise(found) if a["slot"] == b["slot"]]
    kind = chance.choice(["Split", "Move", "Merge"])
    if kind == "Merge" and pairs:
        fields["shards"] = [shard["shard"] for shard in chance.choice(pairs)]
        client.call_json("RowtideMergeShards", fields)
    elif kind == "Split":
        client.call_json("RowtideSplitShard", {**fields, "shard": some["shard"]})
    else:
        slot = (some["slot"] + chance.randrange(1, SLOTS)) % SLOTS
        client.call_json("RowtideMoveShard", {**fields, "shard": some["shard"], "slot": slot})
        kind = "Move"
    return kind


def wait_until_settled(client: Callable[[], ProtocolClient]) -> None:
    """Return once nothing is under way any more."""

    def look() -> None:
        with client() as asked:
            states = {shard["state"] for shard in shards(asked, "moved")}
        if states - {"open", "ended"}:
            raise ServerError("OTSPartitionUnavailable", "under way", 503, "")

    repeat(look)


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 22))]
)
def test_changes_survive_the_death_of_any_worker(workers: Workers, seed: int) -> None:
    chance = random.Random(seed)
    clients = [workers.start("--lease-ms", "1500") for _ in range(2)]
    workers.wait_until_divided()
    repeat(partial(ask, clients[0], create("moved")))
    with writing(workers) as writers:
        for _ in range(ROUNDS):
            kill_within_a_change(workers, chance)
    written = writers.written
    with workers.one(Retrying) as client:
        assert all_rows(client, "moved") == written
        stream = numbers_of(read_stream(client, "moved"))
        states = [shard["state"] for shard in shards(client, "moved")]
    assert "ended" in states, "not one split, merge or move was carried through"
    once = {name: [number for number, _ in groupby(numbers)] for name, numbers in stream.items()}
    assert once == {name: list(range(1, last + 1)) for name, last in written.items()}


def kill_within_a_change(workers: Workers, chance: random.Random) -> None:
    """Kill one of two workers while shards change, start it again, and wait for the end of that."""
    with ThreadPoolExecutor(1) as beside:
        asked = beside.submit(ask_for_change, workers, chance.randrange(2**32))
        time.sleep(chance.random() * 0.3)  # Anywhere within the change.
        victim = chance.randrange(2)
        workers.running[victim].kill()
    asked.result()
    workers.again(victim)
    wait_until_settled(workers.another)


def ask_for_change(workers: Workers, seed: int) -> None:
    """Request a change at any worker, until one accepts it: another one is alive."""
    until = time.monotonic() + SERVED_S_MAX
    while True:
        try:
            with workers.another() as client:
                change(client, random.Random(seed))
                return
        except (NoAnswer, ServerError):
            if time.monotonic() > until:
                raise
        time.sleep(0.02)  # As SDKs do between two attempts.
