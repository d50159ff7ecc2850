"""Rows through the official Python SDK: types, edges, writes, conditions, batches, ranges."""

from __future__ import annotations

import math
import time
from typing import Any

import pytest

from tests.conformance.python.conftest import MakeTable
from tests.conformance.python.test_tables import read_refusal

pytestmark = pytest.mark.system

Key = list[tuple[str, Any]]
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
VALUES: dict[str, Any] = {
    "zero": 0,
    "int64_min": INT64_MIN,
    "int64_max": INT64_MAX,
    "double": 3.14159,
    "double_huge": 1.7976931348623157e308,
    "double_tiny": 5e-324,
    "true": True,
    "false": False,
    "text": "plain",
    "text_empty": "",
    "text_unicode": "Grüße 你好 \U0001f30a \u202e end",
    "text_with_zero": "a\0b",
    "bytes": bytearray(range(256)),
    "bytes_empty": bytearray(),
}
FAILED = (403, "OTSConditionCheckFail", "Condition check failed.")


def values(row: Any) -> dict[str, Any]:
    """Return a row's newest values by column."""
    return {name: value for name, value, _ in reversed(row.attribute_columns)}


def read(sdk: Any, table: str, row: Key, **choice: Any) -> dict[str, Any] | None:
    """Return a row's newest values, or None where it is absent."""
    _, found, _ = sdk.get_row(table, row, **choice)
    return values(found) if found is not None else None


@pytest.mark.parametrize("name", VALUES)
def test_a_value_comes_back(ts: Any, sdk: Any, table: str, row: Key, name: str) -> None:
    sdk.put_row(table, ts.Row(row, [("c", VALUES[name])]))
    found = read(sdk, table, row)
    assert found == {"c": VALUES[name]}
    assert type(found["c"]) is type(VALUES[name])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (math.nan, "NaN can't be set to double value."),
        (math.inf, "Infinity can't be set to double value."),
        (-math.inf, "Infinity can't be set to double value."),
    ],
)
def test_no_double_but_a_finite_one(
    ts: Any, sdk: Any, table: str, row: Key, value: float, text: str
) -> None:
    refusal = read_refusal(ts, lambda: sdk.put_row(table, ts.Row(row, [("c", value)])))
    assert refusal == (400, "OTSParameterInvalid", text)
    assert read(sdk, table, row) is None


def test_all_types_in_one_row(ts: Any, sdk: Any, table: str, row: Key) -> None:
    sdk.put_row(table, ts.Row(row, list(VALUES.items())))
    assert read(sdk, table, row) == VALUES


@pytest.mark.parametrize(
    ("kind", "edges"),
    [
        ("INTEGER", [INT64_MIN, -1, 0, 1, INT64_MAX]),
        ("STRING", ["", "\0", "a", "a" * 1024, "你" * 341]),
        ("BINARY", [bytearray(), bytearray(b"\0"), bytearray(b"\xff" * 1024)]),
    ],
)
def test_keys_at_their_edges(
    ts: Any, sdk: Any, make_table: MakeTable, kind: str, edges: list[Any]
) -> None:
    table = make_table([("k", kind)])
    for edge in edges:
        sdk.put_row(table, ts.Row([("k", edge)], [("c", 1)]))
        assert read(sdk, table, [("k", edge)]) == {"c": 1}
    bounds = [("k", ts.INF_MIN)], [("k", ts.INF_MAX)]
    _, _, rows, _ = sdk.get_range(table, ts.Direction.FORWARD, *bounds)
    assert [found.primary_key[0][1] for found in rows] == edges


def test_a_value_of_two_mebibytes(ts: Any, sdk: Any, table: str, row: Key) -> None:
    largest = bytearray(b"\x5a" * 2097152)
    sdk.put_row(table, ts.Row(row, [("c", largest)]))
    assert read(sdk, table, row) == {"c": largest}
    refusal = read_refusal(ts, lambda: sdk.put_row(table, ts.Row(row, [("c", largest + b"x")])))
    assert refusal == (
        400,
        "OTSParameterInvalid",
        "The length of attribute column: 'c' exceeds the MaxLength:2097152 with "
        "CurrentLength:2097153.",
    )


def test_a_row_of_1024_columns(ts: Any, sdk: Any, table: str, row: Key) -> None:
    cells = [(f"c{number:04}", number) for number in range(1024)]
    sdk.put_row(table, ts.Row(row, cells))
    assert read(sdk, table, row) == dict(cells)
    refusal = read_refusal(ts, lambda: sdk.put_row(table, ts.Row(row, [*cells, ("more", 1)])))
    assert refusal[2] == (
        "The number of attribute columns exceeds the limit, limit count: 1024, column count: 1025."
    )


def test_put_update_delete(ts: Any, sdk: Any, table: str, row: Key) -> None:
    ignore = ts.Condition("IGNORE")
    sdk.put_row(table, ts.Row(row, [("a", 1, 10), ("b", 1, 10), ("c", 1, 10)]), ignore)
    sdk.update_row(
        table,
        ts.Row(
            row,
            {
                "PUT": [("a", 2, 20), ("d", "new", 20)],
                "DELETE": [("b", None, 10)],
                "DELETE_ALL": ["c"],
                "INCREMENT": [("n", 5)],
            },
        ),
        ignore,
    )
    _, found, _ = sdk.get_row(table, row, max_version=5)
    assert [(n, v) for n, v, _ in found.attribute_columns] == [
        ("a", 2),
        ("a", 1),
        ("d", "new"),
        ("n", 5),
    ]
    sdk.delete_row(table, ts.Row(row), ignore)
    assert read(sdk, table, row) is None


def test_increment(ts: Any, sdk: Any, table: str, row: Key) -> None:
    for by in (5, -7, INT64_MAX):
        sdk.update_row(table, ts.Row(row, {"INCREMENT": [("n", by)]}), ts.Condition("IGNORE"))
    assert read(sdk, table, row) == {"n": INT64_MAX - 2}
    status, code, _ = read_refusal(
        ts,
        lambda: sdk.update_row(
            table, ts.Row(row, {"INCREMENT": [("n", 3)]}), ts.Condition("IGNORE")
        ),
    )
    assert (status, code) == (400, "OTSParameterInvalid")


def test_auto_increment(ts: Any, sdk: Any, make_table: MakeTable) -> None:
    table = make_table([("pk1", "STRING"), ("id", "INTEGER", ts.PK_AUTO_INCR)])
    assigned = []
    for number in range(10):
        row = ts.Row([("pk1", "a"), ("id", ts.PK_AUTO_INCR)], [("c", number)])
        _, result = sdk.put_row(table, row, ts.Condition("IGNORE"), ts.ReturnType.RT_PK)
        assigned.append(result.primary_key[1][1])
        assert read(sdk, table, result.primary_key) == {"c": number}
    assert assigned == sorted(set(assigned))


@pytest.mark.parametrize("there", [False, True])
def test_expectations(ts: Any, sdk: Any, table: str, row: Key, there: bool) -> None:
    if there:
        sdk.put_row(table, ts.Row(row, [("c", 1)]))
    wrong = ts.Condition("EXPECT_NOT_EXIST" if there else "EXPECT_EXIST")
    right = ts.Condition("EXPECT_EXIST" if there else "EXPECT_NOT_EXIST")
    assert read_refusal(ts, lambda: sdk.put_row(table, ts.Row(row, [("c", 2)]), wrong)) == FAILED
    update = ts.Row(row, {"PUT": [("c", 2)]})
    assert read_refusal(ts, lambda: sdk.update_row(table, update, wrong)) == FAILED
    assert read_refusal(ts, lambda: sdk.delete_row(table, ts.Row(row), wrong)) == FAILED
    sdk.update_row(table, update, right)
    assert read(sdk, table, row) == {"c": 2}


COMPARISONS = [
    ("EQUAL", 5, True),
    ("NOT_EQUAL", 5, False),
    ("GREATER_THAN", 5, False),
    ("GREATER_EQUAL", 5, True),
    ("LESS_THAN", 6, True),
    ("LESS_EQUAL", 4, False),
    ("EQUAL", "5", False),
]


@pytest.mark.parametrize(("comparator", "value", "passes"), COMPARISONS)
def test_a_comparison_as_filter_and_as_condition(
    ts: Any, sdk: Any, table: str, row: Key, comparator: str, value: Any, passes: bool
) -> None:
    sdk.put_row(table, ts.Row(row, [("n", 5)]))
    test = ts.SingleColumnCondition("n", value, getattr(ts.ComparatorType, comparator))
    found = read(sdk, table, row, column_filter=test)
    assert found == ({"n": 5} if passes else None)
    condition = ts.Condition("IGNORE", test)
    update = ts.Row(row, {"PUT": [("done", True)]})
    if passes:
        sdk.update_row(table, update, condition)
    else:
        assert read_refusal(ts, lambda: sdk.update_row(table, update, condition)) == FAILED


def test_combined_and_regex_filters(ts: Any, sdk: Any, table: str, row: Key) -> None:
    sdk.put_row(table, ts.Row(row, [("n", 5), ("s", "length=42;")]))
    five = ts.SingleColumnCondition("n", 5, ts.ComparatorType.EQUAL)
    missing = ts.SingleColumnCondition("x", 5, ts.ComparatorType.EQUAL, pass_if_missing=False)

    def passes(test: Any) -> bool:
        return read(sdk, table, row, column_filter=test) is not None

    def combine(operator: str, *parts: Any) -> Any:
        node = ts.CompositeColumnCondition(getattr(ts.LogicalOperator, operator))
        for part in parts:
            node.add_sub_condition(part)
        return node

    assert passes(combine("OR", five, missing))
    assert not passes(combine("AND", five, missing))
    assert passes(combine("NOT", missing))
    assert passes(combine("AND", five, combine("NOT", combine("AND", five, missing))))
    rule = ts.RegexRule("length=([0-9]+);", ts.CastType.VT_INTEGER)
    assert passes(ts.SingleColumnRegexCondition("s", ts.ComparatorType.GREATER_THAN, 41, rule))
    assert not passes(ts.SingleColumnRegexCondition("s", ts.ComparatorType.LESS_THAN, 42, rule))
    assert passes(ts.SingleColumnRegexCondition("s", ts.ComparatorType.EXIST, regex_rule=rule))


def test_versions(ts: Any, sdk: Any, table: str, row: Key) -> None:
    sdk.put_row(table, ts.Row(row, [("c", v, v) for v in range(1, 9)]))

    def read_versions(**choice: Any) -> list[int]:
        _, found, _ = sdk.get_row(table, row, **choice)
        return [version for _, _, version in found.attribute_columns]

    assert read_versions(max_version=9) == [8, 7, 6, 5, 4]
    assert read_versions(max_version=2) == [8, 7]
    assert read_versions(max_version=None, time_range=(5, 7)) == [6, 5]
    assert read_versions(max_version=None, time_range=6) == [6]
    assert read_versions(max_version=1, time_range=(4, 7)) == [6]


def test_a_version_is_the_servers_clock(ts: Any, sdk: Any, table: str, row: Key) -> None:
    before = int(time.time() * 1000)
    sdk.put_row(table, ts.Row(row, [("c", 1)]))
    _, found, _ = sdk.get_row(table, row)
    assert before <= found.attribute_columns[0][2] <= int(time.time() * 1000) + 1


def test_columns(ts: Any, sdk: Any, table: str, row: Key) -> None:
    # Names are ASCII: the SDK sends another's length in characters, not bytes.
    sdk.put_row(table, ts.Row(row, [(name, 1) for name in "abcd"] + [("e . f", 2)]))

    def read_names(**choice: Any) -> str | None:
        found = read(sdk, table, row, **choice)
        return "".join(sorted(found)) if found is not None else None

    assert read_names() == "abcde . f"
    assert read_names(columns_to_get=["e . f", "b"]) == "be . f"
    assert read_names(columns_to_get=["x"]) is None
    assert read_names(start_column="b", end_column="d") == "bc"


def test_batches_of_two_tables(ts: Any, sdk: Any, table: str, make_table: MakeTable) -> None:
    other = make_table()
    ignore, absent = ts.Condition("IGNORE"), ts.Condition("EXPECT_NOT_EXIST")
    keys = [[("pk1", "batch"), ("pk2", number)] for number in range(100)]
    for name in (table, other):
        sdk.put_row(name, ts.Row(keys[0], [("c", "old")]))
    request = ts.BatchWriteRowRequest()
    for name in (table, other):
        items = [ts.PutRowItem(ts.Row(key, [("c", key[1][1])]), absent) for key in keys]
        items[98] = ts.UpdateRowItem(ts.Row(keys[98], {"PUT": [("c", "updated")]}), ignore)
        items[99] = ts.DeleteRowItem(ts.Row(keys[99]), ignore)
        request.add(ts.TableInBatchWriteRowItem(name, items))
    result = sdk.batch_write_row(request)
    assert not result.is_all_succeed()
    _, failed = result.get_put()
    assert [(row.index, row.error_code, row.error_message) for row in failed] == [
        (0, FAILED[1], FAILED[2])
    ] * 2
    assert [len(result.get_update_by_table(name)) for name in (table, other)] == [1, 1]

    request = ts.BatchGetRowRequest()
    for name in (table, other):
        wanted = keys[97:] if name == table else keys[:3]
        request.add(ts.TableInBatchGetRowItem(name, wanted, max_version=1))
    read_back = sdk.batch_get_row(request)
    found = {
        name: [
            values(item.row) if item.row else None for item in read_back.get_result_by_table(name)
        ]
        for name in (table, other)
    }
    assert found == {
        table: [{"c": 97}, {"c": "updated"}, None],
        other: [{"c": "old"}, {"c": 1}, {"c": 2}],
    }
    assert all(item.consumed.read == 1 for item in read_back.get_result_by_table(table))


def test_a_batch_tells_each_rows_error(ts: Any, sdk: Any, table: str) -> None:
    request = ts.BatchGetRowRequest()
    good = [("pk1", "a"), ("pk2", 1)]
    request.add(ts.TableInBatchGetRowItem(table, [good, good[:1]], max_version=1))
    request.add(ts.TableInBatchGetRowItem("absent", [good], max_version=1))
    result = sdk.batch_get_row(request)
    errors = [(item.is_ok, item.error_code) for item in result.get_result_by_table(table)]
    assert errors == [(True, None), (False, "OTSInvalidPK")]
    (missing,) = result.get_result_by_table("absent")
    assert (missing.error_code, missing.error_message) == (
        "OTSObjectNotExist",
        "Requested table does not exist.",
    )


@pytest.fixture(scope="module")
def range_table(ts: Any, sdk: Any, make_table: MakeTable) -> str:
    """Return a table of the keys a..c with 0..99."""
    table = make_table()
    request = ts.BatchWriteRowRequest()
    for letter in "abc":
        rows = [
            ts.Row([("pk1", letter), ("pk2", number)], [("n", number), ("even", number % 2 == 0)])
            for number in range(100)
        ]
        items = [ts.PutRowItem(row, ts.Condition("IGNORE")) for row in rows]
        request = ts.BatchWriteRowRequest()
        request.add(ts.TableInBatchWriteRowItem(table, items))
        assert sdk.batch_write_row(request).is_all_succeed()
    return table


@pytest.mark.parametrize("limit", [None, 1, 99, 100])
@pytest.mark.parametrize("backward", [False, True])
def test_ranges_page_by_page(
    ts: Any, sdk: Any, range_table: str, backward: bool, limit: int | None
) -> None:
    low, high = [("pk1", "b"), ("pk2", ts.INF_MIN)], [("pk1", "b"), ("pk2", ts.INF_MAX)]
    direction = ts.Direction.BACKWARD if backward else ts.Direction.FORWARD
    start, end = (high, low) if backward else (low, high)
    numbers: list[int] = []
    while start:
        _, start, rows, _ = sdk.get_range(range_table, direction, start, end, limit=limit)
        numbers += [found.primary_key[1][1] for found in rows]
    assert numbers == (list(range(100))[::-1] if backward else list(range(100)))


def test_the_range_iterator(ts: Any, sdk: Any, range_table: str) -> None:
    low, high = ([("pk1", end), ("pk2", end)] for end in (ts.INF_MIN, ts.INF_MAX))
    used = ts.CapacityUnit(0, 0)
    even = ts.SingleColumnCondition("even", True, ts.ComparatorType.EQUAL)
    rows = sdk.xget_range(
        range_table, ts.Direction.FORWARD, low, high, used, column_filter=even, max_version=1
    )
    found = [tuple(value for _, value, *_ in row.primary_key) for row in rows]
    assert found == [(letter, number) for letter in "abc" for number in range(0, 100, 2)]
    assert used.read > 0
    some = sdk.xget_range(
        range_table, ts.Direction.FORWARD, low, high, used, count=7, max_version=1
    )
    assert len(list(some)) == 7


def test_consumed_units(ts: Any, sdk: Any, table: str, row: Key) -> None:
    consumed, _ = sdk.put_row(table, ts.Row(row, [("c", bytearray(5000))]))
    assert (consumed.read, consumed.write) == (0, 2)
    consumed, _, _ = sdk.get_row(table, row)
    assert (consumed.read, consumed.write) == (2, 0)
    present = ts.Condition("EXPECT_EXIST")
    consumed, _ = sdk.delete_row(table, ts.Row(row), present)
    assert (consumed.read, consumed.write) == (1, 1)
    consumed, found, _ = sdk.get_row(table, row)
    assert (consumed.read, found) == (1, None)
