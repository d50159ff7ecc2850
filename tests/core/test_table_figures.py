"""Figures of tables by the second: what is kept, for how long, and how it is handed on."""

from __future__ import annotations

from bisect import bisect_left

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowtide.core.cluster.table_figures import (
    HOUR_S,
    LATENCY_BOUNDS_S,
    SECONDS_KEPT_MAX,
    TABLES_MAX,
    SecondFigures,
    TableFigures,
    TableSeconds,
    latency_us,
    percentile_bin,
)

BEGIN = 1_700_000_000
BINS = len(LATENCY_BOUNDS_S) + 1


def busy(second: int, requests: int = 3) -> SecondFigures:
    return SecondFigures(second, requests, 1, 4, 9)


@given(st.lists(st.integers(0, BINS - 1), min_size=1, max_size=200), st.sampled_from([0.5, 0.99]))
def test_a_percentile_is_the_bin_of_that_request_in_order(bins: list[int], share: float) -> None:
    within = [bins.count(number) for number in range(BINS)]
    below = [bin for bin in sorted(bins) if bin <= percentile_bin(within, share)]
    assert len(below) >= share * len(bins)
    less = [bin for bin in bins if bin < percentile_bin(within, share)]
    assert len(less) < share * len(bins) or not less


@given(st.floats(60e-6, 20.0))
def test_a_latency_is_reported_within_a_fifth(seconds: float) -> None:
    reported_us = latency_us(bisect_left(LATENCY_BOUNDS_S, seconds))
    assert seconds * 1e6 * 0.99 <= reported_us <= seconds * 1e6 * 1.21 + 1


def test_a_second_is_kept_for_an_hour_and_memory_is_bounded() -> None:
    kept = TableSeconds()
    for second in range(BEGIN, BEGIN + 3 * HOUR_S):
        kept.add(busy(second))
        assert len(kept) <= SECONDS_KEPT_MAX
    last = BEGIN + 3 * HOUR_S - 1
    hour = list(kept.figures(last - HOUR_S, last))
    assert hour == [busy(second) for second in range(last - HOUR_S + 1, last + 1)]


def test_a_second_that_is_not_later_is_ignored() -> None:
    kept = TableSeconds()
    for second in (BEGIN + 1, BEGIN + 1, BEGIN):
        kept.add(busy(second, requests=second - BEGIN + 1))
    assert list(kept.figures(0, BEGIN + 9)) == [busy(BEGIN + 1, requests=2)]


def test_the_table_that_was_silent_for_longest_makes_room() -> None:
    figures = TableFigures()
    for number in range(TABLES_MAX):
        figures.add("i", f"t{number}", busy(BEGIN + number))
    figures.add("i", "t0", busy(BEGIN + TABLES_MAX))
    figures.add("i", "new", busy(BEGIN + TABLES_MAX))
    assert len(figures) == TABLES_MAX
    assert len(figures.of_table("i", "t0")) == 2
    assert len(figures.of_table("i", "t1")) == 0
    later = BEGIN + TABLES_MAX + 2 * HOUR_S
    figures.add("i", "later", busy(later))
    assert [table for _, table, _ in figures.tables()] == ["later"]


SECONDS = st.dictionaries(
    st.tuples(st.sampled_from("ij"), st.sampled_from("tuv")),
    st.sets(st.integers(BEGIN, BEGIN + 60), max_size=40),
    max_size=6,
)


@given(SECONDS, st.integers(1, 30))
def test_pages_hand_on_everything_once_whatever_their_size(
    seconds: dict[tuple[str, str], set[int]], entries_max: int
) -> None:
    figures, copy = TableFigures(), TableFigures()
    for (instance, table), of_table in seconds.items():
        for second in sorted(of_table):
            figures.add(instance, table, SecondFigures(second, second % 7 + 1, 1, 2, BINS - 1))
    until, after, pages = BEGIN + 60, 0, 0
    while after < until:
        page = figures.page(after, until, entries_max=entries_max)
        if after:
            assert page["until_s"] > after
        after = page["until_s"]
        entries = sum(len(table["seconds"]) for table in page["tables"])
        assert entries <= max(entries_max, len(seconds))
        copy.add_page(page)
        pages += 1
        assert pages < 100
    for (instance, table), of_table in seconds.items():
        found = list(copy.of_table(instance, table).figures(0, until))
        assert found == list(figures.of_table(instance, table).figures(0, until))
        assert [entry.second for entry in found] == sorted(of_table)


def test_a_page_of_nothing_says_up_to_when() -> None:
    page = TableFigures().page(0, BEGIN, entries_max=1)
    assert page == {"until_s": BEGIN, "tables": []}


def test_a_reader_that_is_ahead_gets_nothing_twice() -> None:
    figures = TableFigures()
    figures.add("i", "t", busy(BEGIN))
    assert figures.page(BEGIN + 5, BEGIN, entries_max=9) == {"until_s": BEGIN + 5, "tables": []}


@pytest.mark.parametrize("number", range(BINS))
def test_every_bin_has_an_upper_end_above_the_last(number: int) -> None:
    assert number == 0 or latency_us(number) > latency_us(number - 1)
