"""Rows of many columns, and of more bytes than one answer holds, through the Python SDK."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.python.conftest import MakeTable

pytestmark = pytest.mark.system

KEY = [("pk1", "wide"), ("pk2", 1)]
MIB2 = 2 * 1024 * 1024


def names(row: Any) -> list[str]:
    """Return the columns of an answer in its order."""
    return [name for name, _, _ in row.attribute_columns]


def test_a_wide_row_is_read_in_slices(ts: Any, sdk: Any, make_table: MakeTable) -> None:
    table = make_table()
    columns = [f"c{number:04}" for number in range(3000)]
    for start in range(0, 3000, 1000):
        cells = [(name, start) for name in columns[start : start + 1000]]
        sdk.update_row(table, ts.Row(KEY, {"PUT": cells}), ts.Condition("IGNORE"))
    assert names(sdk.get_row(table, KEY)[1]) == columns
    for first, end in [(0, 1), (999, 1001), (2990, 3000), (0, 3000)]:
        bounds = {"start_column": f"c{first:04}", "end_column": f"c{end:04}"}
        assert names(sdk.get_row(table, KEY, **bounds)[1]) == columns[first:end]
        low, high = [("pk1", "wide"), ("pk2", ts.INF_MIN)], [("pk1", "wide"), ("pk2", ts.INF_MAX)]
        _, _, rows, _ = sdk.get_range(table, ts.Direction.FORWARD, low, high, **bounds)
        assert [names(row) for row in rows] == [columns[first:end]]
        request = ts.BatchGetRowRequest()
        request.add(ts.TableInBatchGetRowItem(table, [KEY], max_version=1, **bounds))
        (item,) = sdk.batch_get_row(request).get_result_by_table(table)
        assert names(item.row) == columns[first:end]


def test_a_row_larger_than_an_answer_goes_on_from_its_token(
    ts: Any, sdk: Any, make_table: MakeTable
) -> None:
    table = make_table()
    for number in range(6):
        cells = {"PUT": [(f"c{number}", bytearray([number]) * MIB2)]}
        sdk.update_row(table, ts.Row(KEY, cells), ts.Condition("IGNORE"))
    found: list[tuple[str, int]] = []
    parts, token = 0, None
    while parts == 0 or token:
        _, row, token = sdk.get_row(table, KEY, token=token)
        found += [(name, value[-1]) for name, value, _ in row.attribute_columns]
        parts += 1
    assert found == [(f"c{number}", number) for number in range(6)]
    assert parts > 1
