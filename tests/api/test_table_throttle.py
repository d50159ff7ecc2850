"""Table operations of one instance: a burst is taken, then ten a second; refused ones are free."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rowtide.cli.client import ProtocolClient
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.values.limits import Limits
from rowtide.deploy.up import Ready
from tests.api.calls import OK, refusal
from tests.support.servers import serving
from tests.support.tables import create_request

pytestmark = pytest.mark.system

TOO_MANY = "403 OTSQuotaExhausted Too frequent table operations."
BURST = Limits().table_operations_burst


@pytest.fixture
def ready(tmp_path: Path) -> Iterator[Ready]:
    """A server of its own: the one that the other tests share takes tables at any rate."""
    with serving(tmp_path) as started:
        yield started


@pytest.fixture
def client(ready: Ready) -> Iterator[ProtocolClient]:
    with ProtocolClient(**ready._asdict()) as connected:
        yield connected


@pytest.fixture
def other(client: ProtocolClient, ready: Ready) -> Iterator[ProtocolClient]:
    """A second instance, for which the first one's operations do not count."""
    client.call_json("RowtideCreateInstance", {"name": "throttled", "kind": "capacity"})
    with ProtocolClient(**{**ready._asdict(), "instance": "throttled"}) as connected:
        yield connected


def create(name: str) -> pb.CreateTableRequest:
    return create_request(name, [("pk", pb.STRING)])


def test_a_burst_is_taken_and_then_ten_a_second(
    client: ProtocolClient, other: ProtocolClient
) -> None:
    request = pb.UpdateTableRequest(table_name="t", table_options=pb.TableOptions(max_versions=2))
    began = time.monotonic()
    assert refusal(other, create("t")) == OK
    for _ in range(BURST):
        assert refusal(other, create("t")).startswith("409")  # Refused for another reason.
    answers: list[str] = []
    while TOO_MANY not in answers:
        answers.append(refusal(other, request))
    taken = answers.count(OK) + 1
    assert BURST <= taken <= BURST + 10 * (time.monotonic() - began)
    assert other.list_table() == ["t"]
    assert other.describe_table("t").table_options.max_versions == 2
    assert refusal(client, create("t")) == OK
    while (again := refusal(other, pb.DeleteTableRequest(table_name="t"))) == TOO_MANY:
        pass  # Every tenth of a second one more is taken.
    assert again == OK
