"""Clients that make, change and remove tables and instances, asking any worker: a name is a row.

A table's largest number of versions is the row's number; an instance's is always 1. What is there
already can't be made, what is absent can't be changed or removed: these refusals are conditions
that did not hold. So the histories of names are judged as those of rows are, see
``tests/histories/linearizable.py``. Several clients go after each name.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Sequence

from rowtide.core.protocol.wire import ots_pb2 as pb
from tests.histories.client import NoAnswer, NotSent, WorkerClient
from tests.histories.linearizable import Undecided, by_key, find_unexplained
from tests.histories.load import UNAVAILABLE
from tests.histories.operation import Kind, Operation, Outcome, to_json
from tests.support.tables import create_request

__all__ = ["Makers", "judge_names"]

CLIENTS = 4
TABLES = ("t1", "t2")
INSTANCE = "maker"
NAMES = (*TABLES, INSTANCE)
TIMEOUT_S = 3.0
PAUSE_S = 0.05
READS = 0.4
"""Share of operations that only look."""

EXISTS, ABSENT = "OTSObjectAlreadyExist", "OTSObjectNotExist"
VERSIONS_MAX = 5


class Makers:
    """The clients and their answers; ``faults`` are the answers that are always wrong."""

    def __init__(self, workers: Sequence[WorkerClient], seed: int) -> None:
        self.history: list[Operation] = []
        self.faults: list[str] = []
        self.answers: Counter[str] = Counter()
        self._workers = workers
        self._seed = seed
        self._stop = asyncio.Event()

    def stop(self) -> None:
        """Let every client end with the operation it is at."""
        self._stop.set()

    async def run(self) -> None:
        """Run all clients until ``stop``."""
        async with asyncio.TaskGroup() as tasks:
            for number in range(CLIENTS):
                tasks.create_task(self._client(number), name=f"maker[{number}]")

    async def _client(self, number: int) -> None:
        chance = random.Random(f"{self._seed} maker {number}")
        while not self._stop.is_set():
            one = _draft(chance, chance.choice(NAMES))
            one.client, one.worker = number, chance.randrange(len(self._workers))
            await self._ask(one)
            await asyncio.sleep(PAUSE_S)

    async def look(self, worker: int) -> None:
        """See what there is in the end, through one worker, which answers."""
        for name in NAMES:
            while True:
                one = Operation(-1, worker, name, Kind.GET, 0.0)
                await self._ask(one)
                if one.outcome is Outcome.OK:
                    break
                await asyncio.sleep(PAUSE_S)

    async def _ask(self, one: Operation) -> None:
        self.history.append(one)
        operation, body = _request(one)
        worker = self._workers[one.worker]
        code, answer = "", b""
        one.invoked_s = time.monotonic()
        try:
            code, answer = await worker.call(operation, body, timeout_s=TIMEOUT_S)
        except NotSent:
            one.outcome = Outcome.UNAVAILABLE
        except NoAnswer:
            pass  # It may have been done.
        else:
            one.outcome = _meaning(one, code)
            if code in worker.passing:
                one.outcome = Outcome.UNAVAILABLE
            self.answers[code or "ok"] += 1
            if one.outcome is Outcome.UNKNOWN and code != "OTSTimeout":
                self.faults.append(f"{operation} {one.key} of worker {one.worker} got {code}")
        if one.outcome is not Outcome.UNKNOWN:
            one.returned_s = time.monotonic()
        if one.outcome is Outcome.OK and one.kind is Kind.GET and not code:
            one.found = _decode_row(one.key, answer)


def judge_names(history: Sequence[Operation]) -> list[str]:
    """Return what is wrong with the answers about each name."""
    anomalies: list[str] = []
    for name, operations in by_key(history).items():
        try:
            stuck = find_unexplained(operations)
        except Undecided as error:
            anomalies.append(f"no verdict: {error}")
            continue
        if stuck is not None:
            anomalies.append(f"not linearizable: {name} at {[to_json(o) for o in stuck]}")
    return anomalies


def _draft(chance: random.Random, name: str) -> Operation:
    if chance.random() < READS:
        return Operation(0, 0, name, Kind.GET, 0.0)
    number = 1 if name == INSTANCE else chance.randrange(1, VERSIONS_MAX)
    what = chance.random()
    if what < 0.4:
        return Operation(0, 0, name, Kind.PUT, 0.0, number=number, expect="EXPECT_NOT_EXIST")
    if what < 0.7 or name == INSTANCE:
        return Operation(0, 0, name, Kind.DELETE, 0.0, expect="EXPECT_EXIST")
    return Operation(0, 0, name, Kind.PUT, 0.0, number=number, expect="EXPECT_EXIST")


def _request(one: Operation) -> tuple[str, bytes]:
    if one.key == INSTANCE:
        return _instance_request(one)
    if one.kind is Kind.GET:
        return "DescribeTable", pb.DescribeTableRequest(table_name=one.key).SerializeToString()
    if one.kind is Kind.DELETE:
        return "DeleteTable", pb.DeleteTableRequest(table_name=one.key).SerializeToString()
    options = pb.TableOptions(max_versions=one.number)
    if one.expect == "EXPECT_EXIST":
        change = pb.UpdateTableRequest(table_name=one.key, table_options=options)
        return "UpdateTable", change.SerializeToString()
    options.time_to_live = -1
    made = create_request(one.key, [("name", pb.STRING)], table_options=options)
    return "CreateTable", made.SerializeToString()


def _instance_request(one: Operation) -> tuple[str, bytes]:
    if one.kind is Kind.GET:
        return "RowtideListInstances", b"{}"
    name = json.dumps({"name": one.key}).encode()
    return ("RowtideDeleteInstance" if one.kind is Kind.DELETE else "RowtideCreateInstance"), name


def _meaning(one: Operation, code: str) -> Outcome:
    if not code or (one.kind is Kind.GET and code == ABSENT):
        return Outcome.OK
    if code == (EXISTS if one.expect == "EXPECT_NOT_EXIST" else ABSENT):
        return Outcome.REFUSED
    return Outcome.UNAVAILABLE if code in UNAVAILABLE else Outcome.UNKNOWN


def _decode_row(name: str, answer: bytes) -> tuple[str, int] | None:
    """Return a name's row as an answer tells it."""
    if name != INSTANCE:
        return "", pb.DescribeTableResponse.FromString(answer).table_options.max_versions
    names = [one["name"] for one in json.loads(answer)["instances"]]
    return ("", 1) if name in names else None
