"""The stream's short way from a log record to wire bytes gives what the long way gives."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowtide.core.protocol import plainbuffer
from rowtide.core.protocol.plainbuffer import SequenceInfo
from rowtide.core.records import record
from rowtide.core.records.record_wire import DELETE_ROW, PUT_ROW, UPDATE_ROW, stream_row
from rowtide.core.values import variant
from rowtide.core.values.cell import Cell

NAMES = (b"id", b"n")
KEY = [variant.encode("user1"), variant.encode(-7)]
VALUES = st.one_of(
    st.text(max_size=100),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.booleans(),
    st.binary(max_size=100),
)
NAME = st.one_of(st.sampled_from(["a", "b", "c"]), st.text(min_size=1, max_size=70))
VERSIONS = st.one_of(st.just(1_795_000_000_000), st.integers(0, 2**62))
PUTS = st.builds(
    lambda name, value, version: plainbuffer.put_cell(
        name.encode(), variant.encode(value), version
    ),
    NAME,
    VALUES,
    VERSIONS,
)
DELETES = st.builds(
    lambda name, version: plainbuffer.delete_cell(name.encode(), version),
    NAME,
    st.none() | VERSIONS,
)


def encode(body: record.Body, *, at: int = 5) -> bytes:
    envelope = record.Envelope(at, 3, b"12345678", 1_795_000_000_000_123, record.SINGLE)
    return record.encode_record(envelope, record.encode_body(body))


def long_way(cells: list[Cell]) -> bytes:
    sequence = SequenceInfo(0, 1_795_000_000_000_123, 0)
    key = list(zip(NAMES, KEY, strict=True))
    return plainbuffer.HEADER + plainbuffer.encode_row(key, cells, sequence=sequence)


@given(st.lists(PUTS, max_size=8), st.none() | st.lists(PUTS, max_size=3))
def test_a_put_reads_as_its_cells_encoded_anew(
    cells: list[Cell], before: list[Cell] | None
) -> None:
    row = stream_row(encode(record.PutBody(KEY, cells, before)), 5, NAMES)
    assert row is not None
    assert (row.action, row.stamp) == (PUT_ROW, 1_795_000_000_000_123)
    assert row.row == long_way(cells)
    assert row.before == (None if before is None else long_way(before))


@given(st.lists(PUTS | DELETES, max_size=8))
def test_an_update_shows_deletes_of_versions_and_of_columns(cells: list[Cell]) -> None:
    row = stream_row(encode(record.UpdateBody(KEY, cells, None)), 5, NAMES)
    assert row is not None
    assert (row.action, row.row) == (UPDATE_ROW, long_way(cells))


def test_a_delete_has_its_key_and_no_cells() -> None:
    row = stream_row(encode(record.DeleteBody(KEY, None)), 5, NAMES)
    assert row is not None
    assert (row.action, row.row, row.before) == (DELETE_ROW, long_way([]), None)


@pytest.mark.parametrize("body", [record.NoOp(), record.Seal("{}"), record.Options(-1, 1, None)])
def test_hidden_records_are_not_shown(body: record.Body) -> None:
    assert stream_row(encode(body), 5, NAMES) is None


def test_a_void_record_is_not_shown() -> None:
    assert stream_row(encode(record.PutBody(KEY, [], None)), 6, NAMES) is None


@given(st.data())
def test_damage_is_refused_and_never_crashes(data: st.DataObject) -> None:
    value = bytearray(
        encode(record.PutBody(KEY, [plainbuffer.put_cell(b"a", b"\x02\x01", 9)], None))
    )
    cut = data.draw(st.integers(0, len(value)))
    place = data.draw(st.integers(10, len(value) - 1))
    value[place] = data.draw(st.integers(0, 255))
    for damaged in (bytes(value), bytes(value[:cut])):
        try:
            stream_row(damaged, 5, NAMES)
        except record.CorruptRecord:
            continue
