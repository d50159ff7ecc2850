"""When shards are split, merged and moved automatically.

A shard is split if it is large, or if it has a high write rate and there are several workers. Then
shards move from the busiest worker to the least busy one while that balances the load. Neighbours
that have been cold for long are merged again. How load is measured and how a change is made is not
known here.

Sizes are bytes on disk, rates writes per second, times seconds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from rowtide.core.shard.reshape import MERGE, MOVE, SPLIT
from rowtide.core.values.schema import ShardRange

__all__ = ["Balance", "BalanceSettings", "ShardLoad", "WantedChange"]

LOOKS = 2
"""A shard is hot if it was above the rate in this many checks in a row."""

COLD = 10
"""A shard is cold below the split rate divided by this."""

SMALL = 4
"""Two shards are small if together they are below the split size divided by this."""

REFUSED_S = 10.0
REFUSED_S_MAX = 3600.0
"""A rejected split is not proposed again for this time, which doubles with each rejection.

It takes a full read to find that a shard has a single partition key. Meanwhile other shards move.
"""


@dataclass(frozen=True, slots=True)
class BalanceSettings:
    """Settings of the balancer; 0 turns each off.

    If ``split_bytes`` is too small, there are many logs. If ``split_writes_per_s`` is too small,
    each burst causes a split. If ``merge_after_s`` is too short, merged shards are soon split
    again.
    """

    split_bytes: int = 8 * 1024**3
    split_writes_per_s: int = 2000
    merge_after_s: int = 3600


class ShardLoad(NamedTuple):
    """The load of a table's open shard. ``rate`` is None if it is not measured yet."""

    table_id: int
    shard: ShardRange
    size: int
    rate: float | None


class WantedChange(NamedTuple):
    """A change to make to ``shards``: one, or two to merge. ``slot`` is the target of a move."""

    kind: str
    table_id: int
    shards: tuple[str, ...]
    slot: int = -1
    hot: bool = False
    """Split by writes instead of by size: at the middle of what is written."""


class Refusal(NamedTuple):
    """The end of the pause after a rejected split, and its length."""

    until_s: float
    pause_s: float


class Balance:
    """Proposes changes, from this and the previous checks."""

    def __init__(self, settings: BalanceSettings) -> None:
        self._settings = settings
        self._hot: dict[str, int] = {}
        self._cold_since_s: dict[str, float] = {}
        self._refused: dict[tuple[str, bool], Refusal] = {}
        """By shard id, and whether the split was for its write rate."""

    def look(
        self, loads: Sequence[ShardLoad], workers: Mapping[int, str], now_s: float
    ) -> list[WantedChange]:
        """Return the changes to make, at most one per table. ``workers`` are by slot."""
        self._remember(loads, now_s)
        several = len(set(workers.values())) > 1
        splits = (self._split(load, now_s, several=several) for load in loads)
        wanted = [split for split in splits if split is not None]
        if not wanted and several:
            wanted = self._moves(loads, workers)
        if not wanted:
            wanted = self._merges(loads, now_s)
        return list({change.table_id: change for change in reversed(wanted)}.values())

    def record_rejection(self, wanted: WantedChange, now_s: float) -> None:
        """Record that a split was rejected: it is not proposed again for a while."""
        which = wanted.shards[0], wanted.hot
        before = self._refused.get(which)
        pause_s = REFUSED_S if before is None else min(before.pause_s * 2, REFUSED_S_MAX)
        self._refused[which] = Refusal(now_s + pause_s, pause_s)

    def _is_paused(self, name: str, now_s: float, *, hot: bool) -> bool:
        refusal = self._refused.get((name, hot))
        return refusal is not None and now_s < refusal.until_s

    def _remember(self, loads: Sequence[ShardLoad], now_s: float) -> None:
        limit = self._settings.split_writes_per_s
        hot, cold = self._hot, self._cold_since_s
        self._hot, self._cold_since_s = {}, {}
        there = {load.shard.shard_id for load in loads}
        self._refused = {
            which: refusal
            for which, refusal in self._refused.items()
            if which[0] in there or now_s < refusal.until_s
        }
        for load in loads:
            name, rate = load.shard.shard_id, load.rate
            if rate is None:
                continue
            if limit and rate > limit:
                self._hot[name] = hot.get(name, 0) + 1
            if rate <= limit / COLD:
                self._cold_since_s[name] = cold.get(name, now_s)

    def _split(self, load: ShardLoad, now_s: float, *, several: bool) -> WantedChange | None:
        name, bytes_max = load.shard.shard_id, self._settings.split_bytes
        large = bytes_max and load.size > bytes_max
        if large and not self._is_paused(name, now_s, hot=False):
            return WantedChange(SPLIT, load.table_id, (name,))
        hot = several and self._hot.get(name, 0) >= LOOKS
        if hot and not self._is_paused(name, now_s, hot=True):
            return WantedChange(SPLIT, load.table_id, (name,), hot=True)
        return None

    def _moves(self, loads: Sequence[ShardLoad], workers: Mapping[int, str]) -> list[WantedChange]:
        """Return a move from the busiest worker to the least busy one, if it balances the load."""
        limit = self._settings.split_writes_per_s
        if not limit or any(load.rate is None for load in loads):
            return []
        rates: dict[str, float] = dict.fromkeys(workers.values(), 0.0)
        for load in loads:
            if load.shard.slot in workers:
                rates[workers[load.shard.slot]] += load.rate or 0.0
        busiest, idlest = max(rates, key=rates.__getitem__), min(rates, key=rates.__getitem__)
        ahead = rates[busiest] - rates[idlest]
        if ahead <= limit / 2:
            return []
        movable = [
            load
            for load in loads
            if workers.get(load.shard.slot) == busiest and limit / COLD < (load.rate or 0.0) < ahead
        ]
        if not movable:
            return []
        best = min(movable, key=lambda load: abs((load.rate or 0.0) - ahead / 2))
        count: dict[int, int] = defaultdict(int)
        for load in loads:
            count[load.shard.slot] += 1
        slot = min((s for s, at in workers.items() if at == idlest), key=lambda s: (count[s], s))
        return [WantedChange(MOVE, best.table_id, (best.shard.shard_id,), slot)]

    def _merges(self, loads: Sequence[ShardLoad], now_s: float) -> list[WantedChange]:
        """Return neighbours that came from splits and have been cold and small for long."""
        after_s, size_max = self._settings.merge_after_s, self._settings.split_bytes / SMALL
        if not after_s:
            return []
        wanted: list[WantedChange] = []
        for left, right in pairwise(sorted(loads, key=lambda at: (at.table_id, at.shard.begin))):
            a, b = left.shard, right.shard
            if left.table_id != right.table_id or a.slot != b.slot or a.end != b.begin or not a.end:
                continue
            cold = all(
                now_s - self._cold_since_s.get(shard.shard_id, now_s) >= after_s for shard in (a, b)
            )
            small = not size_max or left.size + right.size < size_max
            if cold and small and a.parents and b.parents:
                wanted.append(WantedChange(MERGE, left.table_id, (a.shard_id, b.shard_id)))
        return wanted
