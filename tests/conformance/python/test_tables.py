"""The life of a table, through the official Python SDK."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.python.conftest import KEY, MakeTable

pytestmark = pytest.mark.system


def read_refusal(ts: Any, call: Any) -> tuple[int, str, str]:
    """Return the status, code and text that a call is refused with."""
    with pytest.raises(ts.OTSServiceError) as failure:
        call()
    assert len(failure.value.get_request_id()) == 36
    error = failure.value
    return error.get_http_status(), error.get_error_code(), error.get_error_message()


def create(ts: Any, sdk: Any, name: str, key: Any = KEY) -> None:
    """Create a table."""
    throughput = ts.ReservedThroughput(ts.CapacityUnit(0, 0))
    sdk.create_table(ts.TableMeta(name, list(key)), ts.TableOptions(), throughput)


def test_create_list_describe_delete(ts: Any, sdk: Any) -> None:
    shape = [("s", "STRING"), ("i", "INTEGER"), ("b", "BINARY"), ("n", "INTEGER", "x")]
    shape[3] = ("n", "INTEGER", ts.PK_AUTO_INCR)
    create(ts, sdk, "life", shape)
    assert "life" in sdk.list_table()
    description = sdk.describe_table("life")
    assert description.table_meta.table_name == "life"
    assert [tuple(column[:2]) for column in description.table_meta.schema_of_primary_key] == [
        tuple(column[:2]) for column in shape
    ]
    assert description.table_options.time_to_live == -1
    assert description.table_options.max_version == 1
    assert description.table_options.max_time_deviation == 86400
    assert description.reserved_throughput_details.capacity_unit.read == 0
    assert description.reserved_throughput_details.last_increase_time > 0
    sdk.delete_table("life")
    assert "life" not in sdk.list_table()


def test_update_options(ts: Any, sdk: Any, make_table: MakeTable) -> None:
    table = make_table()
    answer = sdk.update_table(table, ts.TableOptions(86400, 7, 1000))
    assert (answer.table_options.time_to_live, answer.table_options.max_version) == (86400, 7)
    again = sdk.describe_table(table).table_options
    assert (again.time_to_live, again.max_version, again.max_time_deviation) == (86400, 7, 1000)


def test_defined_columns(ts: Any, sdk: Any) -> None:
    kinds = [("i", "INTEGER"), ("d", "DOUBLE"), ("b", "BOOLEAN"), ("s", "STRING"), ("x", "BINARY")]
    throughput = ts.ReservedThroughput(ts.CapacityUnit(0, 0))

    def make(columns: Any) -> None:
        meta = ts.TableMeta("python_defined", KEY, columns)
        sdk.create_table(meta, ts.TableOptions(), throughput)

    make(kinds)
    definitions = sdk.describe_table("python_defined").table_meta.defined_columns
    sdk.delete_table("python_defined")
    assert [tuple(column) for column in definitions] == kinds
    many = [(f"c{number}", "INTEGER") for number in range(33)]
    limit = "The number of defined columns must be in range: [0, 32]."
    assert read_refusal(ts, lambda: make(many)) == (400, "OTSParameterInvalid", limit)


@pytest.mark.parametrize(
    ("kind", "points"),
    [
        ("STRING", ["a", "你"]),
        ("INTEGER", [-5, 0, 7]),
        ("BINARY", [b"\x00", b"\xff\xff"]),
        ("INTEGER", list(range(9))),
    ],
)
def test_pre_split(ts: Any, sdk: Any, make_table: MakeTable, kind: str, points: list[Any]) -> None:
    table = make_table([("pk1", kind)], split_points=points)
    low = {"STRING": "", "INTEGER": -(2**63), "BINARY": b""}[kind]
    for value in [low, *points]:
        value = bytearray(value) if isinstance(value, bytes) else value
        sdk.put_row(table, ts.Row([("pk1", value)], [("c", 1)]))
    _, _, rows, _ = sdk.get_range(
        table, ts.Direction.FORWARD, [("pk1", ts.INF_MIN)], [("pk1", ts.INF_MAX)]
    )
    assert [row.primary_key[0][1] for row in rows] == [low, *points]


def test_errors_are_exceptions_with_code_and_text(ts: Any, sdk: Any, make_table: MakeTable) -> None:
    table = make_table()
    no_table = (404, "OTSObjectNotExist", "Requested table does not exist.")
    key = [("pk1", "a"), ("pk2", 1)]
    assert read_refusal(ts, lambda: create(ts, sdk, table)) == (
        409,
        "OTSObjectAlreadyExist",
        "Requested table already exists.",
    )
    assert read_refusal(ts, lambda: create(ts, sdk, "3t")) == (
        400,
        "OTSParameterInvalid",
        "Invalid table name: '3t'.",
    )
    for call in (
        lambda: sdk.describe_table("absent"),
        lambda: sdk.delete_table("absent"),
        lambda: sdk.get_row("absent", key),
        lambda: sdk.put_row("absent", ts.Row(key, [])),
    ):
        assert read_refusal(ts, call) == no_table
    assert read_refusal(ts, lambda: sdk.get_row(table, key[:1])) == (
        400,
        "OTSInvalidPK",
        "Validate PK size fail. Input: 1, Meta: 2.",
    )
    failed = (403, "OTSConditionCheckFail", "Condition check failed.")
    expected = ts.Condition(ts.RowExistenceExpectation.EXPECT_EXIST)
    assert read_refusal(ts, lambda: sdk.put_row(table, ts.Row(key, []), expected)) == failed
