"""Shards move between workers while they are written and read."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from rowtide.cli.client import ProtocolClient, ServerError
from tests.api.calls import ask, delete, key, put, puts
from tests.api.test_reshape import all_rows, living, merge, numbers_of, read_stream, shards, split
from tests.workers.conftest import SLOTS, Workers, repeat
from tests.workers.test_forwarding import create

pytestmark = pytest.mark.system

NAMES = [f"{letter}{number}" for letter in "abcdefgh" for number in range(5)]


def write_all(client: ProtocolClient, number: int) -> None:
    for name in NAMES:
        ask(client, put("moved", key(name, 1), puts(n=number)))


def move(client: ProtocolClient, shard: str, slot: int) -> str:
    fields: dict[str, Any] = {"table": "moved", "shard": shard, "slot": slot}
    done = client.call_json("RowtideMoveShard", fields)
    assert done["done"]
    [child] = done["children"]
    return str(child)


def slot_of(client: ProtocolClient, shard: str) -> int:
    return next(int(s["slot"]) for s in shards(client, "moved") if s["shard"] == shard)


def test_a_shard_that_moves_takes_its_rows_along_and_leaves_nothing(workers: Workers) -> None:
    clients = [workers.start() for _ in range(2)]
    workers.wait_until_divided()
    first, second = clients
    repeat(partial(ask, first, create("moved")))
    write_all(first, 0)
    ask(first, delete("moved", key("a0", 1)))
    [shard] = living(first, "moved")
    place = slot_of(first, shard)
    for number in range(1, 4):
        place = (place + 1) % SLOTS
        shard = move(clients[number % 2], shard, place)
        write_all(second, number)
        ask(second, delete("moved", key("a0", 1)))
    expected = {name: 3 for name in NAMES if name != "a0"}
    for client in clients:
        assert all_rows(client, "moved") == expected
    numbers = numbers_of(read_stream(first, "moved"))
    assert numbers == {name: [0, 1, 2, 3] for name in NAMES}


def test_what_was_deleted_elsewhere_stays_deleted_when_a_shard_comes_back(
    workers: Workers,
) -> None:
    client = workers.start()
    repeat(partial(ask, client, create("moved")))
    write_all(client, 0)
    [shard] = living(client, "moved")
    home = slot_of(client, shard)
    away = move(client, shard, (home + 1) % SLOTS)
    gone = NAMES[::2]
    for name in gone:
        ask(client, delete("moved", key(name, 1)))
    move(client, away, home)
    left = {name: 0 for name in NAMES if name not in gone}
    assert all_rows(client, "moved") == left
    workers.running[0].kill()
    again = workers.again(0)
    assert all_rows(again, "moved") == left
    numbers = numbers_of(read_stream(again, "moved"))
    assert numbers == {name: [0] for name in NAMES}


def test_a_moved_shard_is_split_and_merged_like_any_other(workers: Workers) -> None:
    client = workers.start()
    repeat(partial(ask, client, create("moved")))
    write_all(client, 0)
    [shard] = living(client, "moved")
    left, right = split(client, "moved", shard)
    home = slot_of(client, left)
    right = move(client, right, (home + 1) % SLOTS)
    write_all(client, 1)
    with pytest.raises(ServerError, match="move one of them first"):
        merge(client, "moved", left, right)
    left = move(client, left, (home + 1) % SLOTS)
    merge(client, "moved", left, right)
    write_all(client, 2)
    assert numbers_of(read_stream(client, "moved")) == {name: [0, 1, 2] for name in NAMES}
    assert all_rows(client, "moved") == dict.fromkeys(NAMES, 2)
