"""What a server says that was consumed, by a clock that the test holds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from rowtide.cli.client import ServerError
from rowtide.client.wire_row import Put, encode_row
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.values.schema import INTEGER, STRING, KeyColumn
from tests.api.calls import (
    INF_MAX,
    INF_MIN,
    OK,
    ask,
    batch_get,
    batch_write,
    delete,
    get,
    get_range,
    key,
    put,
    refusal,
    update,
)
from tests.api.test_stream import enable_stream
from tests.model.world import PARTITION_UNITS, World

pytestmark = pytest.mark.system

KEY = (KeyColumn("PK1", STRING), KeyColumn("PK2", INTEGER))
ROW = key("a", 1)
UNIT = 4096
HOUR_MS = 3_600_000
FREQUENT = (
    "403 OTSTooFrequentReservedThroughputAdjustment Capacity unit adjustment is too frequent."
)
EXHAUSTED = (
    f"403 OTSCapacityUnitExhausted The capacity units of one partition key are exhausted: "
    f"{PARTITION_UNITS} per second."
)


@pytest.fixture
def hour_s(world: World) -> int:
    """Begin an hour that nobody used."""
    world.set_clock((world.high_ms // HOUR_MS + 2) * HOUR_MS)
    read_consumption(world)
    return world.now_ms // 1000


@pytest.fixture
def table(world: World, hour_s: int) -> Iterator[str]:
    """Return a table made at the hour's begin, with 100 units reserved for reads and writes."""
    world.tables += 1
    name = f"metered_{world.tables}"
    world.client.create_table(name, KEY, reserved=(100, 100), stream=enable_stream())
    yield name
    world.client.delete_table(name)


def read_consumption(world: World, **fields: Any) -> list[dict[str, Any]]:
    """Return the hours that the server tells of."""
    hours = world.client.call_json("RowtideConsumption", fields)["hours"]
    assert isinstance(hours, list)
    return hours


def units_of(world: World, table: str | None, hour_s: int) -> tuple[int, int]:
    """Return the units read and written of a table, None for missing ones, in an hour."""
    for hour in read_consumption(world, **{"from": hour_s, "to": hour_s + 3600}):
        if hour["table"] == table:
            return hour["read"], hour["write"]
    return 0, 0


def make_column(units: int) -> list[Put]:
    """Return a column that takes so many units."""
    return [Put("c", b"x" * (units * UNIT - 300))]


def test_the_worked_example(world: World, table: str, hour_s: int) -> None:
    for units in (120, 95, 110):
        ask(world.client, put(table, ROW, make_column(units)))
        world.set_clock(world.now_ms + 1000)
    (hour,) = read_consumption(world, table=table)
    assert hour == {
        "hour_s": hour_s,
        "table": table,
        "read": 0,
        "write": 325,
        "read_reserved": 100.0,
        "write_reserved": 100.0,
        "read_on_demand": 0,
        "write_on_demand": 30,
    }


OTHER = key("b", 2)
CONDITION = pb.Condition(row_existence=pb.EXPECT_EXIST)
EVERYTHING = key(INF_MIN, INF_MIN), key(INF_MAX, INF_MAX)
OPERATIONS: dict[str, tuple[Any, tuple[int, int]]] = {
    "put": (lambda t: put(t, ROW, make_column(3)), (0, 3)),
    "put under a condition": (lambda t: put(t, ROW, make_column(3), condition=CONDITION), (1, 3)),
    "update": (lambda t: update(t, ROW, make_column(2)), (0, 2)),
    "delete": (lambda t: delete(t, ROW), (0, 1)),
    "get": (lambda t: get(t, ROW), (2, 0)),
    "get of nothing": (lambda t: get(t, OTHER), (1, 0)),
    "range": (lambda t: get_range(t, *EVERYTHING), (2, 0)),
    "batch write": (
        lambda t: batch_write([(t, [put(t, ROW, make_column(2)), delete(t, OTHER)])]),
        (0, 3),
    ),
    "atomic batch write": (
        lambda t: batch_write([(t, [put(t, ROW, make_column(2)), delete(t, ROW)])], is_atomic=True),
        (0, 3),
    ),
    "batch get": (lambda t: batch_get([(t, [ROW, OTHER])]), (3, 0)),
}


@pytest.mark.parametrize("case", OPERATIONS)
def test_every_operation_is_counted(world: World, table: str, hour_s: int, case: str) -> None:
    request, used = OPERATIONS[case]
    ask(world.client, put(table, ROW, make_column(2)))
    before = units_of(world, table, hour_s)
    ask(world.client, request(table))
    after = units_of(world, table, hour_s)
    assert (after[0] - before[0], after[1] - before[1]) == used


def test_a_transaction_and_the_stream_are_counted(world: World, table: str, hour_s: int) -> None:
    begin = pb.StartLocalTransactionRequest(table_name=table, key=encode_row(key("a")))
    transaction_id = ask(world.client, begin).transaction_id
    ask(world.client, put(table, ROW, make_column(2), transaction_id=transaction_id))
    ask(world.client, pb.CommitTransactionRequest(transaction_id=transaction_id))
    (stream,) = world.client.list_stream(table)
    (shard,) = world.client.describe_stream(stream.stream_id).shards
    start = world.client.get_shard_iterator(stream.stream_id, shard.shard_id)
    assert len(world.client.get_stream_record(start).records) == 1
    assert units_of(world, table, hour_s) == (2, 2)


def test_what_names_no_table_costs_a_unit(world: World, hour_s: int) -> None:
    none = "no_such_table"
    for request in (get(none, ROW), get_range(none, *EVERYTHING), put(none, ROW)):
        assert refusal(world.client, request).startswith("404 OTSObjectNotExist")
    ask(world.client, batch_get([(none, [ROW, OTHER])]))
    ask(world.client, batch_write([(none, [put(none, ROW), delete(none, ROW)])]))
    assert units_of(world, None, hour_s) == (4, 3)


def test_a_refused_write_costs_nothing(world: World, table: str, hour_s: int) -> None:
    assert refusal(world.client, put(table, ROW, make_column(1), condition=CONDITION)) != OK
    assert units_of(world, table, hour_s) == (0, 0)


def test_sums_outlive_the_server(world: World, table: str, hour_s: int) -> None:
    ask(world.client, put(table, ROW, make_column(3)))
    world.restart(kill=False)
    ask(world.client, put(table, ROW, make_column(4)))
    assert units_of(world, table, hour_s) == (0, 7)


def test_a_partition_key_that_used_up_its_second_waits_for_the_next(
    world: World, table: str
) -> None:
    heavy = batch_write([(table, [put(table, ROW, make_column(500)) for _ in range(2)])])
    for _ in range(PARTITION_UNITS // 1000):
        ask(world.client, heavy)
    assert refusal(world.client, put(table, ROW, make_column(1))) == EXHAUSTED
    assert refusal(world.client, get(table, ROW)) == EXHAUSTED
    assert refusal(world.client, put(table, OTHER, make_column(1))) == OK
    world.set_clock(world.now_ms + 1000)
    assert refusal(world.client, put(table, ROW, make_column(1))) == OK


def reserve(table: str, read: int, write: int) -> pb.UpdateTableRequest:
    """Return a change of a table's reservation."""
    units = pb.CapacityUnit(read=read, write=write)
    reserved = pb.ReservedThroughput(capacity_unit=units)
    return pb.UpdateTableRequest(table_name=table, reserved_throughput=reserved)


def test_a_reservation_changes_once_in_two_minutes(world: World, table: str) -> None:
    client = world.client
    assert refusal(client, reserve(table, 1, 2)) == FREQUENT, "two minutes since its creation"
    assert refusal(client, reserve(table, 100, 100)) == OK, "nothing changes"
    world.set_clock(world.now_ms + 119_000)
    assert refusal(client, reserve(table, 1, 2)) == FREQUENT
    world.set_clock(world.now_ms + 1000)
    assert refusal(client, reserve(table, 1, 2)) == OK
    assert refusal(client, reserve(table, 3, 4)) == FREQUENT
    world.set_clock(world.now_ms + 120_000)
    assert refusal(client, reserve(table, 3, 4)) == OK
    details = client.describe_table(table).reserved_throughput_details
    assert (details.capacity_unit.read, details.capacity_unit.write) == (3, 4)
    assert details.last_increase_time == world.now_ms // 1000


def test_an_instance_of_kind_capacity_reserves_nothing(world: World, hour_s: int) -> None:
    world.client.call_json("RowtideCreateInstance", {"name": "spare", "kind": "capacity"})
    access = world.server.ready()._replace(instance="spare")
    with type(world.client)(**access._asdict()) as client:
        for reserved, what in (((1, 0), "read is 1"), ((0, 2), "write is 2")):
            with pytest.raises(ServerError, match="OTSParameterInvalid") as refused:
                client.create_table("metered", KEY, reserved=reserved)
            assert refused.value.message.endswith(f"in a capacity instance, but {what}.")
        client.create_table("metered", KEY)
        ask(client, put("metered", ROW, make_column(2)))
        assert refusal(client, reserve("metered", 1, 0)).startswith("400 OTSParameterInvalid")
        assert refusal(client, reserve("metered", 0, 0)) == OK
        (hour,) = client.call_json("RowtideConsumption", {})["hours"]
        assert (hour["table"], hour["write_reserved"], hour["write_on_demand"]) == (
            "metered",
            0.0,
            2,
        )
        client.delete_table("metered")
    assert [hour["table"] for hour in read_consumption(world, instance="Spare")] == ["metered"]
    world.client.call_json("RowtideDeleteInstance", {"name": "spare"})


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"from": "yesterday"}, "OTSParameterInvalid"),
        ({"table": 1}, "OTSParameterInvalid"),
        ({"until": 1}, "OTSParameterInvalid"),
        ({"instance": "nowhere"}, "OTSObjectNotExist"),
    ],
)
def test_a_wrong_question_is_refused(world: World, fields: dict[str, Any], code: str) -> None:
    with pytest.raises(ServerError, match=code):
        read_consumption(world, **fields)
