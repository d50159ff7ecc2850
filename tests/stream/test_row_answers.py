"""Answers written by hand are the bytes that the generated classes would write."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rowtide.core.protocol.plainbuffer import HEADER, delete_cell, encode_row, put_cell
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.records.body import Kept
from rowtide.core.records.record_wire import StreamRow
from rowtide.stream.api.row_answers import (
    range_answer,
    row_answer,
    stream_answer,
    write_answer,
)

UNITS = st.integers(0, 10_000)
WIRE = st.sampled_from([1, 100, 123, 127, 128, 16_370, 16_384, 70_000]).map(lambda n: b"r" * n)
NAMES = st.sampled_from([b"", b"a", "\u00fc".encode(), b"n" * 200])
AFTER = st.sampled_from([[], [delete_cell(b"a", None)], [put_cell(b"a", b"\x02\x01", 5)] * 9])
KEPT = st.builds(Kept, st.booleans(), st.lists(NAMES, max_size=3), AFTER)
ROWS = st.builds(
    StreamRow, st.sampled_from([1, 2, 3]), st.just(7), WIRE, st.none() | WIRE, st.none() | KEPT
)


def make_consumed(read: int, write: int) -> pb.ConsumedCapacity:
    return pb.ConsumedCapacity(capacity_unit=pb.CapacityUnit(read=read, write=write))


@given(UNITS, UNITS, WIRE | st.just(b""))
def test_an_answer_with_a_row_is_what_protobuf_writes(read: int, write: int, wire: bytes) -> None:
    row = HEADER + wire if wire else b""
    expected = pb.GetRowResponse(consumed=make_consumed(read, write), row=row)
    assert row_answer(read, write, wire) == expected.SerializeToString()


@given(UNITS, UNITS, WIRE)
def test_a_write_answer_has_a_row_only_where_one_was_asked_for(
    read: int, write: int, wire: bytes
) -> None:
    bare = pb.PutRowResponse(consumed=make_consumed(read, write))
    assert write_answer(read, write, b"") == bare.SerializeToString()
    full = pb.PutRowResponse(consumed=make_consumed(read, write), row=HEADER + wire)
    assert write_answer(read, write, wire) == full.SerializeToString()


@given(UNITS, st.lists(WIRE, max_size=3), WIRE | st.just(b""))
def test_an_answer_with_a_range_is_what_protobuf_writes(
    read: int, rows: list[bytes], next_key: bytes
) -> None:
    expected = pb.GetRangeResponse(
        consumed=make_consumed(read, 0), rows=b"".join([HEADER, *rows]) if rows else b""
    )
    if next_key:
        expected.next_start_primary_key = HEADER + next_key
    assert range_answer(read, rows, next_key) == expected.SerializeToString()


@given(st.lists(ROWS, max_size=4), UNITS, st.booleans(), st.booleans())
def test_an_answer_with_stream_records_is_what_protobuf_writes(
    rows: list[StreamRow], read: int, more: bool, wants_kept: bool
) -> None:
    expected = pb.GetStreamRecordResponse(
        next_shard_iterator="rt1:s1:5:7", consumed=make_consumed(read, 0), may_more_record=more
    )
    for row in rows:
        item = expected.stream_records.add(action_type=row.action, record=row.row)
        if row.before is not None:
            item.origin_record = row.before
            if wants_kept and row.kept is not None:
                item.kept.existed = row.kept.existed
                item.kept.absent.extend(name.decode() for name in row.kept.absent)
                if row.kept.after:
                    item.kept.after = HEADER + encode_row((), row.kept.after)
    found = stream_answer(rows, read, "rt1:s1:5:7", more=more, wants_kept=wants_kept)
    assert found == expected.SerializeToString()
