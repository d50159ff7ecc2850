"""The official Python SDK accepts the edge's answers, and the edge the SDK's signatures."""

from __future__ import annotations

import asyncio
import importlib
import time
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from rowtide.core.protocol.wire import ots_pb2 as wire
from rowtide.core.values.errors import condition_failure, invalid, no_table

if TYPE_CHECKING:
    from rowtide.core.values.errors import StoreError
    from tests.stream.http.conftest import Running

REGIONS = pytest.mark.parametrize("region", [None, "cn-hangzhou"], ids=["v2", "v4"])


@pytest.fixture(scope="module")
def tablestore() -> Any:
    """The SDK, imported without its warning that its compiled part does not fit this Python."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module("tablestore")


def client(tablestore: Any, port: int, region: str | None, **changes: str) -> Any:
    arguments = {
        "access_key_id": "testid",
        "access_key_secret": "testsecret",
        "instance_name": "inst",
    } | changes
    return tablestore.OTSClient(
        f"http://127.0.0.1:{port}",
        region=region,
        retry_policy=tablestore.NoRetryPolicy(),
        **arguments,
    )


def tables(_: object, body: bytes) -> bytes:
    assert body == b""
    return wire.ListTableResponse(table_names=["flights", "weather"]).SerializeToString()


@REGIONS
async def test_list_table_works(region: str | None, tablestore: Any, running: Running) -> None:
    async with running({"ListTable": tables}, clock=time.time) as live:
        sdk = client(tablestore, live.port, region)
        for _ in range(2):  # The second time on the same connection.
            assert list(await asyncio.to_thread(sdk.list_table)) == ["flights", "weather"]
        assert live.edge.connections == 1
        sdk.connection.pool.clear()


def refusing(failure: StoreError) -> Callable[[object, bytes], bytes]:
    def handler(_: object, body: bytes) -> bytes:
        raise failure

    return handler


FAILURES = [no_table(), condition_failure(), invalid("Invalid table name: '3t'.")]


@REGIONS
@pytest.mark.parametrize("failure", FAILURES, ids=[failure.code for failure in FAILURES])
async def test_errors_reach_the_sdks_user_with_code_and_text(
    region: str | None, failure: StoreError, tablestore: Any, running: Running
) -> None:
    async with running({"ListTable": refusing(failure)}, clock=time.time) as live:
        sdk = client(tablestore, live.port, region)
        with pytest.raises(tablestore.OTSServiceError) as caught:
            await asyncio.to_thread(sdk.list_table)
        sdk.connection.pool.clear()
    assert caught.value.get_http_status() == failure.status
    assert caught.value.get_error_code() == failure.code
    assert caught.value.get_error_message() == failure.message
    assert len(caught.value.get_request_id()) == 36


WRONG = [
    ({"access_key_secret": "wrong"}, "Signature mismatch."),
    ({"access_key_id": "nobody"}, "The AccessKeyID does not exist."),
    ({"access_key_id": "disabled"}, "The AccessKeyID is disabled."),
    ({"instance_name": "nowhere"}, "The instance is not found."),
]


@REGIONS
@pytest.mark.parametrize(("change", "text"), WRONG, ids=[w[1] for w in WRONG])
async def test_who_may_not_in_is_told_why(
    region: str | None, change: dict[str, str], text: str, tablestore: Any, running: Running
) -> None:
    async with running({"ListTable": tables}, clock=time.time) as live:
        sdk = client(tablestore, live.port, region, **change)
        with pytest.raises(tablestore.OTSServiceError) as caught:
            await asyncio.to_thread(sdk.list_table)
        sdk.connection.pool.clear()
    assert caught.value.get_error_code() == "OTSAuthFailed"
    assert caught.value.get_error_message() == text


@REGIONS
async def test_an_operation_that_is_not_served_is_a_signed_error(
    region: str | None, tablestore: Any, running: Running
) -> None:
    async with running(clock=time.time) as live:
        sdk = client(tablestore, live.port, region)
        with pytest.raises(tablestore.OTSServiceError) as caught:
            await asyncio.to_thread(sdk.delete_table, "flights")
        sdk.connection.pool.clear()
    assert caught.value.get_error_message() == "Unsupported operation: DeleteTable."
