"""Both signatures of the official Python SDK: each signs every kind of request.

A signature covers a request's path, headers and body, whatever the body means. So one walk over the
operations is enough; what operations do is tested with one signature.
"""

from __future__ import annotations

from typing import Any

import pytest

from rowtide.deploy.up import Ready
from tests.conformance.python.conftest import REGIONS
from tests.conformance.python.test_rows import Key, read
from tests.conformance.python.test_tables import create, read_refusal

pytestmark = [
    pytest.mark.system,
    pytest.mark.parametrize("sdk", REGIONS, indirect=True),
]


def test_table_operations_are_signed(ts: Any, sdk: Any) -> None:
    name = "of_signatures"
    create(ts, sdk, name)
    assert name in sdk.list_table()
    sdk.update_table(name, ts.TableOptions(max_time_deviation=7))
    assert sdk.describe_table(name).table_options.max_time_deviation == 7
    index = ts.SecondaryIndexMeta("of_signatures_index", ["pk2", "pk1"], [])
    sdk.create_secondary_index(name, index, False)
    sdk.delete_secondary_index(name, index.index_name)
    sdk.delete_table(name)
    assert name not in sdk.list_table()


def test_row_operations_are_signed(ts: Any, sdk: Any, table: str, row: Key) -> None:
    sdk.put_row(table, ts.Row(row, [("text", "Gr\u00fc\u00dfe \u4f60\u597d"), ("n", 1)]))
    sdk.update_row(table, ts.Row(row, {"PUT": [("n", 2)]}), None)
    assert read(sdk, table, row) == {"text": "Gr\u00fc\u00dfe \u4f60\u597d", "n": 2}
    batch = ts.BatchWriteRowRequest()
    put = ts.PutRowItem(ts.Row(row, [("n", 3)]), ts.Condition("IGNORE"))
    batch.add(ts.TableInBatchWriteRowItem(table, [put]))
    assert sdk.batch_write_row(batch).is_all_succeed()
    reads = ts.BatchGetRowRequest()
    reads.add(ts.TableInBatchGetRowItem(table, [row], [], None, 1))
    assert sdk.batch_get_row(reads).is_all_succeed()
    end = [("pk1", ts.INF_MAX), ("pk2", ts.INF_MAX)]
    _, _, rows, _ = sdk.get_range(table, ts.Direction.FORWARD, row, end, limit=1)
    assert [found.primary_key for found in rows] == [row]
    transaction = sdk.start_local_transaction(table, row[:1])
    sdk.abort_transaction(transaction)
    sdk.delete_row(table, ts.Row(row))
    assert read(sdk, table, row) is None


@pytest.mark.parametrize("wrong", ["key", "secret", "instance"])
def test_a_wrong_credential_is_refused(
    ts: Any, sdk: Any, server: Ready, request: pytest.FixtureRequest, wrong: str
) -> None:
    given = [server.access_key_id, server.access_key_secret, server.instance]
    given[["key", "secret", "instance"].index(wrong)] += "x"
    version = request.node.callspec.params["sdk"]
    stranger = ts.OTSClient(server.endpoint, *given, region=REGIONS[version])
    status, code, _ = read_refusal(ts, stranger.list_table)
    stranger.connection.pool.clear()
    assert (status, code) == (403, "OTSAuthFailed")
