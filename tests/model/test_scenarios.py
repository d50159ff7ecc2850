"""What random steps found, or would seldom find, one by one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rowtide.client.wire_row import Delete, Put, encode_row
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.values.schema import INTEGER, STRING, KeyColumn
from tests.api.calls import OK, ask, get, key, put, read_row, refusal, update
from tests.api.test_stream import enable_stream
from tests.model.drafts import DAY_MS
from tests.model.pair import Pair
from tests.model.requests import Options, Stream
from tests.model.table_model import TableModel
from tests.model.world import World

pytestmark = pytest.mark.system

ROW = key("a", 1)
KEY = (KeyColumn("PK1", STRING), KeyColumn("PK2", INTEGER))


@pytest.fixture
def table(world: World) -> Iterator[str]:
    """Return a table whose cells live for a day."""
    world.set_clock(world.high_ms + 1)
    model = TableModel(Options(ttl_s=86400), split=None, auto=False, stream=Stream())
    name = Pair(world, model).name
    yield name
    world.client.delete_table(name)


def test_a_row_is_reclaimed_once_no_transaction_holds_its_partition_key(
    world: World, table: str
) -> None:
    ask(world.client, put(table, ROW, [Put("c", 1)]))
    world.set_clock(world.now_ms + 2 * DAY_MS)
    begin = pb.StartLocalTransactionRequest(table_name=table, key=encode_row(key("a")))
    transaction_id = ask(world.client, begin).transaction_id
    ask(world.client, update(table, ROW, [Delete("c")], transaction_id=transaction_id))
    world.client.call_json("RowtideReclaim", {"table": table})
    assert read_row(world.client, table, ROW) is not None
    commit = pb.CommitTransactionRequest(transaction_id=transaction_id)
    assert refusal(world.client, commit) == OK
    assert refusal(world.client, put(table, ROW, [Put("c", 2)])) == OK, "the key is free again"


def test_a_transaction_ends_when_sixty_seconds_have_passed(world: World, table: str) -> None:
    begin = pb.StartLocalTransactionRequest(table_name=table, key=encode_row(key("a")))
    transaction_id = ask(world.client, begin).transaction_id
    within = put(table, ROW, [Put("c", 1)], transaction_id=transaction_id)
    world.set_clock(world.now_ms + DAY_MS)
    world.set_clock(world.now_ms, passed_s=59)
    assert refusal(world.client, within) == OK
    assert "OTSRowOperationConflict" in refusal(world.client, put(table, ROW))
    world.set_clock(world.now_ms, passed_s=1)
    commit = pb.CommitTransactionRequest(transaction_id=transaction_id)
    for request in (within, commit, get(table, ROW, transaction_id=transaction_id)):
        assert "OTSSessionNotExist" in refusal(world.client, request)
    assert read_row(world.client, table, ROW) is None
    assert refusal(world.client, put(table, ROW)) == OK, "the key is free again"


def test_a_stream_is_read_again_where_the_clock_that_was_ahead_is_set_back(
    world: World, table: str
) -> None:
    fresh = f"{table}_fresh"
    world.client.create_table(fresh, KEY, stream=enable_stream(1))
    ask(world.client, put(fresh, ROW, [Put("c", 1)]))
    (stream,) = world.client.list_stream(fresh)
    (shard,) = world.client.describe_stream(stream.stream_id).shards
    start = world.client.get_shard_iterator(stream.stream_id, shard.shard_id)
    world.set_clock(world.now_ms + DAY_MS)
    read = pb.GetStreamRecordRequest(shard_iterator=start)
    assert "OTSTrimmedDataAccess" in refusal(world.client, read)
    world.set_clock(world.now_ms - DAY_MS)
    # Unless the record was trimmed meanwhile, it is read; the position is good in any case.
    again = world.client.get_shard_iterator(stream.stream_id, shard.shard_id)
    assert refusal(world.client, pb.GetStreamRecordRequest(shard_iterator=again)) == OK
    world.set_clock(world.high_ms)
    world.client.delete_table(fresh)


def test_an_expired_row_is_there_until_it_is_reclaimed(world: World, table: str) -> None:
    ask(world.client, put(table, ROW, [Put("c", 1)]))
    world.set_clock(world.now_ms + 2 * DAY_MS)
    found = read_row(world.client, table, ROW)
    assert found is not None
    assert found.columns == ()
    world.client.call_json("RowtideReclaim", {"table": table})
    assert not ask(world.client, get(table, ROW)).row


def test_versions_of_the_server_never_go_back_with_its_clock(world: World, table: str) -> None:
    ask(world.client, put(table, ROW, [Put("c", 1)]))
    high_ms = world.now_ms
    world.set_clock(high_ms - DAY_MS // 2)
    world.restart(kill=True)
    ask(world.client, update(table, ROW, [Put("c", 2)]))
    found = read_row(world.client, table, ROW)
    assert found is not None
    assert found.columns == (Put("c", 2, high_ms),)
    world.set_clock(high_ms)


def options(max_versions: int) -> pb.TableOptions:
    """Return options that take every version."""
    return pb.TableOptions(max_versions=max_versions, deviation_cell_version_in_sec=2**32)


def test_a_killed_server_folds_the_log_under_the_options_of_each_record(
    world: World, table: str
) -> None:
    fresh = f"{table}_fresh"
    world.client.create_table(fresh, KEY, options=options(3))
    for version in range(3):
        ask(world.client, update(fresh, ROW, [Put("c", version, world.now_ms + version)]))
    world.client.update_table(fresh, options=options(1))
    world.restart(kill=True)
    world.client.update_table(fresh, options=options(3))
    found = read_row(world.client, fresh, ROW, max_versions=9)
    world.client.delete_table(fresh)
    assert found is not None
    assert [cell.value for cell in found.columns] == [2, 1, 0]


def test_a_stream_begins_where_it_was_enabled_also_for_a_killed_server(
    world: World, table: str
) -> None:
    fresh = f"{table}_fresh"
    world.client.create_table(fresh, KEY)
    ask(world.client, put(fresh, ROW, [Put("c", 1)]))
    world.client.update_table(fresh, stream=enable_stream())
    world.restart(kill=True)
    ask(world.client, put(fresh, ROW, [Put("c", 2)]))
    (stream,) = world.client.list_stream(fresh)
    (shard,) = world.client.describe_stream(stream.stream_id).shards
    start = world.client.get_shard_iterator(stream.stream_id, shard.shard_id)
    records = world.client.get_stream_record(start).records
    world.client.delete_table(fresh)
    assert [record.row.changes for record in records] == [(Put("c", 2, world.high_ms),)]
