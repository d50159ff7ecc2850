"""The worker that takes over the slot of a dead one."""

from __future__ import annotations

from rowtide.stream.cluster.takeover import order


def test_everybody_who_knows_the_same_makes_the_same_order() -> None:
    workers = {"a:1", "b:2", "c:3", "d:4"}
    for slot in range(20):
        assert order(slot, workers, set()) == order(slot, sorted(workers, reverse=True), [])
        assert set(order(slot, workers, set())) == workers


def test_who_keeps_a_copy_comes_first() -> None:
    workers = {"a:1", "b:2", "c:3", "d:4"}
    for slot in range(20):
        assert order(slot, workers, {"c:3"})[0] == "c:3"
        assert set(order(slot, workers, {"a:1", "d:4", "gone:9"})[:2]) == {"a:1", "d:4"}


def test_the_slots_of_one_worker_are_spread() -> None:
    first = {order(slot, {"a:1", "b:2", "c:3"}, set())[0] for slot in range(20)}
    assert first == {"a:1", "b:2", "c:3"}
