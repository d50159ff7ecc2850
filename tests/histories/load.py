"""Eight clients that ask any worker for anything, one operation at a time each, and note it all.

Rows are few at a time, so that clients meet; after ``GENERATION`` operations on a shard its rows
give way to new ones, so that histories stay short. An answer that is late is given up, not
repeated.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Collection, Sequence
from itertools import count

from tests.histories.client import NoAnswer, NotSent, WorkerClient
from tests.histories.operation import Expect, Kind, Operation, Outcome, Row
from tests.histories.requests import (
    ROWS,
    SHARDS,
    increment_of,
    range_request,
    request_of,
    row_in,
    rows_in,
)

__all__ = ["CLIENTS", "Load"]

CLIENTS = 8
TIMEOUT_S = 1.0
PATIENT, PATIENCE_S = 2, 20.0
"""So many clients wait so long: they hear what a worker says that has waited for the broker."""

GENERATION = 300
"""Operations on a shard until its rows give way to new ones."""

PAUSE_S = 0.01
"""After a refusal that says "later"."""

BURST, BURST_S_MAX = 60, 5.0
PROBES_END = CLIENTS + len(SHARDS)

AVOID_S = 0.5
"""For so long a worker that did not answer is asked but seldom."""

UNAVAILABLE = frozenset({"OTSPartitionUnavailable", "OTSServerBusy", "OTSServerUnavailable"})
KINDS = [Kind.GET] * 8 + [Kind.PUT] * 4 + [Kind.UPDATE] * 3 + [Kind.INCREMENT] * 3 + [Kind.DELETE]
RANGES = 0.08
"""Share of operations that read a range."""

BOUNDED = 0.4
BOUNDS_S = [0.1, 0.5, 2.0]
"""Of the reads so many may be stale, where workers keep copies, by so much."""


class Load:
    """The clients, what they did, and the answers that are always wrong."""

    def __init__(self, workers: Sequence[WorkerClient], seed: int, *, copies: bool = False) -> None:
        self.history: list[Operation] = []
        self.faults: list[str] = []
        self.answers: Counter[str] = Counter()
        self._workers = workers
        self._seed = seed
        self._bounded = BOUNDED if copies else 0.0
        self._avoid_until_s = [0.0] * len(workers)
        self._stop = asyncio.Event()
        self._generation = dict.fromkeys(SHARDS, 0)
        self._left = dict.fromkeys(SHARDS, GENERATION)
        self._marks = count()
        self._seen: dict[str, str] = {}
        """The mark that somebody saw or put last, by row."""

    def stop(self) -> None:
        """Let every client end with the operation it is at."""
        self._stop.set()

    async def run(self) -> None:
        """Run all clients until ``stop``."""
        async with asyncio.TaskGroup() as tasks:
            for number in range(CLIENTS):
                tasks.create_task(self._client(number), name=f"client[{number}]")
            for number, shard in enumerate(SHARDS, CLIENTS):
                tasks.create_task(self._probe(number, shard), name=f"probe[{shard}]")

    async def _client(self, number: int) -> None:
        chance = random.Random(f"{self._seed} client {number}")
        timeout_s = PATIENCE_S if number < PATIENT else TIMEOUT_S
        while not self._stop.is_set():
            worker = self._choose(chance)
            name = self._name(chance.choice(SHARDS))
            if chance.random() < RANGES:
                outcome = await self.ask_range(
                    number, worker, name, timeout_s=timeout_s, bound_s=self._draw_bound_s(chance)
                )
            else:
                one = self._draft(chance, f"{name}/{chance.randrange(ROWS)}")
                one.client, one.worker = number, worker
                await self.ask(one, timeout_s=timeout_s)
                outcome = one.outcome
            if outcome is Outcome.UNAVAILABLE:
                await asyncio.sleep(PAUSE_S)

    async def burst(self, worker: int) -> None:
        """Ask one worker for many things at once, and wait long for what it says."""
        chance = random.Random(f"{self._seed} burst {len(self.history)}")
        async with asyncio.TaskGroup() as tasks:
            for number in range(BURST):
                key = f"{self._name(chance.choice(SHARDS))}/{chance.randrange(ROWS)}"
                one = self._draft(chance, key)
                one.client, one.worker = PROBES_END + number, worker
                tasks.create_task(self.ask(one, timeout_s=BURST_S_MAX), name="burst")

    async def _probe(self, number: int, shard: str) -> None:
        """Write one shard evenly, of whichever worker answers, so that pauses are seen."""
        worker = number % len(self._workers)
        reads = False
        while not self._stop.is_set():
            one = Operation(number, worker, f"{self._name(shard)}/0", Kind.INCREMENT, 0.0, number=1)
            if reads:
                one.kind = Kind.GET
            else:
                one.mark = self._mark(number)
            await self.ask(one, timeout_s=0.4)
            if one.outcome in (Outcome.UNAVAILABLE, Outcome.UNKNOWN):
                worker = (worker + 1) % len(self._workers)
            await asyncio.sleep(0.02)
            reads = not reads

    def _draw_bound_s(self, chance: random.Random) -> float | None:
        """Return by how much a read may be stale; None where it may not."""
        return chance.choice(BOUNDS_S) if chance.random() < self._bounded else None

    def _choose(self, chance: random.Random) -> int:
        """Return a worker; one that just left a request unanswered is mostly let be, as SDKs do."""
        worker = chance.randrange(len(self._workers))
        if time.monotonic() < self._avoid_until_s[worker] and chance.random() < 0.9:
            worker = (worker + 1) % len(self._workers)
        return worker

    def _name(self, shard: str) -> str:
        """Return the partition key that is in use, and count one operation on it."""
        self._left[shard] -= 1
        if not self._left[shard]:
            self._left[shard] = GENERATION
            self._generation[shard] += 1
        return f"{shard}{self._generation[shard]:06}"

    def _mark(self, client: int) -> str:
        return f"{client}.{next(self._marks)}"

    def _draft(self, chance: random.Random, key: str) -> Operation:
        one = Operation(0, 0, key, chance.choice(KINDS), 0.0)
        if one.kind is Kind.GET:
            one.bound_s = self._draw_bound_s(chance)
            return one
        one.mark = self._mark(0) if one.kind is not Kind.DELETE else ""
        one.number = chance.randrange(3) if one.kind is Kind.PUT else 1
        condition = chance.random()
        expects: list[Expect] = ["EXPECT_EXIST", "EXPECT_NOT_EXIST"]
        if condition < 0.15:
            one.expect = chance.choice(expects)
        elif condition < 0.3 and key in self._seen:
            one.if_mark = self._seen[key]
        return one

    async def ask(self, one: Operation, *, timeout_s: float) -> None:
        """Ask for one operation and note the outcome."""
        self.history.append(one)
        operation, body = request_of(one)
        code, answer = await self._exchange(one, operation, body, timeout_s)
        if one.outcome is Outcome.OK:
            self._note_found(one, answer)
        elif one.outcome is Outcome.UNKNOWN and code not in ("", "OTSTimeout"):
            self.faults.append(f"{one.kind.value} {one.key} of worker {one.worker} got {code}")

    async def _exchange(
        self, one: Operation, operation: str, body: bytes, timeout_s: float
    ) -> tuple[str, bytes]:
        one.invoked_s = time.monotonic()
        try:
            code, answer = await self._workers[one.worker].call(
                operation, body, timeout_s=timeout_s, bound_s=one.bound_s
            )
        except NotSent:
            one.outcome, code, answer = Outcome.UNAVAILABLE, "", b""
            self._avoid_until_s[one.worker] = time.monotonic() + AVOID_S
            self.answers["not sent"] += 1
        except NoAnswer:
            code, answer = "", b""
            self._avoid_until_s[one.worker] = time.monotonic() + AVOID_S
            self.answers["no answer"] += 1
        else:
            one.outcome = _meaning(code, self._workers[one.worker].passing)
            self.answers[code or "ok"] += 1
        if one.outcome is not Outcome.UNKNOWN:
            one.returned_s = time.monotonic()
        return code, answer

    def _note_found(self, one: Operation, answer: bytes) -> None:
        if one.kind is Kind.GET:
            one.found = row_in(answer)
            if one.found is not None and one.bound_s is None:
                self._seen[one.key] = one.found[0]
        elif one.kind is Kind.INCREMENT:
            one.found = increment_of(answer)
        if one.mark:
            self._seen[one.key] = one.mark

    async def ask_range(
        self, client: int, worker: int, name: str, *, timeout_s: float, bound_s: float | None
    ) -> Outcome:
        """Read all rows of a partition key: a read of each, in the range's time."""
        keys = [f"{name}/{row}" for row in range(ROWS)]
        one = Operation(client, worker, name, Kind.GET, 0.0, bound_s=bound_s)
        body = range_request(name)
        code, answer = await self._exchange(one, "GetRange", body, timeout_s)
        rows: dict[str, Row] = {}
        if one.outcome is Outcome.OK:
            rows, following = rows_in(answer)
            if following or not set(rows) <= set(keys):
                self.faults.append(f"the range {name} holds {sorted(rows)}, then {following!r}")
        elif one.outcome is Outcome.UNKNOWN and code not in ("", "OTSTimeout"):
            self.faults.append(f"range {name} of worker {worker} got {code}")
        for key in keys:
            read = Operation(
                client, worker, key, Kind.GET, one.invoked_s, one.returned_s, one.outcome
            )
            read.found, read.bound_s = rows.get(key), bound_s
            self.history.append(read)
        return one.outcome


def _meaning(code: str, passing: Collection[str]) -> Outcome:
    if not code:
        return Outcome.OK
    if code == "OTSConditionCheckFail":
        return Outcome.REFUSED
    return Outcome.UNAVAILABLE if code in UNAVAILABLE or code in passing else Outcome.UNKNOWN
