"""Where a table is cut: parts reach the size asked for, and never more cuts than allowed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowtide.core.cluster.split_points import RowRun, StoredFile, bytes_between, choose, estimate


def pieces(*sizes: int) -> list[RowRun]:
    return [RowRun(b"%05d" % index, size) for index, size in enumerate(sizes)]


def cuts(sizes: list[int], split_bytes: int, points_max: int = 1000) -> list[int]:
    return [int(point) for point in choose(pieces(*sizes), split_bytes, points_max)]


SCENARIOS = {
    "an empty table is one part": ([], 100, 1000, []),
    "what is below the size is one part": ([10, 20, 30], 100, 1000, []),
    "what is exactly the size is one part": ([50, 50], 100, 1000, []),
    "parts reach the size, the last one need not": ([50] * 5, 100, 1000, [2, 4]),
    "a piece above the size is a part of its own": ([300, 10, 300], 100, 1000, [1]),
    "pieces overshoot, they are never cut": ([70] * 4, 100, 1000, [2]),
    "fewer cuts make larger parts": ([50] * 10, 100, 1, [5]),
    "pieces of deleted rows alone make no cut more": ([1, 1, 0], 1, 1, [1]),
    "larger parts where there would be one cut too many": ([40] * 10, 100, 2, [4, 8]),
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_table_is_cut_where_its_parts_are_about_equal(name: str) -> None:
    sizes, split_bytes, points_max, expected = SCENARIOS[name]
    assert cuts(sizes, split_bytes, points_max) == expected


@given(st.lists(st.integers(0, 200), max_size=200), st.integers(1, 1000), st.integers(1, 20))
def test_every_part_but_the_last_reaches_the_size_and_cuts_are_bounded(
    sizes: list[int], split_bytes: int, points_max: int
) -> None:
    points = cuts(sizes, split_bytes, points_max)
    assert points == sorted(set(points))
    assert len(points) <= points_max
    edges = [0, *points]
    parts = [sum(sizes[a:b]) for a, b in zip(edges, points, strict=False)]
    assert all(part >= split_bytes for part in parts)


def file(start: bytes, end: bytes, entries: int, level: int = 6) -> StoredFile:
    return StoredFile(start, end, level, entries)


def test_without_files_there_is_nothing_more() -> None:
    assert estimate([], pieces(1, 2), b"x", 10) == []


def test_each_file_behind_what_was_measured_is_a_piece() -> None:
    files = [file(b"m", b"r", 300), file(b"s", b"z", 200), file(b"a", b"c", 500)]
    assert estimate(files, [], b"d", 2.0) == [RowRun(b"d", 600), RowRun(b"s", 400)]


def test_a_file_measured_in_part_counts_with_its_rest() -> None:
    measured = [RowRun(b"a", 10), RowRun(b"f", 30), RowRun(b"g", 40)]
    files = [file(b"a", b"c", 5), file(b"f", b"m", 100), file(b"n", b"z", 50)]
    assert estimate(files, measured, b"h", 2.0) == [RowRun(b"h", 130), RowRun(b"n", 100)]


def test_entries_of_other_levels_are_spread_over_the_largest_one() -> None:
    files = [file(b"m", b"r", 300), file(b"s", b"z", 100), file(b"a", b"z", 200, level=0)]
    assert estimate(files, [], b"d", 2.0) == [RowRun(b"d", 900), RowRun(b"s", 300)]


def test_a_rest_is_never_below_nothing() -> None:
    assert estimate([file(b"a", b"z", 1)], [RowRun(b"a", 100)], b"b", 1.0) == [RowRun(b"b", 0)]


def test_a_file_at_a_border_counts_half_and_one_beside_it_nothing() -> None:
    spans = [(b"a", b"f"), (b"g", b"m"), (b"n", b"t"), (b"u", b"z")]
    files = [StoredFile(start, end, 6, 1, 100) for start, end in spans]
    assert bytes_between(files, b"c", b"n") == 50 + 100
    assert bytes_between(files, b"a", b"zz") == 400
    assert bytes_between(files, b"zz", b"zzz") == 0
