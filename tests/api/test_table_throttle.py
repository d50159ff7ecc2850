"""Table operations of one instance: a burst is taken, then ten a second; refused ones are free."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from rowtide.cli.client import Client
from rowtide.core.limits import Limits
from rowtide.core.wire import ots_pb2 as pb
from rowtide.deploy.up import Ready
from tests.api.calls import OK, refusal

pytestmark = pytest.mark.system

TOO_MANY = "403 OTSQuotaExhausted Too frequent table operations."
BURST = Limits().table_operations_burst


@pytest.fixture
def other(client: Client, server: Ready) -> Iterator[Client]:
    """An instance of its own, whose operations no other test needs."""
    client.call_json("RowtideCreateInstance", {"name": "throttled", "kind": "capacity"})
    try:
        with Client(**{**server._asdict(), "instance": "throttled"}) as connected:
            yield connected
    finally:
        client.call_json("RowtideDeleteInstance", {"name": "throttled"})


def create(name: str) -> pb.CreateTableRequest:
    return pb.CreateTableRequest(
        table_meta=pb.TableMeta(
            table_name=name, primary_key=[pb.PrimaryKeySchema(name="pk", type=pb.STRING)]
        ),
        reserved_throughput=pb.ReservedThroughput(capacity_unit=pb.CapacityUnit(read=0, write=0)),
    )


def test_a_burst_is_taken_and_then_ten_a_second(client: Client, other: Client) -> None:
    request = pb.UpdateTableRequest(table_name="t", table_options=pb.TableOptions(max_versions=2))
    began = time.monotonic()
    assert refusal(other, create("t")) == OK
    for _ in range(BURST):
        assert refusal(other, create("t")).startswith("409")  # Refused for another reason.
    told: list[str] = []
    while TOO_MANY not in told:
        told.append(refusal(other, request))
    taken = told.count(OK) + 1
    assert BURST <= taken <= BURST + 10 * (time.monotonic() - began)
    assert other.list_table() == ["t"]
    assert other.describe_table("t").table_options.max_versions == 2
    assert client.list_table() is not None
    while (again := refusal(other, pb.DeleteTableRequest(table_name="t"))) == TOO_MANY:
        pass  # Every tenth of a second one more is taken.
    assert again == OK
