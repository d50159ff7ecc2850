"""Slots are divided evenly, stay where they are, and go to who has their rows."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from rowtide.core.cluster.division import Holding, divide


def hold(*owned: int, standby: tuple[int, ...] = ()) -> Holding:
    return Holding(set(owned), set(standby))


def test_the_slots_of_a_member_that_left_go_to_their_standbys() -> None:
    # c left with slots 4 and 5.
    now = {"a": hold(0, 1, standby=(2, 4)), "b": hold(2, 3, standby=(0, 5))}
    then = divide(now, slots=6, standbys=1)
    assert then["a"].owned == {0, 1, 4}
    assert then["b"].owned == {2, 3, 5}


def test_a_member_that_joins_gets_its_share_and_no_slot_moves_between_the_others() -> None:
    now = {name: hold(*range(4 * n, 4 * n + 4)) for n, name in enumerate("abcd")}
    then = divide(now | {"e": hold()}, slots=16, standbys=1)
    assert len(then["e"].owned) == 3
    assert all(then[name].owned <= now[name].owned for name in now)


def test_who_gives_a_slot_away_keeps_its_rows_warm() -> None:
    then = divide({"a": hold(0, 1, 2, 3), "b": hold()}, slots=4, standbys=1)
    assert then["a"].standby == then["b"].owned
    assert then["b"].standby == then["a"].owned


def test_without_standbys_nobody_keeps_copies() -> None:
    then = divide(
        {"a": hold(0, standby=(1,)), "b": hold(1, standby=(0,))},
        slots=2,
        standbys=0,
    )
    assert [holding.standby for holding in then.values()] == [set(), set()]


def test_a_slot_that_two_claim_has_one_owner() -> None:
    then = divide({"a": hold(0, 1), "b": hold(0, 1)}, slots=2, standbys=0)
    assert sorted([*then["a"].owned, *then["b"].owned]) == [0, 1]


slot_sets = st.sets(st.integers(-1, 12), max_size=12)
holdings = st.dictionaries(
    st.sampled_from("abcdefg"), st.builds(Holding, slot_sets, slot_sets), min_size=1
)


@given(holdings, st.integers(1, 12), st.integers(0, 3))
def test_every_division_is_complete_and_level(
    now: dict[str, Holding], slots: int, standbys: int
) -> None:
    then = divide(now, slots=slots, standbys=standbys)
    assert sorted(s for h in then.values() for s in h.owned) == list(range(slots))
    sizes = [len(holding.owned) for holding in then.values()]
    assert max(sizes) - min(sizes) <= 1
    for slot in range(slots):
        keepers = [name for name, h in then.items() if slot in h.standby]
        assert len(keepers) == min(standbys, len(now) - 1)
        assert not any(slot in then[name].owned for name in keepers)
    assert divide(then, slots=slots, standbys=standbys) == then


@given(st.lists(st.sets(st.sampled_from("abcde"), min_size=1), min_size=2), st.integers(1, 12))
def test_through_comings_and_goings_nothing_moves_without_need(
    groups: list[set[str]], slots: int
) -> None:
    """``groups`` are the members of one generation after the other; all have one standby."""
    now = divide({name: Holding() for name in groups[0]}, slots=slots, standbys=1)
    for before, after in pairwise(groups):
        then = divide({name: now.get(name, Holding()) for name in after}, slots=slots, standbys=1)
        least = slots // len(after)
        for name in before & after:
            lost = now[name].owned - then[name].owned
            assert not lost or len(then[name].owned) >= least
        now = then
