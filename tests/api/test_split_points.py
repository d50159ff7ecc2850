"""ComputeSplitPointsBySize: cuts, locations, what it costs, and what is refused."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from rowtide.cli.client import ProtocolClient
from rowtide.client.wire_row import Key, encode_row
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.values.schema import INTEGER, STRING, KeyColumn
from tests.api.calls import INF_MAX, INF_MIN, ask, get_range, key, put, puts, refusal, rows, units
from tests.api.conftest import MakeTable
from tests.support.tables import create_request

pytestmark = pytest.mark.system

MIB = 1024 * 1024
INVALID = "400 OTSParameterInvalid "


def splits(table: str, size: int = 1, **fields: Any) -> pb.ComputeSplitPointsBySizeRequest:
    return pb.ComputeSplitPointsBySizeRequest(table_name=table, split_size=size, **fields)


def points(answer: Any) -> list[Key]:
    """Return the cuts; locations must cover exactly one part more."""
    assert sum(run.repeat for run in answer.locations) == len(answer.split_points) + 1
    assert {len(run.location) for run in answer.locations} == {32}
    return [rows(point)[0].key for point in answer.split_points]


def test_an_empty_table_is_one_part_and_costs_one_read_unit(
    client: ProtocolClient, make_table: MakeTable
) -> None:
    answer = ask(client, splits(make_table()))
    assert points(answer) == []
    assert units(answer) == (1, 0)
    assert [(c.name, c.type) for c in answer.schema] == [("PK1", pb.STRING), ("PK2", pb.INTEGER)]


def test_the_schema_shows_an_auto_increment_column(
    client: ProtocolClient, make_table: MakeTable
) -> None:
    table = make_table((KeyColumn("PK1", STRING), KeyColumn("PK2", INTEGER, True)))
    schema = ask(client, splits(table)).schema
    assert [c.HasField("option") for c in schema] == [False, True]


@pytest.fixture(scope="module")
def large_table(client: ProtocolClient, make_table: MakeTable) -> str:
    """A table of 200 rows of 100,000 bytes each."""
    table = make_table()
    for number in range(200):
        ask(client, put(table, key(f"{number:05}", number), puts(a="x" * 100_000)))
    return table


def test_a_table_below_the_size_is_one_part(client: ProtocolClient, large_table: str) -> None:
    assert points(ask(client, splits(large_table))) == []


def test_parts_have_the_size_asked_for_and_hold_every_row_once(
    client: ProtocolClient, large_table: str
) -> None:
    answer = ask(client, splits(large_table, 4, split_size_unit_in_byte=MIB))
    cuts = points(answer)
    edges = [key(INF_MIN, INF_MIN), *cuts, key(INF_MAX, INF_MAX)]
    counts = [len(ask_all(client, large_table, start, end)) for start, end in pairwise(edges)]
    assert sum(counts) == 200
    assert all(4 * MIB <= count * 100_000 < 4.5 * MIB for count in counts[:-1])
    assert len(cuts) == 4


def ask_all(client: ProtocolClient, table: str, start: Key, end: Key) -> list[Any]:
    """Return every row of a range, page by page."""
    request = get_range(table, start, end)
    found: list[Any] = []
    while True:
        answer = ask(client, request)
        found += rows(answer.rows)
        if not answer.HasField("next_start_primary_key"):
            return found
        request.inclusive_start_primary_key = answer.next_start_primary_key


def test_a_limit_of_cuts_makes_larger_parts(client: ProtocolClient, large_table: str) -> None:
    for limit in (1, 2, 3):
        request = splits(large_table, split_size_unit_in_byte=MIB, split_point_limit=limit)
        assert len(points(ask(client, request))) == limit


def test_a_table_in_several_shards_names_the_owner_of_each_part(client: ProtocolClient) -> None:
    ask(client, create_request("in_four_shards", [("PK1", pb.STRING)], cuts="ceg"))
    try:
        assert points(ask(client, splits("in_four_shards"))) == []
        for letter in "abcdefgh":
            ask(client, put("in_four_shards", key(letter), puts(a="x" * 600_000)))
        answer = ask(client, splits("in_four_shards", split_size_unit_in_byte=MIB))
        assert points(answer) == [key("c"), key("e"), key("g")]
        assert [run.repeat for run in answer.locations] == [1, 1, 1, 1]
    finally:
        client.delete_table("in_four_shards")


def test_a_cut_can_be_the_bound_of_a_range(client: ProtocolClient, large_table: str) -> None:
    answer = ask(client, splits(large_table, 4, split_size_unit_in_byte=MIB))
    request = get_range(large_table, key(INF_MIN, INF_MIN), key(INF_MAX, INF_MAX))
    request.exclusive_end_primary_key = answer.split_points[0]
    request.limit = 1
    assert rows(ask(client, request).rows)[0].key == key("00000", 0)
    request.inclusive_start_primary_key = answer.split_points[0]
    request.exclusive_end_primary_key = encode_row(key(INF_MAX, INF_MAX))
    assert rows(ask(client, request).rows)[0].key == points(answer)[0]


SIZE = "The split_size should be greater than 0."
UNIT = "The split_size_unit_in_byte should be greater equal than: 1048576"
LIMIT = "The split_point_limit should be greater than 0."


@pytest.mark.parametrize(
    ("size", "fields", "text"),
    [
        (0, {}, SIZE),
        (-1, {}, SIZE),
        (0, {"split_size_unit_in_byte": 100 * MIB}, SIZE),
        (1000, {"split_size_unit_in_byte": 0}, UNIT),
        (1, {"split_size_unit_in_byte": MIB - 1}, UNIT),
        (1, {"split_point_limit": 0}, LIMIT),
    ],
)
def test_a_request_out_of_bounds_is_told(
    client: ProtocolClient, make_table: MakeTable, size: int, fields: dict[str, int], text: str
) -> None:
    assert refusal(client, splits(make_table(), size, **fields)) == INVALID + text


def test_a_missing_table_is_told(client: ProtocolClient) -> None:
    missing = "404 OTSObjectNotExist Requested table does not exist."
    assert refusal(client, splits("no_such_table")) == missing
    assert refusal(client, splits("3t")) == INVALID + "Invalid table name: '3t'."
