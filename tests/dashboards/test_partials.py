"""Partials are linear, exact and bounded; their bytes are those of the format's page."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rowtide.dashboards.fold.answer import answer
from rowtide.dashboards.fold.exact_sum import ExactSum
from rowtide.dashboards.fold.partial import PanelBounds, PanelPartial
from rowtide.dashboards.fold.partial_codec import decode_partial, encode_partial
from rowtide.dashboards.fold.results import quantile_approximately
from rowtide.dashboards.fold.state_bytes import CorruptState
from rowtide.dashboards.fold.states import DoubleSumState, SketchState
from rowtide.dashboards.sql.planner import plan_query
from tests.dashboards.panel_rows import TABLE

PAGE = Path(__file__).resolve().parents[2] / "docs/internals/formats/dashboard-state.md"
# Sizes for which neither a sum nor 1 % of a value leaves the range of doubles.
MIDDLE = st.floats(min_value=-1e300, max_value=1e300).filter(lambda x: x == 0 or abs(x) > 1e-300)


@given(kept=st.lists(MIDDLE, max_size=20), removed=st.lists(MIDDLE, max_size=20))
def test_a_sum_of_doubles_is_rounded_once_as_fsum_does(
    kept: list[float], removed: list[float]
) -> None:
    total = ExactSum()
    for value in (*removed, *kept):
        total.add(value, 1)
    for value in removed:
        total.add(value, -1)
    assert total.exact == sum(map(Fraction, kept))
    assert total.divide(1) == math.fsum(kept)


def test_a_sum_beyond_the_largest_double_is_infinite_until_it_is_taken_back() -> None:
    total = ExactSum()
    for value in (1.7e308, 1e308):
        total.add(-value, 1)
    assert total.divide(1) == -math.inf
    assert total.divide(2) == -1.35e308
    total.add(-1e308, -1)
    assert total.divide(1) == -1.7e308


@given(values=st.lists(st.floats(), max_size=20))
def test_a_sum_that_is_taken_back_leaves_nothing(values: list[float]) -> None:
    state = DoubleSumState()
    for value in values:
        state.add(value, 1)
    for value in reversed(values):
        state.add(value, -1)
    assert state.is_zero


@given(
    values=st.lists(MIDDLE, min_size=1, max_size=60),
    removed=st.lists(MIDDLE, max_size=20),
    quantile=st.sampled_from([0.0, 0.01, 0.5, 0.9, 0.99, 1.0]),
)
def test_a_sketched_quantile_is_at_most_one_percent_away(
    values: list[float], removed: list[float], quantile: float
) -> None:
    state = SketchState()
    for value in (*values, *removed):
        state.add(value, 1)
    for value in removed:
        state.add(value, -1)
    found = quantile_approximately(quantile)(state)
    exact = sorted(values)[max(1, math.ceil(quantile * len(values))) - 1]
    assert isinstance(found, float)
    assert abs(found - exact) <= abs(exact) * 0.01 * (1 + 1e-9)


def test_a_panel_with_too_many_groups_shows_none() -> None:
    plan = plan_query("SELECT small, count(*) AS n FROM t GROUP BY ALL", TABLE)
    bounds = PanelBounds(groups_max=2)
    halves = [PanelPartial(plan, bounds), PanelPartial(plan, bounds)]
    for number in range(3):
        halves[number % 2].add({"small": number})
    assert answer(plan, halves, bounds).fault == "too many groups"
    halves[0].add({"small": 2}, -1)
    assert answer(plan, halves, bounds).rows == [(0, 1), (1, 1)]
    for number in range(1_000):
        halves[0].add({"small": number})
    assert (halves[0].overfull, len(halves[0].groups)) == ("groups", 0)
    assert answer(plan, halves, bounds).fault == "too many groups"


def test_a_million_groups_are_too_many_and_another_panel_counts_their_rows() -> None:
    many = PanelPartial(plan_query("SELECT large, count(*) AS n FROM t GROUP BY ALL", TABLE))
    beside_plan = plan_query("SELECT count(*) AS n, sum(large) AS s FROM t", TABLE)
    beside = PanelPartial(beside_plan)
    for number in range(1_000_000):
        many.add_values((number,), (), 1)
        beside.add_values((number,), (), 1)
    assert (many.overfull, many.groups, many.touched) == ("groups", {}, set())
    assert answer(beside_plan, [beside]).rows == [(1_000_000, 499_999_500_000)]


def test_a_panel_with_too_many_values_shows_none() -> None:
    plan = plan_query("SELECT count(DISTINCT small) FROM t", TABLE)
    partial = PanelPartial(plan, PanelBounds(values_max=5))
    for number in range(6):
        partial.add({"small": number})
    assert answer(plan, [partial]).fault == "too many values"


def test_values_of_another_type_count_as_null_and_are_counted() -> None:
    plan = plan_query("SELECT count(small) AS n, count(*) AS rows_of FROM t", TABLE)
    partial = PanelPartial(plan)
    for value in (1, "1", 1.0, True, None):
        partial.add({"small": value} if value is not None else {})
    found = answer(plan, [partial])
    assert (found.rows, found.mistyped) == ([(1, 5)], {"small": 3})
    partial.add({"small": "1"}, -1)
    assert answer(plan, [partial]).mistyped == {"small": 2}


def test_every_nan_is_one_value_and_both_zeros_are() -> None:
    plan = plan_query("SELECT count(DISTINCT wild) AS n, max(wild) AS m FROM t", TABLE)
    partial = PanelPartial(plan)
    added = [float("nan"), float("nan"), 0.0, -0.0, 1.0]
    for value in added:
        partial.add({"wild": value})
    [[count, highest]] = answer(plan, [partial]).rows
    assert count == 3
    assert isinstance(highest, float)
    assert math.isnan(highest)
    _, groups = encode_partial(partial)
    read = decode_partial(plan, PanelBounds(), encode_partial(partial)[0], groups)
    for value in added:
        read.add({"wild": -value}, -1) if not value else read.add({"wild": value}, -1)
    assert not read.groups


def test_an_overflow_hides_the_numbers_until_its_row_is_gone() -> None:
    plan = plan_query("SELECT sum(large + 1) AS s FROM t", TABLE)
    partial = PanelPartial(plan)
    partial.add({"large": 1})
    partial.add({"large": 2**63 - 1})
    assert answer(plan, [partial]).fault == "out of range"
    partial.add({"large": 2**63 - 1}, -1)
    assert answer(plan, [partial]).rows == [(2,)]


GOLDEN = (
    "SELECT word, flag, count(*), sum(small), avg(ratio), max(seen), "
    "approx_quantile(ratio, 0.5) FROM t GROUP BY ALL"
)


def golden_partial() -> PanelPartial:
    partial = PanelPartial(plan_query(GOLDEN, TABLE))
    partial.add({"word": "a", "flag": True, "small": -3, "ratio": 0.5, "seen": 1})
    partial.add({"word": "a", "flag": True, "small": 300, "ratio": math.inf, "seen": "x"})
    partial.add({"ratio": -2.25}, -1)
    return partial


def test_the_bytes_are_those_of_the_page() -> None:
    summary, groups = encode_partial(golden_partial())
    named = re.findall(
        r"^\| .* \| `([0-9a-f]+)` \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE
    )
    found = [summary.hex()]
    for key, body in groups.items():
        found += [key.hex(), body.hex()]
    assert found == named


@pytest.mark.parametrize("cut", [0, 1, 5, -1])
def test_a_body_that_is_cut_is_corrupt(cut: int) -> None:
    partial = golden_partial()
    summary, groups = encode_partial(partial)
    plan = plan_query(GOLDEN, TABLE)
    cut_groups = {key: body[:cut] for key, body in groups.items()}
    with pytest.raises(CorruptState):
        decode_partial(plan, PanelBounds(), summary, cut_groups)
