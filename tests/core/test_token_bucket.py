"""A burst at once, then a steady rate; time that stands still or goes back gives nothing."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rowtide.core.cluster.token_bucket import TokenBucket


def take(bucket: TokenBucket, now_s: float, tries: int) -> int:
    return sum(bucket.take(now_s) for _ in range(tries))


def test_a_burst_is_let_through_and_no_more() -> None:
    assert take(TokenBucket(10, burst=200), 5.0, 300) == 200


def test_an_empty_bucket_fills_at_its_rate() -> None:
    bucket = TokenBucket(10, burst=200)
    take(bucket, 5.0, 200)
    assert [take(bucket, now_s, 50) for now_s in (5.05, 5.125, 6.125, 7.125)] == [
        0,
        1,
        10,
        10,
    ]


def test_it_never_holds_more_than_the_burst() -> None:
    bucket = TokenBucket(10, burst=3)
    take(bucket, 0.0, 3)
    assert take(bucket, 1e9, 10) == 3


def test_a_clock_that_goes_back_gives_nothing() -> None:
    bucket = TokenBucket(10, burst=1)
    assert [bucket.take(now_s) for now_s in (100.0, 50.0, 100.0, 100.125)] == [
        True,
        False,
        False,
        True,
    ]


def test_a_rate_of_zero_is_no_limit() -> None:
    assert take(TokenBucket(0, burst=0), 0.0, 1000) == 1000


@given(st.lists(st.floats(0, 0.5), min_size=1, max_size=200), st.integers(1, 20))
def test_in_any_span_no_more_than_burst_and_rate_allow(waits: list[float], burst: int) -> None:
    bucket, now_s, taken_at = TokenBucket(10, burst=burst), 0.0, []
    for wait in waits:
        now_s += wait
        if bucket.take(now_s):
            taken_at.append(now_s)
    for first in range(len(taken_at)):
        for last in range(first, len(taken_at)):
            span_s = taken_at[last] - taken_at[first]
            assert last - first + 1 <= burst + span_s * 10 + 1e-6
