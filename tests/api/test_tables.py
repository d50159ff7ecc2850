"""The life of a table: what it may be, what it shows, what of it can be changed."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from rowtide.cli.client import ProtocolClient, ServerError
from rowtide.core.protocol import plainbuffer
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.values import variant
from tests.api.calls import INF_MAX, INF_MIN, ask, get, get_range, key, put, puts, refusal, rows
from tests.api.conftest import MakeTable

pytestmark = pytest.mark.system

NO_TABLE = "404 OTSObjectNotExist Requested table does not exist."
INVALID = "400 OTSParameterInvalid "
PK = key("a", 1)


def create(name: str = "created", **parts: Any) -> pb.CreateTableRequest:
    """Return a request for a table keyed PK0 STRING; ``parts`` replace its parts."""
    request = pb.CreateTableRequest(
        table_options=pb.TableOptions(time_to_live=-1, max_versions=1),
        reserved_throughput=pb.ReservedThroughput(capacity_unit=pb.CapacityUnit(read=0, write=0)),
    )
    request.table_meta.table_name = name
    for column, kind in parts.pop("key", [("PK0", pb.STRING)]):
        request.table_meta.primary_key.add(name=column, type=kind)
    for field, value in parts.items():
        if field == "partitions":
            request.partitions.extend(
                pb.PartitionRange(begin=begin, end=end) for begin, end in value
            )
        else:
            getattr(request, field).CopyFrom(value)
    return request


def options(**values: Any) -> dict[str, Any]:
    """Return the part of a request that holds table options."""
    return {"table_options": pb.TableOptions(**values)}


def stream(**values: Any) -> dict[str, Any]:
    """Return the part of a request that asks for a stream."""
    return {"stream_spec": pb.StreamSpecification(enable_stream=True, **values)}


def reserve(read: int, write: int) -> dict[str, Any]:
    """Return the part of a request that reserves throughput."""
    unit = pb.CapacityUnit(read=read, write=write)
    return {"reserved_throughput": pb.ReservedThroughput(capacity_unit=unit)}


def cuts(*points: bytes) -> list[tuple[bytes, bytes]]:
    """Return partition ranges from INF_MIN over the points to INF_MAX."""
    bounds = [variant.V_INF_MIN, *points, variant.V_INF_MAX]
    return list(pairwise(bounds))


TEXT = {"key": [("PK0", pb.STRING)]}
NUMBER = {"key": [("PK0", pb.INTEGER)]}
BYTES = {"key": [("PK0", pb.BINARY)]}
v = variant.encode
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no key": ({"key": []}, "The number of primary key columns must be in range: [1, 4]."),
    "five key columns": (
        {"key": [(f"PK{n}", pb.STRING) for n in range(5)]},
        "The number of primary key columns must be in range: [1, 4].",
    ),
    "a key column twice": (
        {"key": [("PK0", pb.STRING), ("PK0", pb.INTEGER)]},
        "Duplicated primary key name: 'PK0'.",
    ),
    "a key column's name": ({"key": [("#PK", pb.STRING)]}, "Invalid column name: '#PK'."),
    "a key column without a name": ({"key": [("", pb.STRING)]}, "Invalid column name: ''."),
    "a boolean key": (
        {"key": [("PK0", pb.PK_BOOLEAN)]},
        "VT_BOOLEAN is an invalid type for the primary key.",
    ),
    "eleven partitions": (
        {**NUMBER, "partitions": cuts(*(v(n) for n in range(10)))},
        "The count of partitions cannot be greater than 10",
    ),
    "a cut at the lowest number": (
        {**NUMBER, "partitions": cuts(v(-(2**63)))},
        "The value of partition range can not be INT64_MIN or INT64_MAX.",
    ),
    "a cut at the highest number": (
        {**NUMBER, "partitions": cuts(v(2**63 - 1))},
        "The value of partition range can not be INT64_MIN or INT64_MAX.",
    ),
    "a cut of another type": (
        {**TEXT, "partitions": cuts(v(5))},
        "The value type of partition does not match with primary key.",
    ),
    "a cut at the empty text": (
        {**TEXT, "partitions": cuts(v(""))},
        "The value of partition range can not be empty string.",
    ),
    "a cut at a text of 65 bytes": (
        {**TEXT, "partitions": cuts(v("Z" * 65))},
        "The value of partition range exceeds the MaxLength:64 with CurrentLength:65.",
    ),
    "a cut at a text of 66 bytes in 22 characters": (
        {**TEXT, "partitions": cuts(v("a"), v("\u4e2d\u56fd" * 11))},
        "The value of partition range exceeds the MaxLength:64 with CurrentLength:66.",
    ),
    "a cut at 65 bytes": (
        {**BYTES, "partitions": cuts(v(bytes(65)))},
        "The value of partition range exceeds the MaxLength:64 with CurrentLength:65.",
    ),
    "a cut at the longest key": (
        {**BYTES, "partitions": cuts(v(bytes(1024)))},
        "The value of partition range exceeds the MaxLength:64 with CurrentLength:1024.",
    ),
    "an empty cut before others": (
        {**TEXT, "partitions": cuts(v(""), v("England"))},
        "The value of partition range can not be empty string.",
    ),
    "a cut at no bytes": (
        {**BYTES, "partitions": cuts(v(b""))},
        "The value of partition range can not be empty binary.",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_table_is_refused_with_the_services_text(client: ProtocolClient, case: str) -> None:
    parts, text = REFUSED[case]
    assert refusal(client, create(**parts)) == INVALID + text
    assert "created" not in client.list_table()


# The protocol gives these a code, but no text.
UNTOLD: dict[str, dict[str, Any]] = {
    "no versions": options(max_versions=0),
    "versions below none": options(max_versions=-1),
    "a life of no time": options(time_to_live=0),
    "a life under a day": options(time_to_live=86399),
    "no deviation": options(deviation_cell_version_in_sec=0),
    "a stream of no hours": stream(expiration_time=0),
    "a stream of 169 hours": stream(expiration_time=169),
    "a stream of a bad column": stream(expiration_time=1, columns_to_get=["#x"]),
    "negative throughput": reserve(-1, 0),
    "throughput over 5000": reserve(0, 5001),
    "partitions that do not start at INF_MIN": {"partitions": cuts(v("m"))[1:]},
    "partitions that do not end at INF_MAX": {"partitions": cuts(v("m"))[:1]},
    "partitions out of order": {"partitions": cuts(v("m"), v("b"))},
    "the same cut twice": {"partitions": cuts(v("m"), v("m"))},
    "a gap between partitions": {
        "partitions": [
            (variant.V_INF_MIN, v("a")),
            (v("b"), variant.V_INF_MAX),
        ]
    },
    "a cut of no value": {"partitions": cuts(b"\x63")},
}


@pytest.mark.parametrize("case", UNTOLD)
def test_a_table_without_sense_is_refused(client: ProtocolClient, case: str) -> None:
    assert refusal(client, create(**UNTOLD[case])).startswith(INVALID)
    assert "created" not in client.list_table()


@pytest.mark.parametrize("name", ["", "0", "3t", "-", "T#", "表", "a b", "a\n", "a" * 256])
def test_a_bad_name_is_refused_by_every_operation(client: ProtocolClient, name: str) -> None:
    for request in (
        create(name),
        pb.DescribeTableRequest(table_name=name),
        pb.UpdateTableRequest(table_name=name),
        pb.DeleteTableRequest(table_name=name),
        pb.ListStreamRequest(table_name=name),
    ):
        assert refusal(client, request) == f"{INVALID}Invalid table name: '{name}'.", request


@pytest.mark.parametrize("name", ["_0", "_T", "A0", "_", "a" * 255])
def test_a_good_name_makes_a_table(client: ProtocolClient, name: str) -> None:
    assert refusal(client, create(name)) == "ok"
    assert name in client.list_table()
    assert refusal(client, create(name)) == (
        "409 OTSObjectAlreadyExist Requested table already exists."
    )
    client.delete_table(name)
    assert name not in client.list_table()


def test_names_differ_by_case_and_are_listed_in_order(client: ProtocolClient) -> None:
    for name in ("zz", "Zz", "aZ"):
        assert refusal(client, create(name)) == "ok"
    assert [name for name in client.list_table() if name in ("zz", "Zz", "aZ")] == [
        "Zz",
        "aZ",
        "zz",
    ]
    for name in ("zz", "Zz", "aZ"):
        client.delete_table(name)


@pytest.mark.parametrize(
    "request_of",
    [
        lambda: pb.DescribeTableRequest(table_name="absent"),
        lambda: pb.DeleteTableRequest(table_name="absent"),
        lambda: pb.UpdateTableRequest(
            table_name="absent", table_options=pb.TableOptions(max_versions=2)
        ),
    ],
)
def test_an_absent_table_is_told(client: ProtocolClient, request_of: Callable[[], Any]) -> None:
    assert refusal(client, request_of()) == NO_TABLE


def test_a_new_table_shows_all_that_every_sdk_needs(client: ProtocolClient) -> None:
    before_us = time.time_ns() // 1000
    shape = [("a", pb.STRING), ("b", pb.INTEGER), ("c", pb.BINARY), ("d", pb.STRING)]
    ask(client, create("described", key=shape, **reserve(0, 0)))
    described = ask(client, pb.DescribeTableRequest(table_name="described"))
    client.delete_table("described")
    meta = described.table_meta
    assert meta.table_name == "described"
    assert [(column.name, column.type) for column in meta.primary_key] == shape
    assert described.table_status == pb.ACTIVE
    shown = described.table_options
    assert [
        (field, getattr(shown, field))
        for field in ("time_to_live", "max_versions", "deviation_cell_version_in_sec")
        if shown.HasField(field)
    ] == [("time_to_live", -1), ("max_versions", 1), ("deviation_cell_version_in_sec", 86400)]
    details = described.reserved_throughput_details
    assert details.capacity_unit.HasField("read")
    assert details.capacity_unit.HasField("write")
    assert details.last_increase_time >= before_us // 1_000_000, "seconds"
    assert before_us <= described.creation_time <= time.time_ns() // 1000, "microseconds"
    assert described.HasField("stream_details")
    assert not described.stream_details.enable_stream
    assert not described.stream_details.HasField("stream_id")
    assert not described.HasField("sse_details")
    assert list(described.shard_splits) == []


def test_a_table_without_options_has_the_defaults(client: ProtocolClient) -> None:
    request = create("defaults")
    request.ClearField("table_options")
    ask(client, request)
    shown = ask(client, pb.DescribeTableRequest(table_name="defaults")).table_options
    client.delete_table("defaults")
    assert (shown.time_to_live, shown.max_versions, shown.allow_update) == (-1, 1, True)


def test_the_cuts_of_a_table_are_shown_and_divide_its_keys(client: ProtocolClient) -> None:
    points = ["g", "p"]
    ask(client, create("cut", partitions=cuts(*(v(point) for point in points)), **stream()))
    described = ask(client, pb.DescribeTableRequest(table_name="cut"))
    shown = [plainbuffer.decode_row(split).key for split in described.shard_splits]
    assert shown == [[(b"PK0", v(point))] for point in points]
    asked = pb.DescribeStreamRequest(stream_id=described.stream_details.stream_id)
    assert len(ask(client, asked).shards) == 3
    named = ["PK0"]
    for value in ("z", "g", "a", "p", "f", "o"):
        ask(client, put("cut", key(value, names=named)))
    everything = get_range("cut", key(INF_MIN, names=named), key(INF_MAX, names=named))
    found = [row.key[0][1] for row in rows(ask(client, everything).rows)]
    backward = get_range(
        "cut", key("p", names=named), key("f", names=named), direction=pb.BACKWARD, limit=2
    )
    answer = ask(client, backward)
    client.delete_table("cut")
    assert found == ["a", "f", "g", "o", "p", "z"]
    assert [row.key[0][1] for row in rows(answer.rows)] == ["p", "o"]
    assert plainbuffer.decode_row(answer.next_start_primary_key).key == [(b"PK0", v("g"))]


@pytest.mark.parametrize(
    "number", [v(0), v(-1), v(-(2**63) + 1), v(2**63 - 2)], ids=["0", "-1", "min + 1", "max - 1"]
)
def test_a_table_may_be_cut_at_any_other_number(client: ProtocolClient, number: bytes) -> None:
    ask(client, create("cut_at", **NUMBER, partitions=cuts(number)))
    shown = ask(client, pb.DescribeTableRequest(table_name="cut_at")).shard_splits
    client.delete_table("cut_at")
    assert [plainbuffer.decode_row(split).key[0][1] for split in shown] == [number]


@pytest.mark.parametrize("point", ["Z" * 64, "\u4e2d\u56fd" * 10, bytes(64)], ids=ascii)
def test_a_table_may_be_cut_at_64_bytes(client: ProtocolClient, point: str | bytes) -> None:
    kind = pb.STRING if isinstance(point, str) else pb.BINARY
    ask(client, create("cut_long", key=[("PK0", kind)], partitions=cuts(v(point))))
    shown = ask(client, pb.DescribeTableRequest(table_name="cut_long")).shard_splits
    client.delete_table("cut_long")
    assert [plainbuffer.decode_row(split).key[0][1] for split in shown] == [v(point)]


def test_options_are_changed_alone_or_together(
    client: ProtocolClient, make_table: MakeTable
) -> None:
    table = make_table()

    def change_options(**values: Any) -> tuple[int, int, int]:
        answer = ask(client, pb.UpdateTableRequest(table_name=table, **options(**values)))
        assert answer.HasField("stream_details"), "Go reads it"
        assert answer.reserved_throughput_details.capacity_unit.HasField("read")
        new_options = answer.table_options
        again = ask(client, pb.DescribeTableRequest(table_name=table)).table_options
        assert again == new_options
        return (
            new_options.time_to_live,
            new_options.max_versions,
            new_options.deviation_cell_version_in_sec,
        )

    assert change_options(max_versions=5) == (-1, 5, 86400)
    assert change_options(time_to_live=86400) == (86400, 5, 86400)
    assert change_options(deviation_cell_version_in_sec=100000) == (86400, 5, 100000)
    assert change_options(time_to_live=2**31 - 1, max_versions=2**31 - 1) == (
        2**31 - 1,
        2**31 - 1,
        100000,
    )
    assert change_options(deviation_cell_version_in_sec=2**40) == (2**31 - 1, 2**31 - 1, 2**40)


def test_a_refused_change_changes_nothing(client: ProtocolClient, make_table: MakeTable) -> None:
    table = make_table()
    before = ask(client, pb.DescribeTableRequest(table_name=table))
    for wrong in (
        options(max_versions=0, time_to_live=86400),
        {**options(max_versions=9), **stream(expiration_time=169)},
        {**options(max_versions=9), **reserve(5001, 0)},
    ):
        request = pb.UpdateTableRequest(table_name=table, **wrong)
        assert refusal(client, request).startswith(INVALID)
    assert ask(client, pb.DescribeTableRequest(table_name=table)) == before


def test_update_full_row_cannot_be_changed(client: ProtocolClient, make_table: MakeTable) -> None:
    table = make_table()
    request = pb.UpdateTableRequest(table_name=table, **options(update_full_row=True))
    assert "contain updateFullRow" in refusal(client, request)


SAYS_NOTHING: dict[str, tuple[dict[str, Any], str]] = {
    "no option": (options(), "No parameter is specified in table options."),
    "no option, but a stream": (
        {**options(), **stream(expiration_time=1)},
        "No parameter is specified in table options.",
    ),
    "no part at all": ({}, "No parameter is specified in UpdateTable."),
    "a throughput of nothing": (
        {"reserved_throughput": pb.ReservedThroughput()},
        "Neither read nor write capacity unit is set.",
    ),
    "a throughput of an empty unit": (
        {"reserved_throughput": pb.ReservedThroughput(capacity_unit=pb.CapacityUnit())},
        "Neither read nor write capacity unit is set.",
    ),
}


@pytest.mark.parametrize("case", SAYS_NOTHING)
def test_an_update_that_says_nothing_is_refused(
    client: ProtocolClient, make_table: MakeTable, case: str
) -> None:
    parts, text = SAYS_NOTHING[case]
    for name in (make_table(), "absent"):  # As a message's shape, before the table is looked up.
        assert refusal(client, pb.UpdateTableRequest(table_name=name, **parts)) == INVALID + text


def test_one_reserved_unit_alone_leaves_the_other(
    client: ProtocolClient, make_table: MakeTable
) -> None:
    table = make_table()
    unit = pb.CapacityUnit(read=0)
    request = pb.UpdateTableRequest(
        table_name=table, reserved_throughput=pb.ReservedThroughput(capacity_unit=unit)
    )
    units = ask(client, request).reserved_throughput_details.capacity_unit
    assert (units.read, units.write) == (0, 0)


def test_throughput_is_changed_once_in_two_minutes(
    client: ProtocolClient, make_table: MakeTable
) -> None:
    table = make_table()
    request = pb.UpdateTableRequest(table_name=table, **reserve(1, 1))
    assert refusal(client, request) == (
        "403 OTSTooFrequentReservedThroughputAdjustment Capacity unit adjustment is too frequent."
    )


def test_a_table_made_again_is_empty(client: ProtocolClient) -> None:
    shape: dict[str, Any] = {"key": [("PK1", pb.STRING), ("PK2", pb.INTEGER)]}
    for _ in range(2):
        ask(client, create("again", **shape))
        assert not ask(client, get("again", PK)).row
        ask(client, put("again", PK, puts(c=1)))
        assert ask(client, get("again", PK)).row
        client.delete_table("again")
        assert refusal(client, get("again", PK)) == NO_TABLE


def test_an_instance_has_64_tables_at_most(client: ProtocolClient) -> None:
    there = len(client.list_table())
    made = [f"one_of_many_{n}" for n in range(64 - there)]
    for name in made:
        assert refusal(client, create(name)) == "ok"
    refused = refusal(client, create("one_too_many"))
    for name in made:
        client.delete_table(name)
    assert refused == "403 OTSQuotaExhausted Number of tables exceeds the quota:64."


def test_an_unknown_operation_is_refused(client: ProtocolClient) -> None:
    with pytest.raises(ServerError) as refused:
        client.call("PutRowe", pb.PutRowRequest(), pb.PutRowResponse)
    assert (refused.value.status, refused.value.code) == (400, "OTSParameterInvalid")
    assert refused.value.message == "Unsupported operation: PutRowe."


@pytest.mark.parametrize(
    "operation",
    ["CreateSearchIndex", "Search", "SQLQuery", "tunnel/create", "CreateTimeseriesTable"],
)
def test_what_is_not_built_is_told_by_name(client: ProtocolClient, operation: str) -> None:
    with pytest.raises(ServerError) as refused:
        client.call(operation, pb.ListTableRequest(), pb.ListTableResponse)
    assert refused.value.status == 400
    assert operation in refused.value.message
