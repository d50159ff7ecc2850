"""The Stream API: what a record has, where positions are, and how a stream ends."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Any, NamedTuple

import pytest

from rowtide.cli.client import ProtocolClient
from rowtide.client.wire_row import Change, Delete, Increment, Put, Special, change_of
from rowtide.core.protocol import plainbuffer
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.values.schema import INTEGER, STRING, KeyColumn
from tests.api.calls import (
    ask,
    batch_write,
    delete,
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
from tests.support.tables import create_request

pytestmark = pytest.mark.system

TRIMMED = "404 OTSTrimmedDataAccess Requested stream data is already trimmed or does not exist."
INVALID = "400 OTSParameterInvalid "
PK = key("a", 1)
OLD_VERSIONS = pb.TableOptions(max_versions=9, deviation_cell_version_in_sec=2**33)


class Seen(NamedTuple):
    """One record: its kind, key, cells, stamp (us), and the columns before it."""

    action: int
    key: tuple[Any, ...]
    cells: tuple[Any, ...]
    stamp_us: int
    before: dict[str, Any] | None


def decode_record(record: Any) -> Seen:
    """Return a record as a client decodes it; every one carries sequence information."""
    row = change_of(plainbuffer.decode_row(record.record))
    assert row.sequence is not None
    before = None
    if record.HasField("origin_record"):
        before = shown(rows(record.origin_record)[0])
    values = tuple(value for _, value in row.key)
    return Seen(record.action_type, values, row.changes, row.sequence.timestamp_us, before)


class Follower:
    """Reads the one shard of a table's stream from its start on."""

    def __init__(self, client: ProtocolClient, table: str) -> None:
        self.client = client
        self.stream_id = describe_stream(client, table).stream_id
        description = ask(client, pb.DescribeStreamRequest(stream_id=self.stream_id))
        (shard,) = description.shards
        self.shard_id = shard.shard_id
        self.iterator = self.start()

    def start(self, **fields: Any) -> str:
        """Return an iterator: of the oldest record, or of a time."""
        request = pb.GetShardIteratorRequest(
            stream_id=self.stream_id, shard_id=self.shard_id, **fields
        )
        answer = ask(self.client, request)
        assert not answer.HasField("next_token"), "clients would ask for ever"
        return str(answer.shard_iterator)

    def read(self, **fields: Any) -> list[Seen]:
        """Return what one read brings, and go on behind it."""
        asked = pb.GetStreamRecordRequest(shard_iterator=self.iterator, **fields)
        answer = ask(self.client, asked)
        assert answer.next_shard_iterator, "an open shard always has a next iterator"
        assert answer.may_more_record == bool(answer.stream_records)
        if not answer.stream_records:
            assert answer.next_shard_iterator == self.iterator, "the very same when nothing is new"
        self.iterator = answer.next_shard_iterator
        return [decode_record(record) for record in answer.stream_records]


def describe_stream(client: ProtocolClient, table: str) -> Any:
    """Return a table's stream details."""
    return ask(client, pb.DescribeTableRequest(table_name=table)).stream_details


def enable_stream(hours: int = 24, *columns: str) -> pb.StreamSpecification:
    """Return what enables a stream."""
    return pb.StreamSpecification(enable_stream=True, expiration_time=hours, columns_to_get=columns)


OFF = pb.StreamSpecification(enable_stream=False)


@pytest.fixture
def table_and_follower(client: ProtocolClient, make_table: MakeTable) -> tuple[str, Follower]:
    """Return a fresh table with a stream, and its follower."""
    table = make_table(stream=enable_stream(), options=OLD_VERSIONS)
    return table, Follower(client, table)


def test_a_stream_is_listed_and_described(client: ProtocolClient, make_table: MakeTable) -> None:
    before_us = time.time_ns() // 1000
    plain, table = make_table(), make_table(stream=enable_stream(7, "b", "a"))
    details = describe_stream(client, table)
    assert details.enable_stream
    assert details.expiration_time == 7
    assert before_us <= details.last_enable_time <= time.time_ns() // 1000
    assert list(details.column_to_get) == ["b", "a"], "in the order given"

    (listed,) = ask(client, pb.ListStreamRequest(table_name=table)).streams
    assert (listed.stream_id, listed.table_name) == (details.stream_id, table)
    assert list(ask(client, pb.ListStreamRequest(table_name=plain)).streams) == []
    assert listed in ask(client, pb.ListStreamRequest()).streams

    description = ask(client, pb.DescribeStreamRequest(stream_id=details.stream_id))
    assert (description.stream_id, description.table_name) == (details.stream_id, table)
    assert (description.expiration_time, description.stream_status) == (7, pb.STREAM_ACTIVE)
    assert description.creation_time == details.last_enable_time
    assert not description.HasField("next_shard_id")
    (shard,) = description.shards
    assert not shard.HasField("parent_id")
    assert not shard.HasField("parent_sibling_id")
    assert shard.shard_id.isascii()
    assert "\t" not in shard.shard_id


def test_a_write_is_in_the_stream_once_answered(
    client: ProtocolClient, table_and_follower: tuple[str, Follower]
) -> None:
    table, follower = table_and_follower
    for number in range(30):
        ask(client, put(table, PK, puts(c=number)))
        (record,) = follower.read()
        assert [cell.value for cell in record.cells] == [number]
        assert follower.read() == []


CHANGES: dict[str, tuple[Any, int, list[Change]]] = {
    "a put with a version": (put(" ", PK, [Put("c", "v", 5)]), 1, [Put("c", "v", 5)]),
    "a put of many": (
        put(" ", PK, [Put("z", b"\0", 1), Put("a", 1.5, 2), Put("m", True, 3)]),
        1,
        [Put("a", 1.5, 2), Put("m", True, 3), Put("z", b"\0", 1)],
    ),
    "a put of a key alone": (put(" ", PK), 1, []),
    "an update": (update(" ", PK, [Put("c", 1, 5)]), 2, [Put("c", 1, 5)]),
    "a delete of a version": (update(" ", PK, [Delete("c", 5)]), 2, [Delete("c", 5)]),
    "a delete of all versions": (update(" ", PK, [Delete("c")]), 2, [Delete("c")]),
    "all that an update can do": (
        update(" ", PK, [Put("colToUpdate", 1, 9), Delete("colToDel", 5), Delete("colToDelAll")]),
        2,
        [Delete("colToDel", 5), Delete("colToDelAll"), Put("colToUpdate", 1, 9)],
    ),
    "a delete of the row": (delete(" ", PK), 3, []),
}


@pytest.mark.parametrize("case", CHANGES)
def test_a_record_says_what_was_changed(
    client: ProtocolClient, table_and_follower: tuple[str, Follower], case: str
) -> None:
    table, follower = table_and_follower
    request, action, cells = CHANGES[case]
    ask(client, put(table, PK, puts(old=1)))
    follower.read()
    before_us = time.time_ns() // 1000
    request.table_name = table
    ask(client, request)
    (record,) = follower.read()
    assert (record.action, record.key, list(record.cells)) == (action, ("a", 1), cells)
    assert before_us <= record.stamp_us <= time.time_ns() // 1000 + 1000
    assert record.before is None


def test_a_put_without_a_version_is_recorded_with_the_stored_one(
    client: ProtocolClient, table_and_follower: tuple[str, Follower]
) -> None:
    table, follower = table_and_follower
    ask(client, put(table, PK, puts(c=1)))
    (record,) = follower.read()
    found = read_row(client, table, PK)
    assert found is not None
    assert record.cells == found.columns


def test_an_increment_is_recorded_as_its_result(
    client: ProtocolClient, table_and_follower: tuple[str, Follower]
) -> None:
    table, follower = table_and_follower
    for _ in range(2):
        ask(client, update(table, PK, [Increment("n", 21)]))
    records = follower.read()
    assert [record.action for record in records] == [2, 2]
    assert [cell.value for record in records for cell in record.cells] == [21, 42]
    assert all(isinstance(cell, Put) for record in records for cell in record.cells)


def test_an_assigned_key_is_recorded_as_its_value(
    client: ProtocolClient, make_table: MakeTable
) -> None:
    columns = [KeyColumn("PK1", STRING), KeyColumn("PK2", INTEGER, auto_increment=True)]
    table = make_table(columns, stream=enable_stream())
    follower = Follower(client, table)
    asked = put(
        table,
        key("a", Special.AUTO_INCREMENT),
        puts(c=1),
        return_content=pb.ReturnContent(return_type=pb.RT_PK),
    )
    (row,) = rows(ask(client, asked).row)
    (record,) = follower.read()
    assert record.key == tuple(value for _, value in row.key)


def test_what_failed_is_not_recorded(
    client: ProtocolClient, table_and_follower: tuple[str, Follower]
) -> None:
    table, follower = table_and_follower
    present = pb.Condition(row_existence=pb.EXPECT_EXIST)
    for request in (
        put(table, PK, condition=present),
        update(table, PK, puts(c=1), condition=present),
        delete(table, PK, condition=present),
        put(table, PK, [Put("c", 1, 2**62)]),
        put(table, key("a"), puts(c=1)),
    ):
        assert refusal(client, request) != "ok"
    ask(
        client,
        batch_write([(table, [put(table, PK, condition=present), put(table, PK, puts(c=1))])]),
    )
    assert [record.action for record in follower.read()] == [1]


def test_records_come_in_the_order_of_the_writes(
    client: ProtocolClient, table_and_follower: tuple[str, Follower]
) -> None:
    table, follower = table_and_follower
    for number in range(20):
        ask(client, put(table, key("single", number % 3), puts(c=number)))
    batch = [put(table, key("batch", number % 7), puts(c=number)) for number in range(100)]
    ask(client, batch_write([(table, batch)]))
    records = follower.read()
    written = [cell.value for record in records for cell in record.cells]
    assert written == [*range(20), *range(100)]
    assert all(one.stamp_us < other.stamp_us for one, other in pairwise(records))


@pytest.mark.parametrize("limit", [1, 7, 50, 1000])
def test_pages_of_records_join_to_the_whole(
    client: ProtocolClient, table_and_follower: tuple[str, Follower], limit: int
) -> None:
    table, follower = table_and_follower
    batch = [put(table, key("a", number), puts(c=number)) for number in range(100)]
    ask(client, batch_write([(table, batch)]))
    found: list[int] = []
    while page := follower.read(limit=limit):
        assert len(page) <= limit
        found += [record.key[1] for record in page]
    assert found == list(range(100))


def test_no_hidden_record_holds_a_reader_up(
    client: ProtocolClient, table_and_follower: tuple[str, Follower]
) -> None:
    table, follower = table_and_follower
    for number in range(3):
        for versions in (2, 3):
            changed = pb.TableOptions(max_versions=versions)
            ask(client, pb.UpdateTableRequest(table_name=table, table_options=changed))
        ask(client, put(table, key("a", number)))
    assert [follower.read(limit=1)[0].key[1] for _ in range(3)] == [0, 1, 2]
    assert follower.read() == []


def test_an_iterator_is_a_position_that_can_be_read_again(
    client: ProtocolClient, table_and_follower: tuple[str, Follower]
) -> None:
    table, follower = table_and_follower
    ask(client, batch_write([(table, [put(table, key("a", n)) for n in range(10)])]))
    start = follower.iterator
    first = follower.read(limit=4)
    middle = follower.iterator
    rest = follower.read()
    for iterator, fields, expected in (
        (start, {"limit": 4}, first),
        (start, {}, first + rest),
        (middle, {"limit": 2}, rest[:2]),
        (middle, {}, rest),
    ):
        follower.iterator = iterator
        assert follower.read(**fields) == expected


def test_an_answer_has_a_thousand_records_unless_told(
    client: ProtocolClient, table_and_follower: tuple[str, Follower]
) -> None:
    table, follower = table_and_follower
    for part in range(6):
        writes = [put(table, key("a", part * 200 + n)) for n in range(200)]
        ask(client, batch_write([(table, writes)]))
    assert [len(follower.read()), len(follower.read()), len(follower.read())] == [1000, 200, 0]


def test_a_large_answer_stops_early_and_loses_nothing(
    client: ProtocolClient, table_and_follower: tuple[str, Follower]
) -> None:
    table, follower = table_and_follower
    for number in range(8):
        ask(client, put(table, key("a", number), [Put("c", b"x" * 2**20)]))
    sizes = []
    while page := follower.read():
        sizes.append(len(page))
    assert sum(sizes) == 8
    assert len(sizes) > 1


def test_a_time_finds_the_first_record_not_before_it(
    client: ProtocolClient, table_and_follower: tuple[str, Follower]
) -> None:
    table, follower = table_and_follower
    for number in range(10):
        ask(client, put(table, key("a", number)))
    records = follower.read()

    def first_from(timestamp_us: int) -> list[int]:
        follower.iterator = follower.start(timestamp=timestamp_us)
        return [record.key[1] for record in follower.read()]

    assert first_from(0) == list(range(10))
    assert first_from(records[4].stamp_us) == list(range(4, 10))
    assert first_from(records[4].stamp_us + 1) == list(range(5, 10))
    assert first_from(records[9].stamp_us + 1) == []
    assert first_from(time.time_ns() // 1000 + 10**9) == []


def test_the_columns_asked_for_come_as_they_were(
    client: ProtocolClient, make_table: MakeTable
) -> None:
    table = make_table(stream=enable_stream(24, "a", "b"))
    follower = Follower(client, table)
    ask(client, put(table, PK, puts(a=1, b="x", c=1)))
    ask(client, update(table, PK, [Put("a", 2), Delete("b")]))
    ask(client, put(table, PK, puts(c=9)))
    ask(client, delete(table, PK))
    start = follower.iterator
    originals = [record.before or {} for record in follower.read()]
    assert originals == [{}, {"a": 1, "b": "x"}, {"a": 2}, {}]
    asked = pb.GetStreamRecordRequest(shard_iterator=start)
    plain = ask(client, asked).stream_records
    assert not any(record.HasField("kept") for record in plain), "an SDK gets nothing new"
    asked.want_kept = True
    records = ask(client, asked).stream_records
    assert [record.kept.existed for record in records] == [False, True, True, True]
    assert [list(record.kept.absent) for record in records] == [["a", "b"], [], ["b"], ["a", "b"]]
    for record in records:
        record.ClearField("kept")
    assert list(records) == list(plain)


def test_a_stream_can_be_changed_while_it_runs(
    client: ProtocolClient, make_table: MakeTable
) -> None:
    table = make_table(stream=enable_stream(24))
    follower = Follower(client, table)
    ask(client, put(table, PK, puts(a=1)))
    for hours in (1, 168):
        answer = ask(
            client, pb.UpdateTableRequest(table_name=table, stream_spec=enable_stream(hours, "a"))
        )
        assert answer.stream_details == describe_stream(client, table)
        assert answer.stream_details.stream_id == follower.stream_id
        assert answer.stream_details.expiration_time == hours
    for hours in (0, 169, -1):
        request = pb.UpdateTableRequest(table_name=table, stream_spec=enable_stream(hours))
        assert refusal(client, request).startswith(INVALID)
    ask(client, put(table, PK, puts(a=2)))
    assert [record.before for record in follower.read()] == [None, {"a": 1}]


def test_disabling_ends_a_stream_and_enabling_begins_another(
    client: ProtocolClient, table_and_follower: tuple[str, Follower]
) -> None:
    table, follower = table_and_follower
    ask(client, put(table, PK, puts(c="old")))
    off = ask(client, pb.UpdateTableRequest(table_name=table, stream_spec=OFF))
    assert not off.stream_details.enable_stream
    assert list(ask(client, pb.ListStreamRequest(table_name=table)).streams) == []
    old_read = pb.GetStreamRecordRequest(shard_iterator=follower.iterator)
    assert refusal(client, old_read) == TRIMMED
    ask(client, put(table, PK, puts(c="between")))
    on = ask(client, pb.UpdateTableRequest(table_name=table, stream_spec=enable_stream()))
    assert on.stream_details.stream_id != follower.stream_id
    assert refusal(client, old_read) == TRIMMED
    old = pb.DescribeStreamRequest(stream_id=follower.stream_id)
    assert refusal(client, old).startswith("404 OTSObjectNotExist ")
    again = Follower(client, table)
    assert again.read() == []
    ask(client, put(table, PK, puts(c="new")))
    assert [record.cells[0].value for record in again.read()] == ["new"]
    again.iterator = again.start(timestamp=0)
    assert len(again.read()) == 1, "no record from before the enabling, whatever the time"


def test_a_stream_enabled_late_begins_with_the_next_write(
    client: ProtocolClient, make_table: MakeTable
) -> None:
    table = make_table()
    ask(client, put(table, PK, puts(c=1)))
    ask(client, pb.UpdateTableRequest(table_name=table, stream_spec=enable_stream()))
    follower = Follower(client, table)
    assert follower.read() == []
    ask(client, put(table, PK, puts(c=2)))
    assert len(follower.read()) == 1


def test_a_deleted_tables_stream_is_gone(client: ProtocolClient, make_table: MakeTable) -> None:
    table = make_table(stream=enable_stream())
    follower = Follower(client, table)
    client.delete_table(table)
    read = pb.GetStreamRecordRequest(shard_iterator=follower.iterator)
    assert refusal(client, read) == TRIMMED
    answer = refusal(client, pb.DescribeStreamRequest(stream_id=follower.stream_id))
    assert answer.startswith("404 OTSObjectNotExist ")
    # The fixture deletes what the module made.
    client.create_table(table, [KeyColumn("PK1", STRING)], stream=enable_stream())
    assert refusal(client, read) == TRIMMED, "a table of the same name is another"


def test_names_that_are_not_there_are_told(
    client: ProtocolClient, table_and_follower: tuple[str, Follower]
) -> None:
    table, follower = table_and_follower
    assert refusal(client, pb.DescribeStreamRequest(stream_id=f"{table}_1")).startswith("404 ")
    shard = pb.GetShardIteratorRequest(stream_id=follower.stream_id, shard_id="absent")
    assert refusal(client, shard).startswith("404 ")
    assert refusal(client, pb.GetStreamRecordRequest(shard_iterator="x")).startswith(INVALID)
    for limit in (0, -1):
        read = pb.GetStreamRecordRequest(shard_iterator=follower.iterator, limit=limit)
        assert refusal(client, read).startswith(INVALID)
    for iterator in (follower.iterator, follower.start(timestamp=1)):
        assert iterator not in ("TRIM_HORIZON", "SHARD_END")
    pages = pb.DescribeStreamRequest(
        stream_id=follower.stream_id, inclusive_start_shard_id=follower.shard_id, shard_limit=1
    )
    assert [shard.shard_id for shard in ask(client, pages).shards] == [follower.shard_id]


@pytest.mark.parametrize("size", [238, 239, 254, 255])
def test_only_the_records_of_a_table_with_a_long_name_are_refused(
    client: ProtocolClient, size: int
) -> None:
    name = "n" * size
    client.create_table(name, [KeyColumn("PK1", STRING)], stream=enable_stream())
    ask(client, put(name, key("a", names=["PK1"])))
    (listed,) = ask(client, pb.ListStreamRequest(table_name=name)).streams
    (shard,) = ask(client, pb.DescribeStreamRequest(stream_id=listed.stream_id)).shards
    place = pb.GetShardIteratorRequest(stream_id=listed.stream_id, shard_id=shard.shard_id)
    for asked in (place, pb.GetShardIteratorRequest(timestamp=1, **_fields(place))):
        read = pb.GetStreamRecordRequest(shard_iterator=ask(client, asked).shard_iterator)
        if size <= 238:
            assert len(ask(client, read).stream_records) == 1
        else:
            assert refusal(client, read).startswith(INVALID + "Invalid stream id")
    client.delete_table(name)


def _fields(message: pb.GetShardIteratorRequest) -> dict[str, str]:
    return {"stream_id": message.stream_id, "shard_id": message.shard_id}


def test_shards_are_paged(client: ProtocolClient) -> None:
    ask(
        client,
        create_request("paged", [("PK1", pb.INTEGER)], cuts=range(4), stream_spec=enable_stream()),
    )
    stream_id = describe_stream(client, "paged").stream_id
    whole = ask(client, pb.DescribeStreamRequest(stream_id=stream_id))
    found: list[str] = []
    page = pb.DescribeStreamRequest(stream_id=stream_id, shard_limit=2)
    while True:
        answer = ask(client, page)
        found += [shard.shard_id for shard in answer.shards]
        assert len(answer.shards) <= 2
        if not answer.HasField("next_shard_id"):
            break
        page.inclusive_start_shard_id = answer.next_shard_id
    client.delete_table("paged")
    assert len(set(found)) == 5
    assert found == [shard.shard_id for shard in whole.shards]
