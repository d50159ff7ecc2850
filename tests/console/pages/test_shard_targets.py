"""Which slot of which worker a shard may move to."""

from __future__ import annotations

from typing import Any

from rowtide.console.pages.shard_targets import MoveTarget, find_targets


def worker(address: str, **shards: int) -> dict[str, Any]:
    """Return the status of a worker; ``s3=2`` is its slot 3 with two shards."""
    slots = [
        {"slot": int(name[1:]), "open": True, "lease": True, "shards": [{}] * count}
        for name, count in shards.items()
    ]
    return {"address": address, "slots": slots}


def test_the_slot_with_the_fewest_shards_takes_the_shard_and_the_owner_is_last() -> None:
    workers = [worker("a:1", s0=1, s1=5), worker("b:1", s2=4, s3=2), worker("c:1", s4=2, s5=2)]
    assert find_targets(workers, 0) == [
        MoveTarget("b:1", 3, is_owner=False),
        MoveTarget("c:1", 4, is_owner=False),
        MoveTarget("a:1", 1, is_owner=True),
    ]


def test_a_worker_without_another_open_slot_is_no_target() -> None:
    closed = worker("c:1", s2=0, s3=0)
    closed["slots"][0]["open"] = False
    closed["slots"][1]["lease"] = False
    silent = {"address": "d:1", "error": "timed out"}
    assert find_targets([worker("a:1", s0=1), worker("b:1"), closed, silent], 0) == []
