"""What each operation says that it used: started 4096 bytes, at least one unit."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from rowtide.cli.client import ProtocolClient
from rowtide.client.wire_row import Delete, Put
from rowtide.core.protocol.wire import ots_pb2 as pb
from tests.api.calls import (
    INF_MAX,
    INF_MIN,
    ask,
    batch_get,
    batch_write,
    delete,
    get,
    get_range,
    key,
    put,
    units,
    update,
)
from tests.api.conftest import MakeTable

pytestmark = pytest.mark.system

PK = key("row", 1)
NOW_MS = time.time_ns() // 1_000_000
KEY_BYTES = len("PK1" + "row" + "PK2") + 8
EXPECTED = pb.Condition(row_existence=pb.EXPECT_EXIST)


@pytest.fixture(scope="module")
def table(make_table: MakeTable) -> str:
    """Return a table keyed PK1 STRING, PK2 INTEGER."""
    return make_table()


def make_columns(size: int) -> list[Put]:
    """Return the columns that make a row of PK ``size`` bytes large."""
    return [Put("c", b"x" * (size - KEY_BYTES - 1))]


ABSENT = key("absent", 1)
WRITES: dict[str, tuple[Callable[[str], Any], tuple[int, int]]] = {
    "put of a little": (lambda t: put(t, PK, make_columns(100)), (0, 1)),
    "put of 4096 bytes": (lambda t: put(t, PK, make_columns(4096)), (0, 1)),
    "put of 4097 bytes": (lambda t: put(t, PK, make_columns(4097)), (0, 2)),
    "put of 7.6 KB": (lambda t: put(t, PK, make_columns(7782)), (0, 2)),
    "put expecting": (lambda t: put(t, PK, make_columns(4097), condition=EXPECTED), (1, 2)),
    "put of two versions, one of which is kept": (
        lambda t: put(t, PK, [Put("c", b"x" * 3000, NOW_MS), Put("c", b"x" * 3000, NOW_MS - 1)]),
        (0, 2),
    ),
    "put of a key": (lambda t: put(t, PK), (0, 1)),
    "update of 4097 bytes": (lambda t: update(t, PK, make_columns(4097)), (0, 2)),
    "update of another column of a large row": (lambda t: update(t, PK, [Put("d", 1)]), (0, 1)),
    "update that deletes": (lambda t: update(t, PK, [Delete("c")]), (0, 1)),
    "update expecting": (lambda t: update(t, PK, make_columns(4097), condition=EXPECTED), (1, 2)),
    "delete of a large row": (lambda t: delete(t, PK), (0, 1)),
    "delete expecting": (lambda t: delete(t, PK, condition=EXPECTED), (1, 1)),
    "delete of nothing": (lambda t: delete(t, ABSENT), (0, 1)),
}


@pytest.mark.parametrize("case", WRITES)
def test_a_write_costs_what_it_writes(client: ProtocolClient, table: str, case: str) -> None:
    request, used = WRITES[case]
    ask(client, put(table, PK, make_columns(9000)))
    assert units(ask(client, request(table))) == used


@pytest.mark.parametrize("case", WRITES)
def test_a_row_of_a_batch_costs_the_same(client: ProtocolClient, table: str, case: str) -> None:
    request, used = WRITES[case]
    ask(client, put(table, PK, make_columns(9000)))
    answer = ask(client, batch_write([(table, [request(table)])]))
    assert units(answer.tables[0].rows[0]) == used


@pytest.mark.parametrize(("size", "used"), [(100, 1), (4096, 1), (4097, 2), (8192, 2), (8193, 3)])
def test_a_read_costs_what_it_returns(
    client: ProtocolClient, table: str, size: int, used: int
) -> None:
    ask(client, put(table, PK, make_columns(size)))
    assert units(ask(client, get(table, PK))) == (used, 0)
    answer = ask(client, batch_get([(table, [PK, ABSENT])]))
    assert [units(row) for row in answer.tables[0].rows] == [(used, 0), (1, 0)]
    assert units(ask(client, get(table, PK, columns_to_get=["PK1"]))) == (1, 0)


def test_a_read_of_nothing_costs_one_unit(client: ProtocolClient, table: str) -> None:
    assert units(ask(client, get(table, ABSENT))) == (1, 0)
    nothing = get_range(table, key("m", 1), key("n", 1))
    assert units(ask(client, nothing)) == (1, 0)


def test_a_range_is_rounded_once(client: ProtocolClient, make_table: MakeTable) -> None:
    table = make_table()
    everything = get_range(table, key(INF_MIN, INF_MIN), key(INF_MAX, INF_MAX))
    for number in range(10):
        ask(client, put(table, key("row", number), make_columns(410)))
    assert units(ask(client, everything)) == (2, 0), "4100 bytes"
    for number in range(2, 10):
        ask(client, delete(table, key("row", number)))
    for number in range(2):
        ask(client, put(table, key("row", number), make_columns(12300)))
    assert units(ask(client, everything)) == (7, 0), "24600 bytes"
    small = get_range(table, key(INF_MIN, INF_MIN), key(INF_MAX, INF_MAX), columns_to_get=["PK1"])
    assert units(ask(client, small)) == (1, 0)
