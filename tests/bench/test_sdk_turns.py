"""The arithmetic of the benchmark that compares trees: medians, changes, spread."""

from __future__ import annotations

import pytest

from tests.bench.sdk_turns import Measure, Sample, compare, medians, spread

PUT = Measure("local", "Go SDK", "PutRow", 64)
GET = Measure("local", "Go SDK", "GetRow", 64)


def samples(measure: Measure, tree: str, *rates: float) -> list[Sample]:
    return [
        Sample(measure, tree, turn, rate, 1.0, 2.0, 1e6 / rate, 0.0, 10.0)
        for turn, rate in enumerate(rates)
    ]


def test_a_figure_is_the_median_of_its_turns() -> None:
    found = medians([*samples(PUT, "this", 90, 300, 100), *samples(PUT, "HEAD", 7)], "this")
    assert list(found) == [PUT]
    assert found[PUT]["rate"] == 100
    assert found[PUT]["worker_us"] == 10_000


SPREADS = [
    # case, turns of one, turns of its twin, spread
    ("equal turns have no spread", [5, 5, 5], [5, 5, 5], 0.0),
    ("one hiccup moves no median of three", [10, 10, 1], [10, 10, 10], 0.0),
    ("one turn of each shows their difference", [110], [100], 0.1),
    ("no turn proves nothing", [], [], float("inf")),
    ("nothing measured proves nothing", [0.0], [0.0], float("inf")),
    (
        "the higher half against the lower",
        [98, 99, 100, 101],
        [102, 103, 104, 105],
        103.5 / 99.5 - 1,
    ),
    ("an odd turn too many is in neither half", [100, 110], [120], 0.2),
]


@pytest.mark.parametrize(("case", "first", "second", "expected"), SPREADS)
def test_spread(case: str, first: list[float], second: list[float], expected: float) -> None:
    assert spread(first, second) == pytest.approx(expected, abs=1e-9), case


CHANGES = [
    # case, this tree, the other, the twin, change, claimed
    ("faster by more than chance", [120] * 5, [100] * 5, [120] * 5, 0.2, True),
    ("slower by more than chance", [80] * 5, [100] * 5, [80] * 5, -0.2, True),
    ("slower as much as twins differ", [90], [100], [100], -0.1, False),
    ("within what twins show", [100, 120, 110], [100] * 3, [100, 125, 105], 0.1, False),
    ("identical", [100] * 3, [100] * 3, [100] * 3, 0.0, False),
]


@pytest.mark.parametrize(("case", "this", "other", "twin", "change", "claimed"), CHANGES)
def test_a_change_is_claimed_above_the_spread(
    case: str,
    this: list[float],
    other: list[float],
    twin: list[float],
    change: float,
    claimed: bool,
) -> None:
    turns = [
        *samples(PUT, "this", *this),
        *samples(PUT, "other", *other),
        *samples(PUT, "twin", *twin),
    ]
    (found,) = compare(turns, "this", "other", "twin", ["rate"])
    assert found.change == pytest.approx(change), case
    assert found.claimed is claimed, case


def test_only_what_both_have_is_compared() -> None:
    turns = [
        *samples(PUT, "this", 100),
        *samples(GET, "other", 100),
        *samples(PUT, "other", 100),
    ]
    found = compare(turns, "this", "other", "other", ["rate", "broker_us"])
    assert [(one.measure, one.figure) for one in found] == [(PUT, "rate")]
