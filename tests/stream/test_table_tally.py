"""Requests are counted for the tables that their bodies name, by the second that they end in."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowtide.core.cluster.table_figures import TABLES_MAX, SecondFigures, latency_us
from rowtide.core.protocol.operations import OPERATIONS
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.stream.measures.table_tally import (
    NAMES_READ_MAX,
    TableNaming,
    TableTally,
    naming_of,
    tables_at_front,
)

BEGIN_S = 1_700_000_000.25
FIRST = ("PutRow", "UpdateRow", "DeleteRow", "GetRow", "GetRange", "BulkImport", "BulkExport")
EACH = ("BatchGetRow", "BatchWriteRow")
NOT_ROWS = ("DescribeTable", "ListStream", "GetStreamRecord", "CommitTransaction", "RowtideStatus")
NAMES = st.text("tüé_", min_size=1, max_size=120).filter(lambda name: len(name.encode()) < 256)


class Clocks:
    """A wall clock and a steady clock; a test moves both, or the first alone."""

    def __init__(self) -> None:
        self.unix_s = BEGIN_S
        self.steady_s = 10.0

    def advance(self, seconds: float) -> None:
        self.unix_s += seconds
        self.steady_s += seconds


def tally_of(clocks: Clocks, *tables: str) -> TableTally:
    return TableTally(
        lambda instance, table: instance == "i" and table in tables,
        clock_s=lambda: clocks.unix_s,
        steady_s=lambda: clocks.steady_s,
    )


def count(tally: TableTally, clocks: Clocks, request: Any, **more: Any) -> None:
    """Count a request that was answered now."""
    operation = type(request).__name__.removesuffix("Request")
    fields = {"ok": True, "seconds": 0.001, "now_s": clocks.steady_s} | more
    naming = naming_of(operation)
    assert naming is not None
    tally.count(naming, "i", request.SerializeToString(), **fields)


def seconds_of(tally: TableTally, table: str) -> list[SecondFigures]:
    figures, until = tally.figures()
    return list(figures.of_table("i", table).figures(0, until))


def test_operations_on_rows_name_their_tables_at_the_front() -> None:
    assert {naming_of(name) for name in FIRST} == {TableNaming.FIRST}
    assert {naming_of(name) for name in EACH} == {TableNaming.EACH}
    assert {naming_of(name) for name in (*NOT_ROWS, "Absent")} == {None}


@given(NAMES, st.sampled_from(FIRST))
def test_the_name_is_found_in_every_request_about_one_table(name: str, operation: str) -> None:
    body = OPERATIONS[operation].request(table_name=name).SerializeToString()
    assert list(tables_at_front(TableNaming.FIRST, body)) == [name.encode()]


@given(st.lists(st.tuples(NAMES, st.binary(max_size=300)), max_size=9))
def test_every_name_is_found_in_a_batch(tables: list[tuple[str, bytes]]) -> None:
    request = pb.BatchWriteRowRequest(transaction_id="x")
    for name, row in tables:
        request.tables.add(table_name=name).rows.add(type=pb.PUT, row_change=row)
    names = {name.encode() for name, _ in tables}
    assert set(tables_at_front(TableNaming.EACH, request.SerializeToString())) == names


@given(st.binary(max_size=60) | st.binary(max_size=60).map(b"\x0a".__add__))
def test_no_body_breaks_the_count(body: bytes) -> None:
    for naming in (TableNaming.FIRST, TableNaming.EACH):
        for name in tables_at_front(naming, body):
            assert name in body


def test_a_batch_of_very_many_tables_is_not_read_to_its_end() -> None:
    request = pb.BatchGetRowRequest()
    for number in range(NAMES_READ_MAX + 50):
        request.tables.add(table_name=f"t{number}")
    assert len(tables_at_front(TableNaming.EACH, request.SerializeToString())) == NAMES_READ_MAX


def test_a_second_has_its_requests_errors_and_latencies() -> None:
    clocks = Clocks()
    tally = tally_of(clocks, "t")
    for number in range(100):
        seconds = 0.9 if number < 2 else 0.001
        count(tally, clocks, pb.GetRowRequest(table_name="t"), ok=number >= 5, seconds=seconds)
    assert seconds_of(tally, "t") == []
    clocks.advance(1)
    [figures] = seconds_of(tally, "t")
    assert (figures.second, figures.requests, figures.errors) == (int(BEGIN_S), 100, 5)
    assert 1000 <= latency_us(figures.p50) <= 1200
    assert 900_000 <= latency_us(figures.p99) <= 1_080_000


@pytest.mark.parametrize("size", [1, 2, 127, 128, 255])
def test_names_of_every_length_are_counted(size: int) -> None:
    clocks = Clocks()
    tally = tally_of(clocks, "t" * size)
    for _ in range(3):
        count(tally, clocks, pb.GetRowRequest(table_name="t" * size, primary_key=b"k" * 300))
    clocks.advance(1)
    assert [figures.requests for figures in seconds_of(tally, "t" * size)] == [3]


def test_a_name_that_another_begins_with_is_another_table() -> None:
    clocks = Clocks()
    tally = tally_of(clocks, "t", "tt")
    for name in ("t", "tt", "tt"):
        count(tally, clocks, pb.GetRowRequest(table_name=name, primary_key=b"t"))
    clocks.advance(1)
    found = [figures.requests for name in ("t", "tt") for figures in seconds_of(tally, name)]
    assert found == [1, 2]


def test_a_request_counts_once_for_each_table_however_many_rows_it_has() -> None:
    clocks = Clocks()
    tally = tally_of(clocks, "t", "u")
    batch = pb.BatchGetRowRequest()
    for name in ("t", "t", "u"):
        batch.tables.add(table_name=name, primary_key=[b"a", b"b"])
    count(tally, clocks, batch)
    clocks.advance(1)
    assert [f.requests for name in "tu" for f in seconds_of(tally, name)] == [1, 1]


def test_silent_seconds_have_no_entry_and_later_ones_have_their_own() -> None:
    clocks = Clocks()
    tally = tally_of(clocks, "t")
    for pause_s in (0, 0.5, 0.5, 7):
        clocks.advance(pause_s)
        count(tally, clocks, pb.GetRowRequest(table_name="t"))
    clocks.advance(1)
    begin = int(BEGIN_S)
    found = [(f.second - begin, f.requests) for f in seconds_of(tally, "t")]
    assert found == [(0, 2), (1, 1), (8, 1)]


def test_names_of_no_table_are_not_kept() -> None:
    clocks = Clocks()
    tally = tally_of(clocks, "t")
    for number in range(1000):
        count(tally, clocks, pb.GetRowRequest(table_name=f"absent{number}"))
    clocks.advance(1)
    assert len(tally.figures()[0]) == 0


def test_more_tables_than_are_kept_cost_no_memory() -> None:
    clocks = Clocks()
    names = [f"t{number}" for number in range(TABLES_MAX + 50)]
    tally = tally_of(clocks, *names)
    for name in names:
        count(tally, clocks, pb.GetRowRequest(table_name=name))
    clocks.advance(1)
    assert len(tally.figures()[0]) == TABLES_MAX


@pytest.mark.parametrize(
    ("set_by_s", "found"), [(-3600.0, [0, 1]), (3600.0, [0, 3601]), (1.0, [0, 1])]
)
def test_seconds_rise_whatever_the_machines_clock_does(set_by_s: float, found: list[int]) -> None:
    clocks = Clocks()
    tally = tally_of(clocks, "t")
    count(tally, clocks, pb.GetRowRequest(table_name="t"))
    clocks.advance(1)
    clocks.unix_s += set_by_s
    count(tally, clocks, pb.GetRowRequest(table_name="t"))
    clocks.advance(1)
    assert [f.second - int(BEGIN_S) for f in seconds_of(tally, "t")] == found
