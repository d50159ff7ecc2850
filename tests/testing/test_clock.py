"""The clock that an application's test moves: what follows it, what does not, what it refuses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from rowtide.cli.client import ProtocolClient, ServerError
from rowtide.client.wire_row import Put, encode_row
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.values.schema import STRING, KeyColumn
from rowtide.testing.clock import Clock
from rowtide.testing.instance import InstanceAccess
from rowtide.testing.server import Server
from tests.api.calls import INF_MAX, INF_MIN, ask, batch_get, refusal, rows
from tests.support.waiting import until
from tests.testing.tables import create_with_index

pytestmark = pytest.mark.system

DAY_S = 86_400
KEY = [KeyColumn("id", STRING)]
ROW = (("id", "a"),)


@pytest.fixture
def client(rowtide_instance: InstanceAccess) -> Iterator[ProtocolClient]:
    """Return a client of the test's own instance."""
    with rowtide_instance.admin() as client:
        yield client


def by_get_row(client: ProtocolClient) -> bool:
    return client.get_row("t", ROW) is not None


def by_get_range(client: ProtocolClient) -> bool:
    pages = client.get_range("t", (("id", INF_MIN),), (("id", INF_MAX),))
    return any(page for page in pages)


def by_batch_get_row(client: ProtocolClient) -> bool:
    answer = ask(client, batch_get([("t", [ROW])]))
    return bool(rows(answer.tables[0].rows[0].row))


@pytest.mark.parametrize("found", [by_get_row, by_get_range, by_batch_get_row])
def test_a_row_is_gone_once_its_time_to_live_has_passed(
    rowtide_clock: Clock, client: ProtocolClient, found: Callable[[ProtocolClient], bool]
) -> None:
    client.create_table("t", KEY, options=pb.TableOptions(time_to_live=DAY_S))
    client.put_row("t", ROW, [Put("note", "hello")])
    assert found(client)
    rowtide_clock.advance(DAY_S - 600)
    assert found(client)
    rowtide_clock.advance(602)
    assert not found(client)


def test_a_version_given_after_the_advance_is_later(
    rowtide_clock: Clock, client: ProtocolClient
) -> None:
    client.create_table("t", KEY, options=pb.TableOptions(max_versions=9))
    client.put_row("t", ROW, [Put("note", 1)])
    later = rowtide_clock.advance(3 * DAY_S)
    client.update_row("t", ROW, [Put("note", 2)])
    row = client.get_row("t", ROW, versions=9)
    assert row is not None
    second, first = (cell.version_ms or 0 for cell in row.columns)
    assert second >= later.timestamp() * 1000 - 1
    assert 3 * DAY_S * 1000 <= second - first < 3 * DAY_S * 1000 + 600_000


def test_a_record_leaves_the_stream_with_its_expiry_and_not_before(
    rowtide_clock: Clock, client: ProtocolClient
) -> None:
    stream = pb.StreamSpecification(enable_stream=True, expiration_time=2)
    options = pb.TableOptions(time_to_live=DAY_S)
    client.create_table("t", KEY, options=options, stream=stream)
    [listing] = client.list_stream("t")
    [shard] = client.describe_stream(listing.stream_id).shards
    client.put_row("t", ROW, [Put("note", "hello")])

    def records() -> int:
        iterator = client.get_shard_iterator(listing.stream_id, shard.shard_id)
        return len(client.get_stream_record(iterator).records)

    assert records() == 1
    rowtide_clock.advance(3600)
    assert records() == 1
    rowtide_clock.advance(3700)
    assert records() == 0


def test_the_life_of_a_local_transaction_passes(
    rowtide_clock: Clock, client: ProtocolClient
) -> None:
    key = [KeyColumn("id", STRING), KeyColumn("part", STRING)]
    client.create_table("t", key)
    request = pb.StartLocalTransactionRequest(table_name="t", key=encode_row(ROW))
    transaction = ask(client, request).transaction_id
    rowtide_clock.advance(61)
    said = refusal(client, pb.CommitTransactionRequest(transaction_id=transaction))
    assert "OTSSessionNotExist" in said


def test_set_goes_on_to_a_moment(rowtide_clock: Clock) -> None:
    wanted = rowtide_clock.now() + timedelta(days=40)
    assert timedelta() <= rowtide_clock.set(wanted) - wanted < timedelta(minutes=10)
    assert rowtide_clock.now() >= wanted


@pytest.mark.parametrize(
    ("move", "words"),
    [
        (lambda clock: clock.advance(-0.5), "cannot go back: .* 500000 microseconds before"),
        (lambda clock: clock.set(datetime(2020, 1, 1, tzinfo=UTC)), "cannot go back"),
        (lambda clock: clock.set(datetime(2120, 1, 1)), "no time zone"),  # noqa: DTZ001
        (lambda clock: clock.advance(200 * 366 * DAY_S), "Is the unit right"),
    ],
)
def test_a_move_that_cannot_be_is_refused(
    rowtide_clock: Clock, move: Callable[[Clock], object], words: str
) -> None:
    before = rowtide_clock.now()
    with pytest.raises(ValueError, match=words):
        move(rowtide_clock)
    assert timedelta() <= rowtide_clock.now() - before < timedelta(minutes=10)


@pytest.mark.parametrize(
    "fields", [{}, {"by_us": 1, "to_us": 1}, {"by_us": 1.5}, {"by_us": True}, {"by_s": 1}]
)
def test_a_malformed_request_is_refused(
    rowtide_clock_server: Server, fields: dict[str, object]
) -> None:
    with rowtide_clock_server.client() as client, pytest.raises(ServerError) as caught:
        client.call_json("RowtideAdvanceClock", fields)
    assert caught.value.code == "OTSParameterInvalid"


def test_a_key_without_the_admin_right_cannot_move_it(rowtide_clock_server: Server) -> None:
    with rowtide_clock_server.client() as admin:
        key = admin.call_json("RowtideCreateKey", {})
    names = "access_key_id", "access_key_secret"
    other = replace(rowtide_clock_server, **{name: key[name] for name in names})
    with other.client() as client, pytest.raises(ServerError) as caught:
        client.call_json("RowtideAdvanceClock", {"by_us": 1})
    assert caught.value.code == "OTSNoPermissionAccess"


@pytest.mark.parametrize(
    ("operation", "fields", "words"),
    [
        ("RowtideAdvanceClock", {"by_us": 1}, "dev --ephemeral --test-clock"),
        ("RowtideAdvanceClock", {"by_us": 0}, "dev --ephemeral --test-clock"),
        ("RowtideSetClock", {"now_us": 1}, "cannot be set"),
    ],
)
def test_a_server_without_the_switch_keeps_the_machines_time(
    rowtide_server: Server, operation: str, fields: dict[str, object], words: str
) -> None:
    with rowtide_server.client() as client, pytest.raises(ServerError) as caught:
        client.call_json(operation, fields)
    assert caught.value.code == "OTSParameterInvalid"
    assert words in caught.value.message


def test_it_moves_also_beside_indexes_and_open_transactions(
    rowtide_clock: Clock, rowtide_instance: InstanceAccess
) -> None:
    sdk = rowtide_instance.client()
    create_with_index(sdk)
    before = rowtide_clock.now()
    assert rowtide_clock.advance(DAY_S) - before >= timedelta(seconds=DAY_S)
    # A global index follows its table.
    key = [("colour", "red"), ("id", "a"), ("part", "b")]
    until(lambda: sdk.get_row("by_colour", key)[1] is not None)
