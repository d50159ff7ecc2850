"""Local transactions through the official Python SDK."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.python.conftest import MakeTable
from tests.conformance.python.test_rows import read
from tests.conformance.python.test_tables import read_refusal

pytestmark = pytest.mark.system

CONFLICT = (409, "OTSRowOperationConflict", "Data is being modified by the other request.")
MISSING = (404, "OTSSessionNotExist", "Session not exist or may be timeout.")
INVALID = (400, "OTSParameterInvalid", "TransactionID is invalid.")
ONE, TWO = [("pk1", "p"), ("pk2", 1)], [("pk1", "p"), ("pk2", 2)]
KEY = [("pk1", "p")]


@pytest.fixture
def table(make_table: MakeTable) -> str:
    """Return a table of the test alone: a transaction holds its keys."""
    return make_table()


@pytest.fixture
def hasty(ts: Any, sdk: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a client that repeats nothing: the SDK repeats a conflict for ten seconds."""
    monkeypatch.setattr(sdk, "retry_policy", ts.NoRetryPolicy())
    return sdk


def test_a_commit_shows_every_write(ts: Any, sdk: Any, table: str) -> None:
    sdk.put_row(table, ts.Row(ONE, [("v", "before")]))
    within = sdk.start_local_transaction(table, KEY)
    sdk.put_row(table, ts.Row(ONE, [("v", "after")]), transaction_id=within)
    sdk.update_row(table, ts.Row(TWO, {"PUT": [("v", 2)]}), None, transaction_id=within)
    assert read(sdk, table, ONE, transaction_id=within) == {"v": "after"}
    assert read(sdk, table, ONE) == {"v": "before"}
    assert read(sdk, table, TWO) is None
    sdk.commit_transaction(within)
    assert read(sdk, table, ONE) == {"v": "after"}
    assert read(sdk, table, TWO) == {"v": 2}


def test_an_abort_leaves_nothing(ts: Any, sdk: Any, table: str) -> None:
    sdk.put_row(table, ts.Row(ONE, [("v", 1)]))
    within = sdk.start_local_transaction(table, KEY)
    sdk.delete_row(table, ts.Row(ONE), transaction_id=within)
    bounds = [("pk1", "p"), ("pk2", ts.INF_MIN)], [("pk1", "p"), ("pk2", ts.INF_MAX)]
    _, _, found, _ = sdk.get_range(table, "FORWARD", *bounds, max_version=1, transaction_id=within)
    assert found == []
    sdk.abort_transaction(within)
    assert read(sdk, table, ONE) == {"v": 1}


def test_a_batch_is_written_within(ts: Any, sdk: Any, table: str) -> None:
    within = sdk.start_local_transaction(table, KEY)
    batch = ts.BatchWriteRowRequest()
    rows = [ts.PutRowItem(ts.Row(key, [("v", 1)]), ts.Condition("IGNORE")) for key in (ONE, TWO)]
    batch.add(ts.TableInBatchWriteRowItem(table, rows))
    batch.set_transaction_id(within)
    assert sdk.batch_write_row(batch).is_all_succeed()
    assert read(sdk, table, TWO) is None
    sdk.commit_transaction(within)
    assert read(sdk, table, TWO) == {"v": 1}


def test_what_is_held_is_refused_to_others(ts: Any, hasty: Any, table: str) -> None:
    within = hasty.start_local_transaction(table, KEY)
    assert read_refusal(ts, lambda: hasty.put_row(table, ts.Row(ONE, [("v", 1)]))) == CONFLICT
    assert read_refusal(ts, lambda: hasty.start_local_transaction(table, KEY)) == CONFLICT
    hasty.abort_transaction(within)
    assert read_refusal(ts, lambda: hasty.abort_transaction(within)) == MISSING
    assert read_refusal(ts, lambda: hasty.commit_transaction(within)) == MISSING


def test_a_wrong_id_is_refused(ts: Any, sdk: Any, table: str) -> None:
    row = ts.Row(ONE, [("v", 1)])
    refusal = read_refusal(
        ts, lambda: sdk.put_row(table, row, transaction_id="not existed transaction id")
    )
    assert refusal == INVALID
    refusal = read_refusal(ts, lambda: sdk.commit_transaction(""))
    assert refusal == INVALID
