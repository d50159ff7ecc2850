"""A shard that is written much ends on several workers by itself."""

from __future__ import annotations

import threading
import time
from functools import partial

import pytest

from rowtide.cli.client import Client
from tests.api.calls import ask, batch_write, key, put, puts
from tests.api.test_reshape import all_rows, shards
from tests.workers.conftest import SERVED_S_MAX, Retrying, Workers, repeated
from tests.workers.test_forwarding import create

pytestmark = pytest.mark.system

NAMES = [f"{letter}{number}" for letter in "abcdefghijklmnop" for number in range(4)]
SPLIT_WRITES_PER_S = 100


def write_on(client: Client, stop: threading.Event, failures: list[BaseException]) -> None:
    """Write all names again and again, as fast as that goes."""
    number = 0
    try:
        while not stop.is_set():
            rows = [put("moved", key(name, 1), puts(n=number)) for name in NAMES]
            repeated(partial(all_written, client, rows))
            number += 1
    except BaseException as error:
        failures.append(error)
        raise


def all_written(client: Client, rows: list[object]) -> None:
    """Write a batch, and repeat the rows that were refused, as an SDK does."""
    left = rows
    until = time.monotonic() + SERVED_S_MAX
    while left:
        answer = ask(client, batch_write([("moved", left)]))  # type: ignore[list-item]
        told = [row.is_ok for table in answer.tables for row in table.rows]
        left = [row for row, done in zip(left, told, strict=True) if not done]
        assert time.monotonic() < until


def workers_of(clients: list[Client]) -> list[set[str]]:
    """Return the open shards of each worker."""
    told = [client.call_json("RowtideStatus", {})["slots"] for client in clients]
    return [
        {s["shard"] for slot in slots for s in slot["shards"] if s["table"] == "moved"}
        for slots in told
    ]


def test_a_hot_shard_is_split_and_its_parts_spread(workers: Workers) -> None:
    clients = [
        workers.start("--split-writes-per-s", str(SPLIT_WRITES_PER_S), "--merge-after-s", "0")
        for _ in range(2)
    ]
    workers.settled()
    repeated(partial(ask, clients[0], create("moved")))
    stop, failures = threading.Event(), list[BaseException]()
    with workers.one(Retrying) as writing:
        writer = threading.Thread(target=write_on, args=(writing, stop, failures))
        writer.start()
        try:
            until = time.monotonic() + SERVED_S_MAX
            while not all(workers_of(clients)):
                assert time.monotonic() < until, shards(clients[0], "moved")
                time.sleep(0.5)  # There is nothing to wait on from outside.
        finally:
            stop.set()
            writer.join()
    assert not failures
    assert len(set(all_rows(clients[0], "moved").values())) == 1
    assert all_rows(clients[0], "moved").keys() == set(NAMES)
