"""Read-only keys on a real server: every change is refused, every read is answered."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from rowtide.cli.client import ProtocolClient, ServerError
from rowtide.client.blocking_endpoint import BlockingEndpoint
from rowtide.client.wire_row import encode_row
from rowtide.core.protocol.operations import OPERATIONS, OperationSpec, Right, StateAccess
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.values.errors import StoreError
from rowtide.deploy.up import Ready
from tests.api.calls import (
    INF_MAX,
    INF_MIN,
    ask,
    batch_get,
    batch_write,
    delete,
    get_range,
    key,
    put,
    puts,
    read_row,
    refusal,
    rows,
    shown,
    update,
)
from tests.api.conftest import MakeTable

pytestmark = pytest.mark.system

REFUSED = "403 OTSNoPermissionAccess Access key '{}' is read-only: it cannot call {}."
CALLED = [spec for spec in OPERATIONS.values() if spec.right is not Right.WORKER]


def key_of(client: ProtocolClient, **fields: object) -> dict[str, Any]:
    """Create a key and return it as a client takes it."""
    made = client.call_json("RowtideCreateKey", fields)
    return {name: made[name] for name in ("access_key_id", "access_key_secret")}


@pytest.fixture(scope="module")
def reader(server: Ready, client: ProtocolClient) -> Iterator[ProtocolClient]:
    """A client with a read-only key."""
    made = key_of(client, read_only=True)
    with ProtocolClient(server.endpoint, instance=server.instance, **made) as connected:
        yield connected
    client.call_json("RowtideRevokeKey", {"access_key_id": made["access_key_id"]})


@pytest.fixture(scope="module")
def watcher(server: Ready, client: ProtocolClient) -> Iterator[ProtocolClient]:
    """A client with a read-only key that has the admin right."""
    made = key_of(client, read_only=True, admin=True)
    with ProtocolClient(server.endpoint, instance=server.instance, **made) as connected:
        yield connected
    client.call_json("RowtideRevokeKey", {"access_key_id": made["access_key_id"]})


def outcome(client: ProtocolClient, operation: str, body: bytes) -> str:
    """Send bytes under a name and return what they were refused with; empty: answered."""
    instance, key_id, secret = client.access
    with BlockingEndpoint(
        client.endpoint, instance=instance, access_key_id=key_id, access_key_secret=secret
    ) as endpoint:
        try:
            endpoint.ask(operation, body)
        except StoreError as error:
            return f"{error.code} {error.message}"
    return ""


@pytest.mark.parametrize("spec", CALLED, ids=lambda spec: spec.name)
def test_the_table_of_operations_decides_what_a_read_only_key_may_call(
    reader: ProtocolClient, watcher: ProtocolClient, spec: OperationSpec
) -> None:
    read_only = "is read-only"
    if spec.access is StateAccess.WRITE:
        for client in (reader, watcher):
            result = outcome(client, spec.name, b"")
            assert result.startswith("OTSNoPermissionAccess")
            assert read_only in result
        return
    body = b"{}" if spec.request is None else b""
    # Without a table most are refused for their fields, but none for the key's rights.
    assert "OTSNoPermissionAccess" not in outcome(watcher, spec.name, body)
    result = outcome(reader, spec.name, body)
    assert read_only not in result
    assert ("OTSNoPermissionAccess" in result) == (spec.right is Right.ADMIN)


def test_a_read_only_key_reads_all_and_changes_nothing(
    client: ProtocolClient, reader: ProtocolClient, make_table: MakeTable
) -> None:
    stream = pb.StreamSpecification(enable_stream=True, expiration_time=1)
    table = make_table(stream=stream)
    ask(client, put(table, key("a", 1), puts(n=1)))
    begun = ask(client, _begin(table))
    forged: list[Any] = [
        put(table, key("a", 1), puts(n=2)),
        update(table, key("a", 1), puts(n=2)),
        delete(table, key("a", 1)),
        batch_write([(table, [put(table, key("b", 1)), delete(table, key("a", 1))])]),
        _bulk(table),
        _begin(table),
        # A transaction of another key that the reader learned of is no way round.
        put(table, key("a", 1), puts(n=2), transaction_id=begun.transaction_id),
        pb.CommitTransactionRequest(transaction_id=begun.transaction_id),
        pb.AbortTransactionRequest(transaction_id=begun.transaction_id),
        pb.UpdateTableRequest(table_name=table, table_options=pb.TableOptions(max_versions=2)),
        pb.DeleteTableRequest(table_name=table),
    ]
    for request in forged:
        operation = type(request).__name__.removesuffix("Request")
        expected = REFUSED.format(reader.access.key_id, operation)
        assert refusal(reader, request) == f"{expected} Use a key that may write."
    ask(client, pb.AbortTransactionRequest(transaction_id=begun.transaction_id))
    assert shown(read_row(reader, table, key("a", 1))) == {"n": 1}
    found = ask(reader, get_range(table, key(INF_MIN, INF_MIN), key(INF_MAX, INF_MAX)))
    assert [row.key for row in rows(found.rows)] == [key("a", 1)]
    [read] = ask(reader, batch_get([(table, [key("a", 1)])])).tables
    assert [row.is_ok for row in read.rows] == [True]
    [listed] = reader.list_stream(table)
    [shard] = reader.describe_stream(listed.stream_id).shards
    place = reader.get_shard_iterator(listed.stream_id, shard.shard_id)
    assert [record.kind for record in reader.get_stream_record(place).records] == ["PUT"]


def _begin(table: str) -> pb.StartLocalTransactionRequest:

    return pb.StartLocalTransactionRequest(table_name=table, key=encode_row(key("a")))


def _bulk(table: str) -> pb.BulkImportRequest:

    request = pb.BulkImportRequest(table_name=table)
    request.rows.add(type=pb.PUT, row_change=encode_row(key("b", 1), puts(n=7)))
    return request


def test_a_read_only_admin_reads_what_operators_read_and_manages_nothing(
    client: ProtocolClient, watcher: ProtocolClient
) -> None:
    assert watcher.call_json("RowtideClusterStatus", {})["workers"]
    keys = watcher.call_json("RowtideListKeys", {})["keys"]
    own = watcher.access.key_id
    assert [key["read_only"] for key in keys if key["access_key_id"] == own] == [True]
    assert not any("secret" in name for key in keys for name in key)
    with pytest.raises(ServerError, match="is read-only: it cannot call RowtideCreateKey"):
        watcher.call_json("RowtideCreateKey", {"admin": True})
    with pytest.raises(ServerError, match="is read-only: it cannot call RowtideRevokeKey"):
        watcher.call_json("RowtideRevokeKey", {"access_key_id": client.access.key_id})
    assert client.call_json("RowtideListKeys", {})["keys"] == keys


def test_the_last_key_that_can_manage_stays_whatever_read_only_keys_there_are(
    client: ProtocolClient, watcher: ProtocolClient
) -> None:
    assert watcher.call_json("RowtideDescribeKey", {})["admin"]
    with pytest.raises(ServerError, match="is the last one with the admin right"):
        client.call_json("RowtideRevokeKey", {"access_key_id": client.access.key_id})


def test_a_key_is_described_to_itself(
    client: ProtocolClient, reader: ProtocolClient, server: Ready
) -> None:
    reply = reader.call_json("RowtideDescribeKey", {})
    assert (reply["access_key_id"], reply["instances"]) == (reader.access.key_id, None)
    assert (reply["admin"], reply["read_only"]) == (False, True)
    bound = key_of(client, instances=[server.instance])
    with ProtocolClient(server.endpoint, instance=server.instance, **bound) as other:
        reply = other.call_json("RowtideDescribeKey", {})
    assert (reply["instances"], reply["read_only"]) == ([server.instance], False)
    client.call_json("RowtideRevokeKey", {"access_key_id": bound["access_key_id"]})
