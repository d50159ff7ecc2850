"""Shards are split and merged while they are written and read, and their stream goes on."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from rowtide.cli.client import ProtocolClient, ServerError
from rowtide.cli.tail import ShardChange, StreamTail, stream_of
from rowtide.client.wire_row import Put, encode_row
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.deploy.up import Ready
from tests.api.calls import (
    INF_MAX,
    INF_MIN,
    ask,
    get_range,
    key,
    put,
    puts,
    read_row,
    rows,
    shown,
    update,
)
from tests.api.conftest import KEY, MakeTable
from tests.support.indexes import wait_until_followed
from tests.support.waiting import until
from tests.workers.conftest import Retrying

pytestmark = pytest.mark.system

STREAM = pb.StreamSpecification(enable_stream=True, expiration_time=24)
DEFINED = pb.DefinedColumnSchema(name="n", type=pb.DCT_INTEGER)
NAMES = [f"{letter}{number}" for letter in "abcdefgh" for number in range(5)]


@pytest.fixture
def admin(server: Ready) -> Iterator[ProtocolClient]:
    """A client that repeats what SDKs repeat."""
    with Retrying(**server._asdict()) as connected:
        yield connected


@pytest.fixture
def table(make_table: MakeTable) -> str:
    """A table with a stream."""
    return make_table(stream=STREAM)


def shards(client: ProtocolClient, table: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.call_json("RowtideListShards", {"table": table})["shards"]
    return found


def living(client: ProtocolClient, table: str) -> list[str]:
    return [shard["shard"] for shard in shards(client, table) if shard["state"] == "open"]


def split(client: ProtocolClient, table: str, shard: str, at: str | None = None) -> list[str]:
    """Split a shard; return its children once they have taken its place."""
    fields = {"table": table, "shard": shard} | ({} if at is None else {"at": at})
    done = client.call_json("RowtideSplitShard", fields)
    assert done["done"]
    assert done["parents"] == [shard]
    children: list[str] = done["children"]
    return children


def merge(client: ProtocolClient, table: str, left: str, right: str) -> str:
    """Merge two shards; return their child once it has taken their place."""
    done = client.call_json("RowtideMergeShards", {"table": table, "shards": [left, right]})
    assert done["done"]
    assert done["parents"] == [left, right]
    [child] = done["children"]
    return str(child)


def all_rows(client: ProtocolClient, table: str) -> dict[str, int]:
    """Return every row's number by its name."""
    request = get_range(table, key(INF_MIN, INF_MIN), key(INF_MAX, INF_MAX))
    found: dict[str, int] = {}
    while True:
        answer = ask(client, request)
        for row in rows(answer.rows):
            values = shown(row)
            assert values is not None
            found[str(row.key[0][1])] = values["n"]
        if not answer.HasField("next_start_primary_key"):
            return found
        request.inclusive_start_primary_key = answer.next_start_primary_key


def read_stream(client: ProtocolClient, table: str) -> list[ShardChange]:
    """Return the whole stream as a consumer sees it that ends parents before children."""
    stream_id = stream_of(client, table)
    assert stream_id is not None
    follower = StreamTail(client, stream_id, None)
    found: list[ShardChange] = []
    quiet = 0
    # A shard may have ended without a change: its children are open only at the next look.
    while quiet <= len(shards(client, table)):
        page = [change for changes in follower.poll() for change in changes]
        found += page
        quiet = 0 if page else quiet + 1
    return found


def numbers_of(changes: list[ShardChange]) -> dict[str, list[int]]:
    """Return what the stream says was written to each name, in its order."""
    found: dict[str, list[int]] = {}
    for change in changes:
        row = change.record.row
        if change.record.kind == "DELETE":
            continue
        [cell] = row.changes
        assert isinstance(cell, Put)
        assert isinstance(cell.value, int)
        found.setdefault(str(row.key[0][1]), []).append(cell.value)
    return found


def write(client: ProtocolClient, table: str, name: str, number: int) -> None:
    ask(client, put(table, key(name, 1), puts(n=number)))


def write_all(client: ProtocolClient, table: str, number: int) -> None:
    for name in NAMES:
        write(client, table, name, number)


def test_a_split_shard_ends_and_its_children_name_it(admin: ProtocolClient, table: str) -> None:
    write_all(admin, table, 0)
    [parent] = living(admin, table)
    children = split(admin, table, parent, "d3")
    answer = shards(admin, table)
    assert [(s["shard"], s["state"], s["begin"], s["end"], s["parents"]) for s in answer] == [
        (parent, "ended", None, None, []),
        (children[0], "open", None, "d3", [parent]),
        (children[1], "open", "d3", None, [parent]),
    ]
    described = admin.describe_stream(str(stream_of(admin, table)))
    assert [(s.shard_id, s.parent_id) for s in described.shards] == [
        (parent, ""),
        (children[0], parent),
        (children[1], parent),
    ]
    assert len(ask(admin, pb.DescribeTableRequest(table_name=table)).shard_splits) == 1


def test_rows_and_stream_are_whole_after_splits_and_merges(
    admin: ProtocolClient, table: str
) -> None:
    write_all(admin, table, 0)
    [parent] = living(admin, table)
    left, right = split(admin, table, parent)
    write_all(admin, table, 1)
    _, middle = split(admin, table, left)
    write_all(admin, table, 2)
    merged = merge(admin, table, middle, right)
    write_all(admin, table, 3)
    whole = merge(admin, table, living(admin, table)[0], merged)
    write_all(admin, table, 4)
    assert living(admin, table) == [whole]
    assert all_rows(admin, table) == dict.fromkeys(NAMES, 4)
    assert numbers_of(read_stream(admin, table)) == {name: [0, 1, 2, 3, 4] for name in NAMES}
    described = admin.describe_stream(str(stream_of(admin, table))).shards[-1]
    assert {described.parent_id, described.parent_sibling_id} == set(
        shards(admin, table)[-1]["parents"]
    )


def test_stamps_rise_along_a_key_through_splits_and_merges(
    admin: ProtocolClient, table: str
) -> None:
    for number in range(6):
        write(admin, table, "d3", number)
        shard = living(admin, table)
        if number % 2:
            merge(admin, table, *shard)
        else:
            split(admin, table, shard[0], "c")
    stamps = [change.record.row.sequence for change in read_stream(admin, table)]
    assert len(stamps) == 6
    assert stamps == sorted(set(stamps))  # type: ignore[type-var]


@contextmanager
def writer(server: Ready, table: str, name: str, written: list[int]) -> Iterator[None]:
    """Write ever higher numbers to one row meanwhile, as an SDK does."""
    stop = threading.Event()

    def run() -> None:
        with Retrying(**server._asdict()) as client:
            while not stop.is_set():
                write(client, table, name, len(written))
                written.append(len(written))
                values = shown(read_row(client, table, key(name, 1)))
                assert values == {"n": written[-1]}

    failures: list[BaseException] = []

    def watch() -> None:
        try:
            run()
        except BaseException as error:
            failures.append(error)
            raise

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        until(lambda: written or failures, "it writes")
        yield
    finally:
        stop.set()
        thread.join()
    assert not failures


def test_no_error_reaches_who_writes_and_reads_meanwhile(
    server: Ready, admin: ProtocolClient, table: str
) -> None:
    write_all(admin, table, 0)
    first: list[int] = []
    last: list[int] = []
    with writer(server, table, "a0", first), writer(server, table, "h4", last):
        for _ in range(5):
            shard = living(admin, table)
            if len(shard) == 1:
                split(admin, table, shard[0])
            else:
                merge(admin, table, *shard)
    numbers = numbers_of(read_stream(admin, table))
    assert numbers["a0"] == [0, *first]
    assert numbers["h4"] == [0, *last]
    assert all_rows(admin, table)["a0"] == first[-1]


@pytest.mark.parametrize(
    ("at", "refused"),
    [
        ("", "OTSParameterInvalid"),
        ("d3", "OTSParameterInvalid"),
    ],
)
def test_a_shard_is_split_inside_of_it_alone(
    admin: ProtocolClient, table: str, at: str, refused: str
) -> None:
    [parent] = living(admin, table)
    children = split(admin, table, parent, "d3")
    with pytest.raises(ServerError) as error:
        split(admin, table, children[1], at)
    assert error.value.code == refused
    assert living(admin, table) == children


def test_shards_that_are_not_adjacent_stay_apart(admin: ProtocolClient, table: str) -> None:
    [parent] = living(admin, table)
    left, right = split(admin, table, parent, "d")
    middle, last = split(admin, table, right, "f")
    with pytest.raises(ServerError, match="are not adjacent"):
        merge(admin, table, left, last)
    assert living(admin, table) == [left, middle, last]


def test_one_partition_key_is_never_split(admin: ProtocolClient, table: str) -> None:
    for number in range(40):
        ask(admin, put(table, key("a", number), puts(n=number)))
    [parent] = living(admin, table)
    with pytest.raises(ServerError, match="fewer than two partition keys"):
        split(admin, table, parent)


def test_an_unknown_shard_is_named(admin: ProtocolClient, table: str) -> None:
    with pytest.raises(ServerError, match="has no open shard 's0'"):
        split(admin, table, "s0")


def test_indexes_follow_a_table_through_its_splits_and_merges(
    admin: ProtocolClient, make_table: MakeTable
) -> None:
    table = make_table(KEY, stream=STREAM)
    ask(admin, pb.AddDefinedColumnRequest(table_name=table, columns=[DEFINED]))
    for kind, name in ((pb.IT_GLOBAL_INDEX, "far"), (pb.IT_LOCAL_INDEX, "near")):
        local = kind == pb.IT_LOCAL_INDEX
        meta = pb.IndexMeta(
            name=f"{table}_{name}",
            primary_key=["PK1", "n"] if local else ["n"],
            index_type=kind,
            index_update_mode=pb.IUM_SYNC_INDEX if local else pb.IUM_ASYNC_INDEX,
        )
        request = pb.CreateIndexRequest(
            main_table_name=table, index_meta=meta, include_base_data=True
        )
        ask(admin, request)
    write_all(admin, table, 0)
    _wait_until_built(admin, table)
    left, right = split(admin, table, living(admin, table)[0])
    write_all(admin, table, 1)
    _, middle = split(admin, table, left, "b")
    write_all(admin, table, 2)
    merge(admin, table, middle, right)
    write_all(admin, table, 3)
    assert _read_index(admin, f"{table}_near", ("PK1", "n", "PK2")) == [3] * len(NAMES)
    far = functools.partial(_read_index, admin, f"{table}_far", ("n", "PK1", "PK2"))
    until(lambda: far() == [3] * len(NAMES), far)


def _wait_until_built(client: ProtocolClient, table: str) -> None:
    """Return once both indexes have all rows: until then no shard may be split."""
    wait_until_followed(client, table)


def _read_index(client: ProtocolClient, index: str, names: tuple[str, ...]) -> list[int]:
    """Return the numbers in an index's rows, in their order."""
    first = key(*[INF_MIN] * 3, names=names)
    last = key(*[INF_MAX] * 3, names=names)
    answer = ask(client, get_range(index, first, last))
    return [int(dict(row.key)["n"]) for row in rows(answer.rows)]


def test_a_transaction_that_was_committed_stays_so_over_a_split(
    admin: ProtocolClient, table: str
) -> None:
    write_all(admin, table, 0)
    begin = pb.StartLocalTransactionRequest(table_name=table, key=encode_row(key("d3")))
    transaction = ask(admin, begin).transaction_id
    ask(admin, put(table, key("d3", 1), puts(n=1), transaction_id=transaction))
    commit = pb.CommitTransactionRequest(transaction_id=transaction)
    ask(admin, commit)
    [parent] = living(admin, table)
    split(admin, table, parent)
    ask(admin, commit)
    assert shown(read_row(admin, table, key("d3", 1))) == {"n": 1}


def test_a_transaction_that_was_committed_stays_so_over_a_move(
    admin: ProtocolClient, table: str
) -> None:
    write_all(admin, table, 0)
    begin = pb.StartLocalTransactionRequest(table_name=table, key=encode_row(key("d3")))
    transaction = ask(admin, begin).transaction_id
    ask(admin, put(table, key("d3", 1), puts(n=1), transaction_id=transaction))
    commit = pb.CommitTransactionRequest(transaction_id=transaction)
    ask(admin, commit)
    for _ in range(2):
        [parent] = [shard for shard in shards(admin, table) if shard["state"] == "open"]
        fields = {"table": table, "shard": parent["shard"], "slot": (parent["slot"] + 1) % 4}
        assert admin.call_json("RowtideMoveShard", fields)["done"]
        ask(admin, commit)
    begun = ask(admin, begin).transaction_id
    [parent] = [shard for shard in shards(admin, table) if shard["state"] == "open"]
    split(admin, table, parent["shard"])
    with pytest.raises(ServerError, match="OTSSessionNotExist"):
        ask(admin, pb.CommitTransactionRequest(transaction_id=begun))
    ask(admin, commit)


def test_options_and_stream_may_change_between_splits(admin: ProtocolClient, table: str) -> None:
    row = key("a0", 1)
    write_all(admin, table, 0)
    [parent] = living(admin, table)
    split(admin, table, parent)
    admin.update_table(table, options=pb.TableOptions(max_versions=3))
    ask(admin, update(table, row, puts(n=1)))
    merge(admin, table, *living(admin, table))
    ask(admin, update(table, row, puts(n=2)))
    found = read_row(admin, table, row, max_versions=9)
    assert found is not None
    assert [cell.value for cell in found.columns] == [2, 1, 0]
    admin.update_table(table, stream=pb.StreamSpecification(enable_stream=False))
    admin.update_table(table, stream=STREAM)
    write_all(admin, table, 3)
    assert numbers_of(read_stream(admin, table)) == {name: [3] for name in NAMES}


def test_a_table_with_ended_shards_is_deleted_whole(
    server: Ready, admin: ProtocolClient, make_table: MakeTable
) -> None:
    made = make_table(stream=STREAM)
    name = f"{made}_deleted"
    admin.create_table(name, KEY, stream=STREAM)
    write_all(admin, name, 0)
    split(admin, name, living(admin, name)[0])
    admin.delete_table(name)
    admin.create_table(name, KEY, stream=STREAM)
    assert all_rows(admin, name) == {}
    assert read_stream(admin, name) == []
    admin.delete_table(name)
