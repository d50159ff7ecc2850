"""Shards change by themselves: hot ones spread, large ones are split, cold ones are merged."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from rowtide.cli.client import ProtocolClient
from tests.api.calls import ask, batch_write, key, put, puts
from tests.api.test_reshape import all_rows, living, shards, split
from tests.support.waiting import until
from tests.workers.conftest import SERVED_S_MAX, Retrying, Workers, repeat
from tests.workers.test_forwarding import create

pytestmark = pytest.mark.system

NAMES = [f"{letter}{number}" for letter in "abcdefghijklmnop" for number in range(4)]
SPLIT_WRITES_PER_S = 100

SPLIT_BYTES = 4 << 20
ROW_BYTES = 256 << 10
LARGE = [f"{letter}{number}" for letter in "abcdefghijkl" for number in range(8)]
"""Names of 24 MiB of rows: RocksDB keeps the last 16 MiB in memory, which is no size on disk."""


def write_on(client: ProtocolClient, stop: threading.Event, failures: list[BaseException]) -> None:
    """Write all names again and again, as fast as that goes."""
    number = 0
    try:
        while not stop.is_set():
            rows = [put("moved", key(name, 1), puts(n=number)) for name in NAMES]
            repeat(partial(all_written, client, rows))
            number += 1
    except BaseException as error:
        failures.append(error)
        raise


def all_written(client: ProtocolClient, rows: list[object]) -> None:
    """Write a batch, and repeat the rows that were refused, as an SDK does."""
    left = rows
    until = time.monotonic() + SERVED_S_MAX
    while left:
        answer = ask(client, batch_write([("moved", left)]))  # type: ignore[list-item]
        are_ok = [row.is_ok for table in answer.tables for row in table.rows]
        left = [row for row, done in zip(left, are_ok, strict=True) if not done]
        assert time.monotonic() < until


def workers_of(clients: list[ProtocolClient]) -> list[set[str]]:
    """Return the open shards of each worker."""
    by_worker = [client.call_json("RowtideStatus", {})["slots"] for client in clients]
    return [
        {s["shard"] for slot in slots for s in slot["shards"] if s["table"] == "moved"}
        for slots in by_worker
    ]


def test_a_hot_shard_is_split_and_its_parts_spread(workers: Workers) -> None:
    clients = [
        workers.start("--split-writes-per-s", str(SPLIT_WRITES_PER_S), "--merge-after-s", "0")
        for _ in range(2)
    ]
    workers.wait_until_divided()
    repeat(partial(ask, clients[0], create("moved")))
    stop, failures = threading.Event(), list[BaseException]()
    with workers.one(Retrying) as writing:
        writer = threading.Thread(target=write_on, args=(writing, stop, failures))
        writer.start()
        try:
            until(lambda: all(workers_of(clients)), lambda: shards(clients[0], "moved"), poll_s=0.5)
        finally:
            stop.set()
            writer.join()
    assert not failures
    assert len(set(all_rows(clients[0], "moved").values())) == 1
    assert all_rows(clients[0], "moved").keys() == set(NAMES)


def fill(client: ProtocolClient, chance: random.Random) -> None:
    """Write rows that don't compress, of which a part ends on disk."""
    for at in range(0, len(LARGE), 8):
        rows: list[object] = [
            put("moved", key(name, 1), puts(n=1, filler=chance.randbytes(ROW_BYTES)))
            for name in LARGE[at : at + 8]
        ]
        repeat(partial(all_written, client, rows))


def wait_for_shards(
    client: ProtocolClient, table: str, *, enough: Callable[[int], bool]
) -> list[dict[str, Any]]:
    """Return the open shards of a table once there are as many as is waited for."""
    until = time.monotonic() + SERVED_S_MAX
    while True:
        found = [shard for shard in shards(client, table) if shard["state"] == "open"]
        if enough(len(found)):
            return found
        assert time.monotonic() < until, found
        time.sleep(0.1)  # There is nothing to wait on from outside.


def test_small_cold_parts_are_merged_and_a_large_shard_is_split(
    workers: Workers, seed: int
) -> None:
    client = workers.start("--split-bytes", str(SPLIT_BYTES), "--merge-after-s", "1")
    workers.wait_until_divided()
    repeat(partial(ask, client, create("moved")))
    for name in LARGE:
        repeat(partial(ask, client, put("moved", key(name, 1), puts(n=0))))
    parts = split(client, "moved", *living(client, "moved"))
    [whole] = wait_for_shards(client, "moved", enough=lambda count: count == 1)
    assert whole["parents"] == parts
    assert all_rows(client, "moved") == dict.fromkeys(LARGE, 0)
    fill(client, random.Random(seed))
    wait_for_shards(client, "moved", enough=lambda count: count > 1)
    assert all_rows(client, "moved") == dict.fromkeys(LARGE, 1)
