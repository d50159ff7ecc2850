"""What counts as old enough, while clocks of the day jump."""

from __future__ import annotations

import pytest

from rowtide.stream.slot.upkeep.long_ago import LongAgo

KEPT_S = 60
HOUR_S = 3600
S = 1_000_000


def find_bound_s(*looks: tuple[int, int]) -> int:
    """Return the bound after reads of these clocks, in seconds: the steady one, the time
    of day.
    """
    now = [looks[0]]
    long_ago = LongAgo(KEPT_S, lambda: now[0][1] * S, lambda: now[0][0])
    long_ago.restart()
    for now[0] in looks[1:]:
        long_ago.look()
    return long_ago.before_us // S


@pytest.mark.parametrize(
    ("looks", "before_s"),
    [
        ([(0, 1000)], 0),
        ([(0, 1000), (59, 1059)], 0),
        ([(0, 1000), (60, 1060)], 1000),
        ([(0, 1000), (30, 1030), (60, 1060), (95, 1095)], 1030),
        # Set forward: what was noted by the former time is as young as it is.
        ([(0, 1000), (60, 1060), (70, 1070 + HOUR_S), (80, 1080 + HOUR_S)], 1000),
        ([(0, 1000), (60, 1060), (70, 1070 + HOUR_S), (131, 1131 + HOUR_S)], 1070 + HOUR_S),
        # Set back: times noted since then lie below the earlier bound.
        ([(0, 9000), (60, 9060), (70, 9070 - HOUR_S), (80, 9080 - HOUR_S)], 9070 - HOUR_S),
        # No read for long: events meanwhile may be noted with any time.
        ([(0, 1000), (HOUR_S, 1000 + HOUR_S)], 1000),
    ],
)
def test_only_what_lies_below_all_that_the_clock_told_is_old(
    looks: list[tuple[int, int]], before_s: int
) -> None:
    assert find_bound_s(*looks) == before_s


def test_after_a_restart_nothing_is_old_until_so_long_has_passed() -> None:
    steady_s = 0
    long_ago = LongAgo(KEPT_S, lambda: (5000 + steady_s) * S, lambda: steady_s)
    long_ago.restart()
    steady_s = 100
    long_ago.look()
    assert long_ago.before_us == 5000 * S
    long_ago.restart()
    assert long_ago.before_us == 0
