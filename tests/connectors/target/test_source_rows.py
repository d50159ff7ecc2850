"""A source's rows are encoded by hand: the bytes are those of the generated classes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowtide.connectors.rows import SourceRow
from rowtide.connectors.runtime import source_rows
from rowtide.connectors.runtime.source_rows import encoded_row, requests
from rowtide.connectors.source import RowRefused
from rowtide.core import plainbuffer, variant
from rowtide.core.variant import Scalar
from rowtide.core.wire import ots_pb2 as pb

texts = st.text() | st.sampled_from(["x" * size for size in (255, 256, 70_000)])
integers = st.integers(-(2**63), 2**63 - 1)
scalars: st.SearchStrategy[Scalar] = st.one_of(
    integers, st.floats(allow_nan=False), st.booleans(), texts, st.binary()
)
names = st.text(min_size=1, max_size=20) | st.just("名" * 85)
keys = st.lists(st.tuples(names, integers | texts | st.binary()), min_size=1, max_size=4)
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
    key = [(name.encode(), variant.encode(value)) for name, value in row.key]
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
    assert encoded_row(row) == message(row).SerializeToString()


@given(st.lists(rows, min_size=1, max_size=5))
def test_requests_are_those_of_the_generated_classes(given_rows: list[SourceRow]) -> None:
    [request] = requests("mysql", "t", given_rows)
    expected = pb.BulkImportRequest(table_name="t", source="mysql")
    expected.rows.extend(message(row) for row in given_rows)
    assert request.body == expected.SerializeToString()
    assert list(request.rows) == given_rows


def row_of(value: Scalar, position: int = 1) -> SourceRow:
    return SourceRow("t", (("k", 1),), {"c": value}, True, 0, position.to_bytes(4, "big"))


def test_requests_are_divided_by_rows_and_by_bytes() -> None:
    many = [row_of(1)] * (source_rows.ROWS_MAX + 1)
    assert [len(r.rows) for r in requests("m", "t", many)] == [source_rows.ROWS_MAX, 1]
    large = row_of("x" * (source_rows.BYTES_MAX // 2))
    assert [len(r.rows) for r in requests("m", "t", [large, large, row_of(1)])] == [1, 2]


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, "\ud800"])
def test_a_value_that_has_no_place_refuses_its_row_behind_those_before_it(value: Scalar) -> None:
    wrong = row_of(value)
    found = requests("m", "t", [row_of(1), wrong, row_of(2)])
    assert len(next(found).rows) == 1
    with pytest.raises(RowRefused) as refused:
        next(found)
    assert refused.value.row is wrong
