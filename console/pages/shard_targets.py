"""Where a shard may move: the workers of the cluster, and the slot of each that takes it.

A shard belongs to a slot, and a worker owns slots. A person chooses a worker, and the console the
slot: the open one with the fewest shards. Nothing here does I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

__all__ = ["MoveTarget", "find_targets"]


class MoveTarget(NamedTuple):
    """A worker, and the slot that a shard would move to. ``is_owner``: the shard is there now."""

    worker: str
    slot: int
    is_owner: bool


def find_targets(workers: Iterable[Mapping[str, Any]], shard_slot: int) -> list[MoveTarget]:
    """Return a target for each worker that can take a shard of ``shard_slot``, its owner last.

    ``workers`` are those of RowtideClusterStatus. A worker without another open slot has none.
    """
    found = []
    for worker in workers:
        if "error" in worker:
            continue
        opened = {
            int(slot["slot"]): len(slot["shards"])
            for slot in worker["slots"]
            if slot["open"] and slot["lease"]
        }
        is_owner = shard_slot in opened
        opened.pop(shard_slot, None)
        if opened:
            slot = min(opened, key=lambda number: (opened[number], number))
            found.append(MoveTarget(worker["address"], slot, is_owner))
    return sorted(found, key=lambda target: (target.is_owner, target.worker))
