"""Measuring a store's rows: exactly as far as it reads, by RocksDB's files from there on."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rowtide.core.cluster.split_points import RowRun
from rowtide.core.protocol import plainbuffer
from rowtide.core.rows.chunk import row_key, table_prefix
from rowtide.core.rows.fold import RowAddress, Writes, delete_row, put_row
from rowtide.core.values import key, variant
from rowtide.core.values.schema import ShardRange
from rowtide.stream.api.split_point import Measure, SplitPointOperations, files_within
from rowtide.stream.shard.row_store import RowStore
from tests.core.shard_model import table

TABLE = 7
ROWS = 2000
CELL_BYTES = 1000
EVERYTHING = 2**40


def encode(number: int) -> bytes:
    return key.encode([variant.encode(number)])


def address(table: int, number: int) -> RowAddress:
    piece, state = plainbuffer.key_piece([(b"pk", variant.encode(number))])
    return RowAddress(row_key(table, encode(number)), piece, state)


def put(rows: RowStore, table: int, number: int, columns: int = 1) -> Writes:
    """Return a row of random bytes, which no compression makes smaller."""
    noise = random.Random(number)
    cells = [
        plainbuffer.put_cell(b"c%04d" % n, variant.encode(noise.randbytes(CELL_BYTES)), 1)
        for n in range(columns)
    ]
    return put_row(rows, address(table, number), cells, 1, 1)


@pytest.fixture
def rows(tmp_path: Path) -> Iterator[RowStore]:
    store = RowStore(tmp_path / "rows", write_buffer_bytes=256 * 1024)
    # Files change only when a test says so, not between two of its measurements.
    store._db.set_options({"disable_auto_compactions": "true"})
    yield store
    store.close()


def fill(rows: RowStore, table: int = TABLE) -> None:
    for first in range(0, ROWS, 100):
        rows.write([w for n in range(first, first + 100) for w in put(rows, table, n)])
    rows.flush()


def measure_of(rows: RowStore, piece_bytes: int = 20_000) -> Measure:
    bounds = table_prefix(TABLE), table_prefix(TABLE + 1)
    return Measure(rows, *bounds, piece_bytes, lambda: files_within(rows, *bounds))


def measure_runs(
    rows: RowStore, bytes_max: int = EVERYTHING, piece_bytes: int = 20_000
) -> list[RowRun]:
    measure = measure_of(rows, piece_bytes)
    for _ in measure.slices(bytes_max):
        pass
    return measure.pieces()


def assert_rows_in_order(pieces: list[RowRun]) -> None:
    keys = [piece.key for piece in pieces]
    assert keys == sorted(set(keys))
    for row in keys:
        (number,) = key.decode(row)
        assert 0 <= variant.decode(number) < ROWS  # type: ignore[operator]


def test_an_empty_store_has_no_pieces(rows: RowStore) -> None:
    assert measure_runs(rows) == []


def test_all_rows_are_measured_exactly(rows: RowStore) -> None:
    fill(rows)
    pieces = measure_runs(rows)
    assert pieces[0].key == encode(0)
    assert_rows_in_order(pieces)
    row_bytes = pieces[0].size / 20
    assert CELL_BYTES < row_bytes < CELL_BYTES + 50
    assert [piece.size for piece in pieces] == [20 * row_bytes] * (ROWS // 20)


def test_other_tables_and_deleted_rows_count_nothing(rows: RowStore) -> None:
    fill(rows)
    before = measure_runs(rows)
    fill(rows, TABLE - 1)
    fill(rows, TABLE + 1)
    assert measure_runs(rows) == before
    for number in range(ROWS):
        rows.write(delete_row(rows, address(TABLE, number), 2))
    assert measure_runs(rows) == []


def test_a_wide_row_is_never_cut(rows: RowStore) -> None:
    for number in range(3):
        rows.write(put(rows, TABLE, number, columns=300))
    pieces = measure_runs(rows)
    assert [piece.key for piece in pieces] == [encode(number) for number in range(3)]
    assert all(300 * CELL_BYTES < piece.size < 310 * CELL_BYTES for piece in pieces)


def test_reading_stops_at_its_bound_slice_by_slice(rows: RowStore) -> None:
    fill(rows)
    measure = measure_of(rows)
    assert 500_000 <= sum(measure.slices(500_000)) < 510_000


@pytest.mark.parametrize("bytes_max", [0, 500_000, 1_500_000])
@pytest.mark.parametrize(
    ("merged", "off_by"),
    [
        (True, 0.02),
        (False, 0.5),  # RocksDB merges files at any time, and the largest level represents all.
    ],
)
def test_what_was_not_read_is_estimated_from_files(
    rows: RowStore, bytes_max: int, off_by: float, *, merged: bool
) -> None:
    fill(rows)
    assert len(rows.files()) > 1
    if merged:
        rows._db.compact_range(None, None)
    pieces = measure_runs(rows, bytes_max)
    assert_rows_in_order(pieces)
    assert pieces[0].key == encode(0)
    if bytes_max:
        total = sum(piece.size for piece in measure_runs(rows))
        assert sum(piece.size for piece in pieces) == pytest.approx(total, rel=off_by)


def test_an_estimate_begins_behind_a_wide_row(rows: RowStore) -> None:
    rows.write([w for n in range(3) for w in put(rows, TABLE, n, columns=300)])
    rows.flush()
    pieces = measure_runs(rows, 100_000)
    assert [piece.key for piece in pieces] == [encode(0), encode(1)]


class Shard:
    """The owner of the table's one shard: its rows, and where its log ends."""

    def __init__(self, rows: RowStore) -> None:
        self.rows, self.end = rows, 7

    def require_readable(self) -> None:
        """Return: the lease holds."""


@pytest.mark.parametrize("bytes_max", [0, 500_000, 1_500_000])
async def test_an_unchanged_shard_is_cut_alike_though_its_files_are_merged(
    rows: RowStore, bytes_max: int
) -> None:
    """Merges drop what was overwritten: 328 parts became 310."""
    for _ in range(3):
        fill(rows)
    shard = Shard(rows)
    directory: Any = SimpleNamespace(shard=lambda _: shard, limits=None)
    splits = SplitPointOperations(directory, directory)
    place = replace(table(), table_id=TABLE), ShardRange("s1", 0)

    async def cut() -> list[RowRun]:
        found = await splits.measure_shard(directory, *place, 20_000, bytes_max)
        return found.pieces

    first = await cut()
    rows._db.compact_range(None, None)
    assert await cut() == first
    assert await cut() == first
    shard.end += 1  # A record was applied: the files of now are as good.
    assert await cut() == measure_runs(rows, bytes_max) != first


@pytest.mark.parametrize("first", [TABLE, TABLE + 1])
@pytest.mark.parametrize("bytes_max", [0, 500_000])
async def test_a_table_and_its_local_index_are_measured_apart(
    rows: RowStore, first: int, bytes_max: int
) -> None:
    for number in (TABLE, TABLE + 1):
        fill(rows, number)
    shard = Shard(rows)
    directory: Any = SimpleNamespace(shard=lambda _: shard, limits=None)

    async def cut(splits: SplitPointOperations, number: int) -> list[RowRun]:
        place = replace(table(), table_id=number), ShardRange("s1", 0)
        return (await splits.measure_shard(directory, *place, 20_000, bytes_max)).pieces

    splits = SplitPointOperations(directory, directory)
    await cut(splits, first)
    for number in (TABLE, TABLE + 1):
        found = await cut(splits, number)
        assert found == await cut(SplitPointOperations(directory, directory), number)
        assert not bytes_max or len(found) > 10
