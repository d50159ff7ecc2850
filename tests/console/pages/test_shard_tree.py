"""The tree of shards: each shard once, below its parents."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rowtide.console.pages.shards import find_mergeable, order_as_tree


def shard(name: str, *parents: str, **more: Any) -> dict[str, Any]:
    fields = {"state": "open", "slot": 0, "begin": None, "end": None, "sealed_us": None}
    return {"shard": name, "parents": list(parents), **fields, **more}


def draw_tree(*shards: dict[str, Any]) -> list[str]:
    return [f"{line.branch}{line.shard['shard']}" for line in order_as_tree(shards)]


def test_children_are_below_their_parents() -> None:
    shards = (shard("a"), shard("b", "a"), shard("c", "a"), shard("d", "b"), shard("e"))
    assert draw_tree(*shards) == ["a", "├ b", "│ └ d", "└ c", "e"]


def test_a_merged_shard_is_below_the_last_of_its_parents() -> None:
    shards = (shard("a"), shard("b", "a"), shard("c", "a"), shard("d", "b", "c"))
    assert draw_tree(*shards) == ["a", "├ b", "└ c", "  └ d"]


def test_a_shard_whose_parents_are_forgotten_is_a_root() -> None:
    assert draw_tree(shard("d", "b", "c"), shard("e", "d")) == ["d", "└ e"]


def test_a_deep_tree_needs_no_recursion() -> None:
    shards = [shard("s0"), *(shard(f"s{n}", f"s{n - 1}") for n in range(1, 5000))]
    assert len(draw_tree(*shards)) == 5000


@given(st.lists(st.integers(0, 30), max_size=40))
def test_each_shard_is_there_once(parents: list[int]) -> None:
    shards = [
        shard(f"s{number}", *([f"s{parent}"] if parent < number else []))
        for number, parent in enumerate(parents)
    ]
    found = [line.shard["shard"] for line in order_as_tree(shards)]
    assert sorted(found) == sorted(one["shard"] for one in shards)
    for one in shards:
        for parent in one["parents"]:
            assert found.index(parent) < found.index(one["shard"])


def test_open_neighbours_of_one_slot_can_be_merged() -> None:
    shards = [
        shard("z", state="ended", end="b"),
        shard("a", end="b"),
        shard("b", begin="b", end="c"),
        shard("c", begin="c", end="d", slot=1),
        shard("d", begin="d", slot=1, state="move"),
    ]
    assert find_mergeable(shards) == [("a", "b")]
