"""A source's rows are encoded by hand: the bytes are those of the generated classes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowtide.connectors.rows import ASSIGNED, SourceRow
from rowtide.connectors.runtime import source_packing, source_rows
from rowtide.connectors.runtime.source_rows import (
    PACKED_ROWS_MIN,
    EncodedRows,
    encode_source_row,
    requests,
)
from rowtide.connectors.sources.source import RowRefused
from rowtide.core.protocol import plainbuffer
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.rows.source_form import find_form, first_key_value
from rowtide.core.values import variant
from rowtide.core.values.variant import Scalar

texts = st.text() | st.sampled_from(["x" * size for size in (255, 256, 70_000)])
integers = st.integers(-(2**63), 2**63 - 1)
scalars: st.SearchStrategy[Scalar] = st.one_of(
    integers, st.floats(allow_nan=False), st.booleans(), texts, st.binary()
)
names = st.text(min_size=1, max_size=20) | st.just("名" * 85)
key_values = st.just(ASSIGNED) | integers | texts | st.binary()
keys = st.lists(st.tuples(names, key_values), min_size=1, max_size=4)
columns = st.none() | st.dictionaries(names, st.none() | scalars, max_size=5)
rows = st.builds(
    SourceRow,
    st.just("t"),
    keys.map(tuple),
    columns,
    st.booleans(),
    st.integers(0, 2**62),
    st.binary(min_size=1, max_size=200),
)


def message(row: SourceRow) -> pb.RowInBulkImportRequest:
    """Return the part of a request, made as every other client makes it."""
    key = [
        (name.encode(), variant.V_AUTO_INCREMENT if value is ASSIGNED else variant.encode(value))
        for name, value in row.key
    ]
    cells = [
        plainbuffer.delete_cell(name.encode(), None)
        if value is None
        else plainbuffer.put_cell(name.encode(), variant.encode(value), None)
        for name, value in (row.columns or {}).items()
        if value is not None or not row.whole
    ]
    deleted = row.columns is None
    encoded = plainbuffer.HEADER + plainbuffer.encode_row(key, cells, deleted=deleted)
    kind = pb.PUT if row.whole else pb.UPDATE
    part = pb.RowInBulkImportRequest(type=pb.DELETE if deleted else kind, row_change=encoded)
    part.position, part.time_ms = row.position, row.time_ms
    return part


@given(rows)
def test_a_row_has_the_bytes_that_the_generated_classes_give_it(row: SourceRow) -> None:
    assert encode_source_row(row) == message(row).SerializeToString()


@given(st.lists(rows, min_size=1, max_size=5))
def test_requests_are_those_of_the_generated_classes(given_rows: list[SourceRow]) -> None:
    [request] = requests("mysql", "t", given_rows)
    expected = pb.BulkImportRequest(table_name="t", source="mysql")
    expected.rows.extend(message(row) for row in given_rows)
    assert request.body == expected.SerializeToString()
    assert list(request.rows) == given_rows


small: list[Scalar] = [0, 5, 0.5, "", "x", "é", b"", b"z", True, "x" * 513]
plain_columns = st.none() | st.dictionaries(
    st.sampled_from(["a", "b", "c", "é"]), st.none() | st.sampled_from(small), max_size=4
)


@st.composite
def alike(draw: st.DrawFn) -> list[SourceRow]:
    """Return many rows, of a few forms most of them."""
    key = draw(
        st.sampled_from(
            [
                (1,),
                ("p", 5),
                (b"b", "é"),
                ("k" * 600,),
                (True,),
                ("p", ASSIGNED),
                ("p", ASSIGNED, 5),
            ]
        )
    )
    some = draw(st.lists(plain_columns, min_size=1, max_size=3))
    return [
        SourceRow(
            "t",
            tuple((f"k{place}", value) for place, value in enumerate(key)),
            draw(st.sampled_from(some)),
            draw(st.booleans()),
            1000,
            number.to_bytes(4, "big"),
        )
        for number in range(draw(st.integers(PACKED_ROWS_MIN, 20)))
    ]


@given(alike())
def test_packed_rows_are_those_that_were_given(given_rows: list[SourceRow]) -> None:
    [request] = requests("mysql", "t", given_rows)
    asked = pb.BulkImportRequest.FromString(request.body)
    assert asked.SerializeToString() == request.body
    assert (asked.table_name, asked.source, list(request.rows)) == ("t", "mysql", given_rows)
    for row, part in zip(given_rows, asked.rows, strict=True):
        plain = message(row)
        sent = plainbuffer.decode_row(plain.row_change)
        first = first_key_value(part.row_change, part.row_form, asked.row_forms)
        if part.row_form:
            key, cells = find_form(asked.row_forms, part.row_form).read(part.row_change)
            assert (key, list(cells)) == (sent.key, sorted(sent.cells))
            assert (key.piece, key.state) == plainbuffer.key_piece(list(key))
            part.row_change, part.row_form = plain.row_change, 0
            part.ClearField("row_form")
            assert first == key[0][1]
        assert part == plain


def test_rows_of_a_form_are_packed_once_it_was_met() -> None:
    source_packing.forget()
    many = [row_of("x" * (number % 3)) for number in range(9)]
    [request] = requests("m", "t", many)
    asked = pb.BulkImportRequest.FromString(request.body)
    assert [row.row_form for row in asked.rows] == [0, *[1] * 8]
    assert len(asked.row_forms) == 1


def test_each_request_has_its_own_forms() -> None:
    many = [row_of(1.5) for _ in range(source_rows.FIRST_ROWS_MAX + 10)]
    asked = [pb.BulkImportRequest.FromString(r.body) for r in requests("m", "t", many)]
    assert [len(request.row_forms) for request in asked] == [1, 1]
    assert {row.row_form for row in asked[1].rows} == {1}


def test_a_request_has_so_many_forms_at_most() -> None:
    several = [
        SourceRow("t", (("k", 1),), {f"c{number}": 1}, True, 0, b"p")
        for number in range(source_rows.FORMS_MAX + 5)
    ]
    [request] = requests("m", "t", [*several, *several])
    asked = pb.BulkImportRequest.FromString(request.body)
    assert len(asked.row_forms) == source_rows.FORMS_MAX
    assert [row.row_form for row in asked.rows][-6:] == [source_rows.FORMS_MAX, 0, 0, 0, 0, 0]


def row_of(value: Scalar, position: int = 1) -> SourceRow:
    return SourceRow("t", (("k", 1),), {"c": value}, True, 0, position.to_bytes(4, "big"))


def test_requests_are_divided_by_rows_and_by_bytes() -> None:
    first, most = source_rows.FIRST_ROWS_MAX, source_rows.ROWS_MAX
    many = [row_of(1)] * (first + most + 1)
    assert [len(r.rows) for r in requests("m", "t", many)] == [first, most, 1]
    large = row_of("x" * (source_rows.BYTES_MAX // 2))
    assert [len(r.rows) for r in requests("m", "t", [large, large, row_of(1)])] == [1, 2]


def test_rows_encoded_ahead_are_sent_in_requests_as_large_as_may_be() -> None:
    many = [row_of(1, number) for number in range(source_rows.ROWS_MAX + 1)]
    ahead = EncodedRows("m", "t", many)
    assert ahead == many
    assert list(ahead.requests()) == list(requests("m", "t", many, first_rows=source_rows.ROWS_MAX))
    assert [len(request.rows) for request in ahead.requests()] == [source_rows.ROWS_MAX, 1]


def test_what_is_refused_ahead_is_told_when_its_turn_comes() -> None:
    wrong = row_of(2**63)
    found = EncodedRows("m", "t", [row_of(1), wrong, row_of(2)]).requests()
    assert len(next(found).rows) == 1
    with pytest.raises(RowRefused) as refused:
        next(found)
    assert refused.value.row is wrong


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, "\ud800"])
def test_a_value_that_has_no_place_refuses_its_row_behind_those_before_it(value: Scalar) -> None:
    wrong = row_of(value)
    found = requests("m", "t", [row_of(1), wrong, row_of(2)])
    assert len(next(found).rows) == 1
    with pytest.raises(RowRefused) as refused:
        next(found)
    assert refused.value.row is wrong
