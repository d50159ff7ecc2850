"""Who of a consumer's readers should take which shards: decided by each alone, from the same rows.

Each takes up to its share of the shards that can be read now. Who has less while nothing is free
asks the fullest for one. Nothing here reads a clock or touches a row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from rowtide.client.changes.leases import ReaderLease
from rowtide.client.changes.source import SourceShard

__all__ = ["Plan", "planned", "readable"]


class Plan(NamedTuple):
    """Shards to take, and the lease to ask its owner for."""

    take: list[SourceShard]
    ask: ReaderLease | None


def readable(shards: Sequence[SourceShard], leases: Mapping[str, ReaderLease]) -> list[SourceShard]:
    """Return the shards that are not read to their end, and whose parents are.

    A parent that is listed no more is gone with all that it had.
    """
    listed = {shard.shard_id for shard in shards}
    ended = {lease.shard_id for lease in leases.values() if lease.ended}
    return [
        shard
        for shard in shards
        if shard.shard_id not in ended and not (listed & set(shard.parents)) - ended
    ]


def planned(
    me: str,
    shards: Sequence[SourceShard],
    leases: Mapping[str, ReaderLease],
    over: Collection[str],
) -> Plan:
    """Return what the reader ``me`` should do; ``shards`` are readable, ``over`` expired leases."""
    held = [lease for s in shards if (lease := leases.get(s.shard_id)) and lease.owner]
    counts = Counter(lease.owner for lease in held if lease.shard_id not in over)
    mine = counts[me]
    # Who asked for what nobody has touched since is gone, or would have taken it.
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


def _is_free(lease: ReaderLease | None, me: str, over: Collection[str]) -> bool:
    """True if ``me`` may take a shard: one released for another reader waits for that one."""
    if lease is None or lease.shard_id in over:
        return True
    return not lease.owner and lease.wanted in ("", me)
