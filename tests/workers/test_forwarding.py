"""Any worker answers any request, whichever owns the shard."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest

from rowtide.cli.client import ProtocolClient, ServerError
from rowtide.client.wire_row import Put
from rowtide.core.protocol.wire import ots_pb2 as pb
from tests.api.calls import (
    INF_MAX,
    INF_MIN,
    OK,
    ask,
    batch_get,
    batch_write,
    get,
    get_range,
    key,
    outcomes,
    put,
    puts,
    read_row,
    refusal,
    rows,
    shown,
    update,
)
from tests.support.indexes import wait_until_followed
from tests.support.tables import create_request
from tests.workers.conftest import Retrying, Workers, repeat

# Its tests share three workers: they stay in one process.
pytestmark = [pytest.mark.system, pytest.mark.xdist_group("forwarding")]


TABLES = [f"t{number}" for number in range(6)]
CUTS = ["d", "h", "m", "q", "u"]


def create(name: str, *cuts: str) -> pb.CreateTableRequest:
    stream = pb.StreamSpecification(enable_stream=True, expiration_time=24)
    return create_request(name, cuts=cuts, stream_spec=stream)


@pytest.fixture(scope="module")
def clients(
    broker: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[ProtocolClient]]:
    """Clients of three workers that share six slots, and the tables t0 to t5."""
    with ExitStack() as closing:
        workers = Workers(tmp_path_factory.mktemp("three"), broker, closing)
        started = [workers.start() for _ in range(3)]
        workers.wait_until_divided()
        made = [*(create(name) for name in TABLES), create("wide", *CUTS)]
        for number, request in enumerate(made):
            repeat(partial(ask, started[number % 3], request))  # Slots may still move.
        yield started


@pytest.fixture(params=range(3), ids=["first", "second", "third"])
def client(request: pytest.FixtureRequest, clients: list[ProtocolClient]) -> ProtocolClient:
    """Each of the workers in turn."""
    number: int = request.param
    return clients[number]


def test_a_row_written_through_one_worker_is_read_through_every_other(
    clients: list[ProtocolClient], client: ProtocolClient
) -> None:
    number = clients.index(client)
    for name in TABLES:
        ask(client, put(name, key("a", number), puts(by=number)))
    for other in clients:
        assert other.list_table() == [*TABLES, "wide"]
        for name in TABLES:
            assert shown(read_row(other, name, key("a", number))) == {"by": number}


def test_a_batch_is_written_and_read_in_its_order(client: ProtocolClient) -> None:
    letters = "zaymbxlcw"
    many = [put("wide", key(letter, n), puts(n=n)) for n, letter in enumerate(letters)]
    beside = [put(name, key(name, 1), puts(n=1)) for name in TABLES]
    answer = ask(
        client,
        batch_write(
            [("wide", many), ("gone", many[:1]), *zip(TABLES, [[b] for b in beside], strict=True)]
        ),
    )
    missing = "OTSObjectNotExist Requested table does not exist."
    assert outcomes(answer) == [[OK] * 9, [missing], *[[OK]] * 6]
    keys = [key(letter, n) for n, letter in enumerate(letters)]
    found = ask(client, batch_get([("wide", keys), ("t3", [key("t3", 1), key("t3", 2)])]))
    values = [[[shown(r) for r in rows(row.row)] for row in table.rows] for table in found.tables]
    assert values == [[[{"n": n}] for n in range(9)], [[{"n": 1}], []]]


def test_a_batch_that_names_a_table_twice_is_refused_by_every_worker(
    client: ProtocolClient,
) -> None:
    duplicated = "400 OTSParameterInvalid Duplicated table name: wide"
    keys = [key("a", 91), key("z", 91)]
    assert refusal(client, batch_get([("wide", keys), ("wide", keys)])) == duplicated
    writes = [("wide", [put("wide", k, puts(n=1))]) for k in keys]
    assert refusal(client, batch_write(writes)) == duplicated
    assert read_row(client, "wide", keys[0]) is None


def test_a_batch_with_a_bad_row_is_refused_whole(client: ProtocolClient) -> None:
    good = put("wide", key("a", 77), puts(n=1))
    bad = put("wide", key("z", 77), [Put("#", 1)])
    request = batch_write([("wide", [good, bad])])
    assert refusal(client, request) == "400 OTSParameterInvalid Invalid column name: '#'."
    assert read_row(client, "wide", key("a", 77)) is None


@pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])
@pytest.mark.parametrize("limit", [None, 1, 4])
def test_a_range_over_every_workers_shards_is_whole_and_in_order(
    client: ProtocolClient, backward: bool, limit: int | None
) -> None:
    name = f"range_{backward}_{limit}_{id(client)}"
    ask(client, create(name, *CUTS))
    letters = [chr(code) for code in range(ord("a"), ord("z") + 1) if chr(code) not in "hijkl"]
    ask(client, batch_write([(name, [put(name, key(x, n)) for x in letters for n in (1, 2)])]))
    low, high = key(INF_MIN, INF_MIN), key(INF_MAX, INF_MAX)
    at, end = (high, low) if backward else (low, high)
    found = []
    while at:
        fields: dict[str, Any] = {"direction": pb.BACKWARD if backward else pb.FORWARD}
        answer = ask(
            client, get_range(name, at, end, **fields, **({"limit": limit} if limit else {}))
        )
        found += [tuple(value for _, value in row.key) for row in rows(answer.rows)]
        following = rows(answer.next_start_primary_key)
        at = following[0].key if following else ()
    wanted = [(x, n) for x in letters for n in (1, 2)]
    assert found == (wanted[::-1] if backward else wanted)


def test_a_transaction_and_a_stream_go_through_any_worker(
    clients: list[ProtocolClient], client: ProtocolClient
) -> None:
    number = clients.index(client)
    for name in TABLES:
        begun = pb.StartLocalTransactionRequest(table_name=name, key=put(name, key("t")).row)
        held = ask(client, begun).transaction_id
        other = clients[(number + 1) % 3]
        ask(other, put(name, key("t", number), puts(n=1), transaction_id=held))
        ask(clients[(number + 2) % 3], pb.CommitTransactionRequest(transaction_id=held))
        assert shown(read_row(client, name, key("t", number))) == {"n": 1}
        (stream,) = ask(client, pb.ListStreamRequest(table_name=name)).streams
        (shard,) = ask(client, pb.DescribeStreamRequest(stream_id=stream.stream_id)).shards
        wanted = pb.GetShardIteratorRequest(stream_id=stream.stream_id, shard_id=shard.shard_id)
        at = ask(client, wanted).shard_iterator
        records = ask(client, pb.GetStreamRecordRequest(shard_iterator=at)).stream_records
        assert key("t", number) in [rows(record.record)[0].key for record in records]


def test_tables_are_changed_and_deleted_through_any_worker(client: ProtocolClient) -> None:
    name = f"changed_{id(client)}"
    ask(client, create(name, *CUTS))
    for letter in "az":
        ask(client, put(name, key(letter, 1), puts(n=1)))
        ask(client, put(name, key(letter, 1), puts(n=2)))
    options = pb.TableOptions(max_versions=3)
    ask(client, pb.UpdateTableRequest(table_name=name, table_options=options))
    for letter in "az":
        ask(client, update(name, key(letter, 1), puts(n=3)))
        found = read_row(client, name, key(letter, 1), max_versions=5)
        assert found is not None
        assert [value for _, value, _ in found.columns] == [3, 2]
    client.delete_table(name)
    assert refusal(client, get(name, key("a", 1))).startswith("404 OTSObjectNotExist")


@pytest.mark.parametrize("kind", [pb.IT_LOCAL_INDEX, pb.IT_GLOBAL_INDEX], ids=["local", "global"])
def test_an_index_follows_a_table_of_several_workers(client: ProtocolClient, kind: Any) -> None:
    name = f"indexed_{kind}_{id(client)}"
    request = create(name, *CUTS)
    request.table_meta.defined_column.add(name="n", type=pb.DCT_INTEGER)
    ask(client, request)
    letters = "zaymbxlcw"
    first = [put(name, key(letter, 1), puts(n=n)) for n, letter in enumerate(letters)]
    ask(client, batch_write([(name, first)]))
    keys = ["PK1", "n", "PK2"] if kind == pb.IT_LOCAL_INDEX else ["n", "PK1", "PK2"]
    meta = pb.IndexMeta(name=f"by_n_{name}", primary_key=keys, index_type=kind)
    made = pb.CreateIndexRequest(main_table_name=name, index_meta=meta, include_base_data=True)
    ask(client, made)
    ask(client, batch_write([(name, [put(name, key(x, 2), puts(n=100)) for x in letters])]))
    wait_until_followed(client, name)
    low, high = (key(*[end] * 3, names=keys) for end in (INF_MIN, INF_MAX))
    found = []
    while low:
        answer = ask(client, get_range(meta.name, low, high))
        found += [dict(row.key) for row in rows(answer.rows)]
        following = rows(answer.next_start_primary_key)
        low = following[0].key if following else ()
    numbers = sorted((row["PK1"], row["PK2"], row["n"]) for row in found)
    wanted = [(letter, 1, n) for n, letter in enumerate(letters)]
    assert numbers == sorted(wanted + [(letter, 2, 100) for letter in letters])


def test_a_table_of_several_workers_is_cut_into_parts(client: ProtocolClient) -> None:
    name = f"cut_{id(client)}"
    ask(client, create(name, *CUTS))
    letters = [letter for letter in "abcdefghijklmnopqrstuvwxyz" for _ in range(2)]
    for start in range(0, len(letters), 2):
        pair = letters[start : start + 2]
        writes = [put(name, key(x, n), puts(text="x" * 500_000)) for n, x in enumerate(pair)]
        ask(client, batch_write([(name, writes)]))
    request = pb.ComputeSplitPointsBySizeRequest(
        table_name=name, split_size=3, split_size_unit_in_byte=1024 * 1024
    )
    answer = ask(client, request)
    assert 6 <= len(answer.split_points) <= 9
    assert sum(location.repeat for location in answer.locations) == len(answer.split_points) + 1


def test_a_key_and_an_instance_are_known_everywhere_once_they_are_made(
    clients: list[ProtocolClient], client: ProtocolClient
) -> None:
    name = f"made-{clients.index(client)}"
    client.call_json("RowtideCreateInstance", {"name": name, "kind": "capacity"})
    made = client.call_json("RowtideCreateKey", {"instances": [name]})
    for other in clients:
        access = {
            "instance": name,
            "access_key_id": made["access_key_id"],
            "access_key_secret": made["access_key_secret"],
        }
        with Retrying(other.endpoint, **access) as known:
            assert known.list_table() == []
    client.call_json("RowtideRevokeKey", {"access_key_id": made["access_key_id"]})
    for other in clients:
        with Retrying(other.endpoint, **access) as revoked, pytest.raises(ServerError) as refused:
            revoked.list_table()
        assert refused.value.code == "OTSAuthFailed"
