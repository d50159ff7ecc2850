"""A reader of batches that knows many forms reads as one that knows none, down to each refusal."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowtide.core.cluster.catalog import Catalog
from rowtide.core.protocol import plainbuffer
from rowtide.core.protocol.authentication import Identity
from rowtide.core.protocol.plainbuffer import HEADER, put_cell
from rowtide.core.protocol.row_form import FORMS, FormLearner
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.values import variant
from rowtide.core.values.errors import StoreError
from rowtide.core.values.limits import Limits
from rowtide.core.values.schema import INTEGER, STRING, KeyColumn, Table, TableOptions
from rowtide.stream.api.batch_reading import BatchReader
from rowtide.stream.api.batch_write import BatchRow
from rowtide.stream.api.directory import Directory
from rowtide.stream.api.like_rows import TOGETHER_MIN, LikeRows

# What is known of rows serves Python alone: kernels read each row by itself.
pytestmark = pytest.mark.usefixtures("pure")
ANN = Identity("key-of-ann", "shop", b"")
IGNORE, EXIST = pb.IGNORE, pb.EXPECT_EXIST


def table(name: str, number: int, *, options: TableOptions | None = None, main: int = 0) -> Table:
    key = (KeyColumn("pk", STRING), KeyColumn("n", INTEGER))
    options = options or TableOptions()
    return Table(ANN.instance, name, number, key, options, None, 0, 0, 1, 1, (), main=main)


def directory(limits: Limits | None = None) -> Directory:
    """Return what has table t, u whose rows may not be updated, and i, an index of t."""
    catalog = Catalog()
    tables = [table("t", 1), table("u", 2, options=TableOptions(allow_update=False))]
    for one in [*tables, table("i", 3, main=1)]:
        catalog.tables[ANN.instance, one.name] = one
    return Directory(catalog, {}, limits or Limits(), lambda: 1)


def row(name: str, number: int, *values: variant.Scalar, pk: bytes = b"pk") -> bytes:
    key = [(pk, variant.encode(name)), (b"n", variant.encode(number))]
    cells = [put_cell(b"c%d" % at, variant.encode(value), None) for at, value in enumerate(values)]
    return HEADER + plainbuffer.encode_row(key, cells)


def item(
    wire: bytes,
    kind: pb.OperationType = pb.PUT,
    expected: pb.RowExistenceExpectation | None = IGNORE,
) -> pb.RowInBatchWriteRowRequest:
    found = pb.RowInBatchWriteRowRequest(type=kind, row_change=wire)
    if expected is not None:
        found.condition.row_existence = expected
    return found


def batch(*rows: pb.RowInBatchWriteRowRequest, of: str = "t") -> pb.BatchWriteRowRequest:
    request = pb.BatchWriteRowRequest()
    request.tables.add(table_name=of, rows=rows)
    return request


def taught(*requests: pb.BatchWriteRowRequest, where: Directory) -> BatchReader:
    """Return a reader that has read these often enough to know their rows."""
    reader = BatchReader(where)
    for request in requests:
        for _ in range(3 * FormLearner.PAUSE_MIN):
            outcome(reader, request.SerializeToString())
    return reader


def outcome(reader: BatchReader, body: bytes) -> object:
    """Return all that there is to know of a batch, or what refuses it."""
    try:
        read = reader.read(ANN, body)
    except StoreError as refused:
        return refused.code, refused.message
    return (
        read.request,
        read.fields,
        read.first_values(),
        [describe_row(row) for row in read.rows()],
    )


def describe_row(row: BatchRow) -> object:
    failure = row.failure and (row.failure.code, row.failure.message)
    return row.row, plainbuffer.key_piece(row.row.key), row.table, row.change, failure


def mark_known_rows(reader: BatchReader, body: bytes) -> str:
    """Return a letter for each row: read with others like it, or by itself."""
    found = reader.read(ANN, body)
    return "".join("-" if isinstance(row, BatchRow) else "k" for row in found._rows)


SIX = range(6)
PUTS = [item(row(f"row{n}", n, f"text{n}", n)) for n in SIX]
UPDATES = [item(row(f"old{n}", n, 1.5, b"blob"), pb.UPDATE, EXIST) for n in SIX]
BARE = [item(row(f"name{n}", n, "a" * 9, n, n), expected=None) for n in SIX]
TEACHING = [batch(*PUTS), batch(*UPDATES), batch(*BARE), batch(*PUTS, of="u")]

WIRES = st.builds(
    row,
    st.sampled_from(["row7", "name8", "\u00e9ab", "a"]),
    st.integers(-3, 3),
    st.sampled_from(["text7", 1.5, 8, True]),
    st.sampled_from([7, b"blob"]),
    pk=st.sampled_from([b"pk", b"pk", b"pq"]),
)
ITEMS = st.builds(
    item,
    WIRES | st.sampled_from([wire.row_change for wire in (PUTS[0], UPDATES[1], BARE[2])]),
    st.sampled_from([pb.PUT, pb.PUT, pb.UPDATE, pb.DELETE]),
    st.sampled_from([None, IGNORE, EXIST]),
)
ROWS = st.lists(st.sampled_from([*PUTS, *UPDATES, *BARE]) | ITEMS, max_size=16)
TABLES = st.builds(pb.TableInBatchWriteRowRequest, table_name=st.sampled_from("tttuiv"), rows=ROWS)
REQUESTS = st.builds(
    pb.BatchWriteRowRequest,
    tables=st.lists(TABLES, max_size=2),
    transaction_id=st.sampled_from([None, None, "a"]),
)


@given(REQUESTS)
def test_whatever_a_reader_knows_it_reads_the_same(request: pb.BatchWriteRowRequest) -> None:
    FORMS.forget()
    where = directory()
    reader = taught(*TEACHING, where=where)
    body = request.SerializeToString()
    assert outcome(reader, body) == outcome(BatchReader(where), body)


@given(st.sampled_from([PUTS, UPDATES, BARE]), st.data())
def test_whatever_is_damaged_is_told_the_same(
    rows: Sequence[pb.RowInBatchWriteRowRequest], draw: st.DataObject
) -> None:
    where = directory()
    reader = taught(*TEACHING, where=where)
    body = bytearray(batch(*rows).SerializeToString())
    for _ in range(draw.draw(st.integers(1, 2))):
        body[draw.draw(st.integers(0, len(body) - 1))] ^= draw.draw(st.integers(1, 255))
    assert outcome(reader, bytes(body)) == outcome(BatchReader(where), bytes(body))


def test_every_byte_that_is_damaged_alone_is_told_the_same() -> None:
    where = directory()
    reader, fresh = taught(*TEACHING, where=where), BatchReader(where)
    body = batch(*PUTS[:TOGETHER_MIN]).SerializeToString()
    assert mark_known_rows(reader, body) == "k" * TOGETHER_MIN
    for at in range(len(body)):
        for bit in range(8):
            damaged = bytearray(body)
            damaged[at] ^= 1 << bit
            fresh._like = LikeRows()
            assert outcome(reader, bytes(damaged)) == outcome(fresh, bytes(damaged))


@pytest.mark.parametrize("request_", TEACHING)
def test_rows_that_are_like_earlier_ones_are_read_together(
    request_: pb.BatchWriteRowRequest,
) -> None:
    reader = taught(*TEACHING, where=directory())
    assert mark_known_rows(reader, request_.SerializeToString()) == "k" * len(SIX)


def test_others_in_the_batch_are_read_one_by_one() -> None:
    reader = taught(*TEACHING, where=directory())
    deletes = [item(row("row1", 1), pb.DELETE)] * TOGETHER_MIN
    mixed = [PUTS[0], deletes[0], *PUTS[1:], BARE[0], *deletes[1:], *UPDATES]
    assert mark_known_rows(reader, batch(*mixed).SerializeToString()) == "k-kkkkk----kkkkkk"


def test_a_row_that_is_not_in_order_has_its_like_read_one_by_one() -> None:
    reader = taught(*TEACHING, where=directory())
    other = item(row("row1", 1, "text\0", 1), expected=EXIST)
    assert mark_known_rows(reader, batch(*PUTS, other).SerializeToString()) == "-" * 7


def test_what_is_known_of_a_table_that_has_changed_is_forgotten() -> None:
    where = directory()
    reader = taught(*TEACHING, where=where)
    body = batch(*UPDATES).SerializeToString()
    assert mark_known_rows(reader, body) == "k" * len(SIX)
    where.catalog.tables[ANN.instance, "t"] = table(
        "t", 1, options=TableOptions(allow_update=False)
    )
    refused = ("OTSParameterInvalid", "Update operation is not allowed in this table")
    assert outcome(reader, body) == refused
    puts = batch(*PUTS).SerializeToString()
    for _ in range(20 * FormLearner.PAUSE_MIN):
        outcome(reader, puts)
    assert mark_known_rows(reader, puts) == "k" * len(SIX)


WRONG = {
    "text": batch(*PUTS[:4]).SerializeToString() + b"\x12\x01\xff",
    "rows": batch(*PUTS, *PUTS[:4]).SerializeToString(),
    "bytes": batch(*PUTS).SerializeToString(),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_what_refuses_a_batch_of_known_rows_refuses_it_still(wrong: bytes) -> None:
    where = directory(Limits(batch_write_rows_max=6, batch_write_bytes_max=150))
    fine = batch(*PUTS[:4])
    reader = taught(fine, where=where)
    assert mark_known_rows(reader, fine.SerializeToString()) == "kkkk"
    found = outcome(reader, wrong)
    assert found == outcome(BatchReader(where), wrong)
    assert isinstance(found, tuple)
    assert found[0] == "OTSParameterInvalid"
