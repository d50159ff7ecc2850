"""Which of a consumer's readers should read which shards.

Each reader decides alone, from the same rows. It takes up to its share of the shards that can be
read now. A reader with less than that, and no free shard to take, requests one from the reader that
has most. Nothing here reads a clock or changes a row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from rowtide.client.changes.leases import ReaderLease
from rowtide.client.changes.source import SourceShard

__all__ = ["Plan", "plan_leases", "plan_owned", "readable"]


class Plan(NamedTuple):
    """Shards to take, and the lease to request from its owner."""

    take: list[SourceShard]
    ask: ReaderLease | None


def readable(shards: Sequence[SourceShard], leases: Mapping[str, ReaderLease]) -> list[SourceShard]:
    """Return the shards that are not read to their end, but whose parents are.

    A parent that is no longer listed is trimmed with all its changes.
    """
    listed = {shard.shard_id for shard in shards}
    ended = {lease.shard_id for lease in leases.values() if lease.ended}
    return [
        shard
        for shard in shards
        if shard.shard_id not in ended and not (listed & set(shard.parents)) - ended
    ]


def plan_leases(
    me: str,
    shards: Sequence[SourceShard],
    leases: Mapping[str, ReaderLease],
    over: Collection[str],
) -> Plan:
    """Return the plan of the reader ``me`` for readable ``shards``; ``over``: expired leases."""
    held = [lease for s in shards if (lease := leases.get(s.shard_id)) and lease.owner]
    counts = Counter(lease.owner for lease in held if lease.shard_id not in over)
    mine = counts[me]
    # A reader that requested an expired lease has gone, or it would have taken it.
    asking = {x.wanted for x in leases.values() if x.wanted and x.shard_id not in over}
    readers = len({*(owner for owner, count in counts.items() if count), *asking, me})
    free = [shard for shard in shards if _is_free(leases.get(shard.shard_id), me, over)]
    room = -(-len(shards) // readers) - mine
    if free or mine >= len(shards) // readers:
        return Plan(free[: max(room, 0)], None)
    fullest, most = max(counts.items(), key=lambda counted: counted[1], default=("", 0))
    if most < mine + 2 or me in asking:
        return Plan([], None)
    return Plan([], next((x for x in held if x.owner == fullest and not x.wanted), None))


def plan_owned(
    me: str,
    shards: Sequence[SourceShard],
    leases: Mapping[str, ReaderLease],
    over: Collection[str],
    owns: Callable[[str], bool],
) -> Plan:
    """Return the plan of a reader that reads exactly the shards that it ``owns``.

    It requests none: the other readers release what they do not own.
    """
    free = [shard for shard in shards if _is_free(leases.get(shard.shard_id), me, over)]
    return Plan([shard for shard in free if owns(shard.shard_id)], None)


def _is_free(lease: ReaderLease | None, me: str, over: Collection[str]) -> bool:
    """True if ``me`` may take a shard. A lease released for another reader is reserved for it."""
    if lease is None or lease.shard_id in over:
        return True
    return not lease.owner and lease.wanted in ("", me)
