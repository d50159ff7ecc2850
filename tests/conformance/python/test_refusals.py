"""What operations are refused for, through the official Python SDK: status, code and text."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.python.conftest import MakeTable
from tests.conformance.python.test_batches import invalid
from tests.conformance.python.test_rows import Key, read
from tests.conformance.python.test_tables import read_refusal

pytestmark = pytest.mark.system

IGNORE = "IGNORE"
ROW: Key = [("pk1", "refused"), ("pk2", 1)]
FOUR: Key = [("a", "1"), ("b", "2"), ("c", "3"), ("d", "4")]
WRONG_KEYS: dict[str, Key] = {
    "Validate PK size fail. Input: 1, Meta: 2.": ROW[:1],
    "Validate PK size fail. Input: 4, Meta: 2.": FOUR,
    "Validate PK name fail. Input: pk2, Meta: pk1.": ROW[::-1],
    "Validate PK type fail. Input: VT_INTEGER, Meta: VT_STRING.": [("pk1", 1), ("PK2", 1)],
    "Validate PK type fail. Input: VT_BLOB, Meta: VT_STRING.": [("pk1", bytearray(b"a")), ROW[1]],
    "Validate PK type fail. Input: VT_STRING, Meta: VT_INTEGER.": [("pk1", "a"), ("pk2", "b")],
}


def every_call(ts: Any, sdk: Any, table: str, key: Key) -> list[tuple[int, str, str]]:
    """Return how each operation on one row is refused."""
    condition = ts.Condition(IGNORE)
    calls = (
        lambda: sdk.get_row(table, key),
        lambda: sdk.put_row(table, ts.Row(key, []), condition),
        lambda: sdk.update_row(table, ts.Row(key, {"PUT": [("c", 1)]}), condition),
        lambda: sdk.delete_row(table, ts.Row(key), condition),
    )
    return [read_refusal(ts, call) for call in calls]


@pytest.mark.parametrize("text", WRONG_KEYS)
def test_a_wrong_key(ts: Any, sdk: Any, table: str, text: str) -> None:
    refusals = every_call(ts, sdk, table, WRONG_KEYS[text])
    assert refusals == [(400, "OTSInvalidPK", text)] * 4


def test_a_key_that_is_no_row(ts: Any, sdk: Any, table: str) -> None:
    for name, infinite in (("VT_INF_MIN", ts.INF_MIN), ("VT_INF_MAX", ts.INF_MAX)):
        refusals = every_call(ts, sdk, table, [("pk1", "a"), ("pk2", infinite)])
        assert refusals == [invalid(f"{name} is an invalid type for the primary key.")] * 4
    refusals = every_call(ts, sdk, table, [*FOUR, ("e", "5")])
    assert refusals == [invalid("The number of primary key columns must be in range: [1, 4].")] * 4


@pytest.mark.parametrize("name", ["#", "#abc", "# ", "n" * 256])
def test_a_wrong_column_name(ts: Any, sdk: Any, table: str, name: str) -> None:
    ignore = ts.Condition(IGNORE)
    calls = (
        lambda: sdk.put_row(table, ts.Row(ROW, [(name, 1)]), ignore),
        lambda: sdk.update_row(table, ts.Row(ROW, {"PUT": [(name, 1)]}), ignore),
        lambda: sdk.update_row(table, ts.Row(ROW, {"DELETE": [(name, None, 1)]}), ignore),
        lambda: sdk.update_row(table, ts.Row(ROW, {"INCREMENT": [(name, 1)]}), ignore),
        lambda: sdk.get_row(table, ROW, columns_to_get=["c", name]),
        lambda: sdk.get_row(table, ROW, start_column=name),
        lambda: sdk.get_row(table, ROW, end_column=name),
    )
    refusals = [read_refusal(ts, call) for call in calls]
    assert refusals == [invalid(f"Invalid column name: '{name}'.")] * len(calls)


def test_wrong_ranges(ts: Any, sdk: Any, table: str) -> None:
    low, high = [("pk1", "a"), ("pk2", ts.INF_MIN)], [("pk1", "a"), ("pk2", ts.INF_MAX)]
    forward = invalid("Begin key must less than end key in FORWARD")
    backward = invalid("Begin key must more than end key in BACKWARD")
    for direction, start, end, expected in (
        ("FORWARD", high, low, forward),
        ("FORWARD", ROW, ROW, forward),
        ("BACKWARD", low, high, backward),
        ("BACKWARD", ROW, ROW, backward),
    ):
        assert (
            read_refusal(ts, lambda d=direction, s=start, e=end: sdk.get_range(table, d, s, e))
            == expected
        )
    for limit in (0, -1):
        call = read_refusal(ts, lambda n=limit: sdk.get_range(table, "FORWARD", low, high, limit=n))
        assert call == invalid("The limit must be greater than 0.")


def test_wrong_reads(ts: Any, sdk: Any, table: str) -> None:
    many = [f"c{number}" for number in range(1025)]
    sdk.get_row(table, ROW, columns_to_get=many[1:])
    assert read_refusal(ts, lambda: sdk.get_row(table, ROW, columns_to_get=many)) == invalid(
        "The number of columns from the request exceeds the limit, limit count: 1024, "
        "column count: 1025."
    )
    assert read_refusal(ts, lambda: sdk.get_row(table, ROW, max_version=None)) == invalid(
        "No version condition is specified."
    )
    late = 2**63 // 1000
    for times in ((-1, 5), (late, late + 1), late):
        refusal = read_refusal(ts, lambda t=times: sdk.get_row(table, ROW, None, None, None, t))
        assert refusal == invalid("Timestamp must be in range [0, INT64_MAX/1000).")


def test_wrong_filters(ts: Any, sdk: Any, table: str) -> None:
    def combine(operator: str, *parts: Any) -> Any:
        node = ts.CompositeColumnCondition(getattr(ts.LogicalOperator, operator))
        for part in parts:
            node.add_sub_condition(part)
        return node

    one = ts.SingleColumnCondition("c", 1, ts.ComparatorType.EQUAL)
    named = ts.SingleColumnCondition("#c", 1, ts.ComparatorType.EQUAL)
    count = "The count of filter exceeds the max: 32."
    arity = "Invalid {} operator: the number of sub-filters must be {}."
    for test, text in (
        (combine("AND", *[one] * 32), count),
        (combine("NOT", combine("AND", *[one] * 40), one), count),
        (combine("NOT", one, one), arity.format("NOT", "1")),
        (combine("NOT"), arity.format("NOT", "1")),
        (combine("AND", one), arity.format("AND/OR", "more than 1")),
        (combine("OR"), arity.format("AND/OR", "more than 1")),
        (named, "Invalid column name: '#c'."),
    ):
        assert read_refusal(ts, lambda t=test: sdk.get_row(table, ROW, column_filter=t)) == invalid(
            text
        )
        update = ts.Row(ROW, {"PUT": [("c", 1)]})
        condition = ts.Condition(IGNORE, test)
        refusal = read_refusal(ts, lambda u=update, c=condition: sdk.update_row(table, u, c))
        assert refusal == invalid(text)
    assert read(sdk, table, ROW, column_filter=combine("AND", *[one] * 31)) is None


def test_an_assigned_key_cannot_be_chosen(ts: Any, sdk: Any, make_table: MakeTable) -> None:
    table = make_table([("pk1", "STRING"), ("pk2", "INTEGER", ts.PK_AUTO_INCR)])
    chosen = ts.Row([("pk1", "a"), ("pk2", 7)], [("c", 1)])
    refusal = read_refusal(ts, lambda: sdk.put_row(table, chosen, ts.Condition(IGNORE)))
    assert refusal == (403, "OTSConditionCheckFail", "Condition check failed.")
