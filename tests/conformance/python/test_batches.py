"""BatchWriteRow through the official Python SDK: order, what it returns, its limits."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.python.conftest import MakeTable
from tests.conformance.python.test_rows import read
from tests.conformance.python.test_tables import read_refusal

pytestmark = pytest.mark.system

MIB2 = 2 * 1024 * 1024


def write(ts: Any, sdk: Any, tables: dict[str, list[Any]]) -> Any:
    """Send rows of several tables in one request."""
    request = ts.BatchWriteRowRequest()
    for table, items in tables.items():
        request.add(ts.TableInBatchWriteRowItem(table, items))
    return sdk.batch_write_row(request)


def putting(ts: Any, key: list[tuple[str, Any]], *cells: tuple[str, Any], **more: Any) -> Any:
    """Return a put for a batch."""
    return ts.PutRowItem(ts.Row(key, list(cells)), ts.Condition("IGNORE"), **more)


def invalid(text: str) -> tuple[int, str, str]:
    """Return the refusal of a request that is wrong in itself."""
    return (400, "OTSParameterInvalid", text)


def test_rows_are_applied_in_request_order(ts: Any, sdk: Any, table: str) -> None:
    key, bare = [[("pk1", "order"), ("pk2", number)] for number in (1, 2)]
    gone = ts.DeleteRowItem(ts.Row(key), ts.Condition("IGNORE"))
    rows = [
        putting(ts, key, ("c", 1)),
        gone,
        putting(ts, key, ("d", 2)),
        putting(ts, bare),
    ]
    assert write(ts, sdk, {table: rows}).is_all_succeed()
    assert read(sdk, table, key) == {"d": 2}
    assert read(sdk, table, bare) == {}


def test_a_batch_returns_the_keys_it_assigned(ts: Any, sdk: Any, make_table: MakeTable) -> None:
    auto = make_table([("pk1", "STRING"), ("pk2", "INTEGER", ts.PK_AUTO_INCR)])
    table = make_table()
    asked = [("pk1", "a"), ("pk2", ts.PK_AUTO_INCR)]
    puts = [putting(ts, asked, ("c", n), return_type=ts.ReturnType.RT_PK) for n in range(3)]
    step = ts.Row([("pk1", "counter"), ("pk2", 1)], {"INCREMENT": [("n", 5)]})
    steps = [ts.UpdateRowItem(step, ts.Condition("IGNORE"))] * 3
    result = write(ts, sdk, {auto: puts, table: steps})
    keys = [item.row.primary_key for item in result.get_put_by_table(auto)]
    numbers = [key[1][1] for key in keys]
    assert numbers == sorted(set(numbers))
    assert [read(sdk, auto, key) for key in keys] == [{"c": n} for n in range(3)]
    assert read(sdk, table, step.primary_key) == {"n": 15}


def test_a_batch_is_held_to_its_limits(ts: Any, sdk: Any, make_table: MakeTable) -> None:
    table = make_table()
    keys = [[("pk1", "a"), ("pk2", number)] for number in range(201)]
    rows = [putting(ts, key) for key in keys]
    assert write(ts, sdk, {table: rows[:200]}).is_all_succeed()
    assert read_refusal(ts, lambda: write(ts, sdk, {table: rows})) == invalid(
        "Rows count exceeds the upper limit: 200."
    )
    request = ts.BatchGetRowRequest()
    request.add(ts.TableInBatchGetRowItem(table, keys[:101], max_version=1))
    assert read_refusal(ts, lambda: sdk.batch_get_row(request)) == invalid(
        "Rows count exceeds the upper limit: 100."
    )
    assert read_refusal(ts, lambda: sdk.batch_get_row(ts.BatchGetRowRequest())) == invalid(
        "No row specified in the request of BatchGetRow."
    )
    assert read_refusal(ts, lambda: write(ts, sdk, {})) == invalid(
        "No row is specified in BatchWriteRow."
    )
    assert read_refusal(ts, lambda: write(ts, sdk, {table: []})) == invalid(
        f"No operation is specified for table: '{table}'."
    )


def test_a_batch_is_held_to_four_mebibytes(ts: Any, sdk: Any, table: str) -> None:
    # A row is 3 + 1 bytes and 3 + 8 of its key, 1 of its column's name, and its value.
    keys = [[("pk1", "a"), ("pk2", number)] for number in (1, 2)]
    half, more = bytearray(MIB2 - 16), bytearray(MIB2 - 15)
    fitting = [putting(ts, key, ("c", half)) for key in keys]
    assert write(ts, sdk, {table: fitting}).is_all_succeed()
    larger = [fitting[0], putting(ts, keys[1], ("c", more))]
    assert read_refusal(ts, lambda: write(ts, sdk, {table: larger})) == invalid(
        "The total data size of BatchWriteRow request exceeds the limit, limit size: 4194304, "
        "data size: 4194305."
    )
