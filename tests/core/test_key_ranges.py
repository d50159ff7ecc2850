"""Sets of keys as ranges: what lies within another, what is left of one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rowtide.core.values.key_ranges import Range, Ranges, holds, subtract_ranges, within

KEYS = [bytes((byte,)) for byte in range(8)]
BEGIN = st.sampled_from([b"", *KEYS])


def ranges_of(begin: bytes, end: bytes) -> Range:
    return (begin, end) if not end or begin < end else (end, begin or b"\xff")


RANGE = st.builds(ranges_of, BEGIN, BEGIN)


@given(st.lists(RANGE, max_size=3), RANGE, st.sampled_from(KEYS))
def test_what_lies_within_is_in_both(ranges: list[Range], outer: Range, key: bytes) -> None:
    found = within(ranges, outer)
    assert holds(found, key) == (holds(tuple(ranges), key) and holds((outer,), key))


@given(st.lists(RANGE, max_size=3), RANGE, st.sampled_from(KEYS))
def test_what_is_left_is_in_the_whole_alone(taken: list[Range], whole: Range, key: bytes) -> None:
    left: Ranges = subtract_ranges(whole, taken)
    assert holds(left, key) == (holds((whole,), key) and not holds(tuple(taken), key))
