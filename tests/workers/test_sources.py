"""A source writes while workers are killed and shards are split, merged and moved.

The source itself ends now and then, too, and another process goes on from its checkpoint, which
lies behind. Each row is in the stream once, and in the order of the source.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from rowtide.client.endpoint import Endpoint
from rowtide.connectors.rows import SourceRow
from rowtide.connectors.runtime.table_target import TableTarget
from rowtide.core.values.errors import OutcomeUnknown, Unavailable
from tests.api.calls import ask
from tests.api.test_reshape import all_rows, numbers_of, read_stream
from tests.workers.conftest import Retrying, Workers, repeat
from tests.workers.test_forwarding import create
from tests.workers.test_reshape_kills import NAMES, kill_within_a_change

pytestmark = pytest.mark.system

TABLE = "moved"
ROUNDS = 3
ROWS = 40
LEASE_S = 1.0
KEPT_EVERY = 5
BEGUN_S_MAX = 60.0


class Sourcing:
    """A source that writes ever higher numbers in a thread, a process after another."""

    def __init__(self, workers: Workers, chance: random.Random) -> None:
        self._workers = workers
        self._chance = chance
        self._stop = threading.Event()
        self.written = 0
        self.begun = threading.Event()
        self.failure: BaseException | None = None

    def run(self) -> None:
        """Write until asked to stop; whatever ends a process, the next one begins."""
        try:
            while not self._stop.is_set():
                asyncio.run(self._live())
        except BaseException as error:
            self.failure = error
            raise

    async def _live(self) -> None:
        """Be one process: it ends on request, by itself, or without an answer."""
        access = self._workers.ready(self._chance.randrange(2))
        try:
            async with (
                asyncio.timeout(30),
                Endpoint(**access, timeout_s=5.0) as endpoint,
                TableTarget(endpoint, "numbers", lease_s=LEASE_S, deadline_s=3.0) as target,
            ):
                at = int(await target.checkpoint() or 0)
                for batch in range(1, 1000):
                    await target.write([row(number) for number in range(at + 1, at + ROWS + 1)])
                    at += ROWS
                    self.written = max(self.written, at)
                    self.begun.set()
                    if self._stop.is_set() or self._chance.random() < 0.02:
                        return
                    if batch % KEPT_EVERY == 0:
                        await target.keep(b"%d" % at)
        except (Unavailable, OutcomeUnknown, TimeoutError):
            pass

    def stop(self) -> None:
        self._stop.set()


def row(number: int) -> SourceRow:
    """Return a row of the source: names take turns."""
    key = ("PK1", NAMES[number % len(NAMES)]), ("PK2", 1)
    return SourceRow(TABLE, key, {"n": number}, True, 1000, number.to_bytes(8, "big"))


@contextmanager
def sourcing(workers: Workers, chance: random.Random) -> Iterator[Sourcing]:
    """Let a source write meanwhile."""
    source = Sourcing(workers, chance)
    running = threading.Thread(target=source.run)
    running.start()
    try:
        yield source
    finally:
        source.stop()
        running.join()
    assert source.failure is None


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 12))]
)
def test_a_source_survives_the_death_of_any_worker(workers: Workers, seed: int) -> None:
    chance = random.Random(seed)
    clients = [workers.start("--lease-ms", "1500") for _ in range(2)]
    workers.wait_until_divided()
    repeat(partial(ask, clients[0], create(TABLE)))
    with sourcing(workers, random.Random(seed)) as source:
        assert source.begun.wait(BEGUN_S_MAX)
        for _ in range(ROUNDS):
            kill_within_a_change(workers, chance)
    with workers.one(Retrying) as client:
        stream = numbers_of(read_stream(client, TABLE))
        rows = all_rows(client, TABLE)
    # What was not answered in the end may be there, too.
    answered = {
        name: [number for number in numbers if number <= source.written]
        for name, numbers in stream.items()
    }
    assert answered == list_expected(source.written)
    assert all(numbers == sorted(set(numbers)) for numbers in stream.values())
    assert rows == {name: numbers[-1] for name, numbers in stream.items()}


def list_expected(last: int) -> dict[str, list[int]]:
    """Return what a stream has of the source's first rows."""
    found: dict[str, list[int]] = {}
    for number in range(1, last + 1):
        found.setdefault(NAMES[number % len(NAMES)], []).append(number)
    return found
