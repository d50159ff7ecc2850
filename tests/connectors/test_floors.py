"""Floors: below which stamp a row of a key says nothing new."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from rowtide.connectors.floors import Floor, Floors
from rowtide.core.values.key_ranges import holds

BYTES = st.binary(max_size=2)
FLOORS = st.lists(
    st.builds(Floor, BYTES, BYTES, st.integers(0, 9)).filter(lambda f: not f.end or f.begin < f.end)
)


def highest(floors: list[Floor], key: bytes) -> int:
    return max([f.stamp for f in floors if holds(((f.begin, f.end),), key)], default=-1)


@given(floors=FLOORS, keys=st.lists(st.binary(max_size=3), min_size=1))
def test_at_a_key_is_the_highest_floor_that_covers_it(
    floors: list[Floor], keys: list[bytes]
) -> None:
    made = Floors(floors)
    assert [made.at(key) for key in keys] == [highest(floors, key) for key in keys]


@given(floors=FLOORS, more=FLOORS, keys=st.lists(st.binary(max_size=3), min_size=1))
def test_others_are_added_to_a_copy(
    floors: list[Floor], more: list[Floor], keys: list[bytes]
) -> None:
    before = Floors(floors)
    after = before.merge(more)
    for key in keys:
        assert before.at(key) == highest(floors, key)
        assert after.at(key) == highest([*floors, *more], key)


@given(floors=FLOORS, keys=st.lists(st.binary(max_size=3), min_size=1))
def test_the_fewest_floors_say_as_much(floors: list[Floor], keys: list[bytes]) -> None:
    fewest = list(Floors(floors).fewest())
    for key in keys:
        assert Floors(fewest).at(key) == highest(floors, key)
    assert all(a.end != b.begin or a.stamp != b.stamp for a, b in pairwise(fewest))
