"""Where a reader is in every shard of a table, and which shards come next.

A frontier holds each shard that is being read, with the offset of its next entry. A shard leaves it
when it is read to its end and its children begin. Children begin when all their parents are read,
all children of one parent at the same moment. So no frontier holds a shard and a descendant of it:
a listed shard that it does not hold is either a descendant of one that it holds, and unread, or it
was read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from rowtide.client.changes.source import SourceShard

__all__ = ["Frontier"]


@dataclass(slots=True)
class Frontier:
    """The shards that a reader is in.

    ``times`` says for each shard that its unread changes were committed later (microseconds on the
    server's clock). ``ended`` are the shards that are read to their end.
    """

    offsets: dict[str, int] = field(default_factory=dict)
    times: dict[str, int] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, offsets: Iterable[tuple[str, int]], time_us: int) -> Self:
        """Return a frontier with one time for all shards."""
        found = dict(offsets)
        return cls(found, dict.fromkeys(found, time_us))

    def copy(self) -> Frontier:
        """Return a frontier that does not move with this one."""
        return Frontier(dict(self.offsets), dict(self.times), set(self.ended))

    def restrict(self, names: Iterable[str]) -> Frontier:
        """Return the part of it that is in these shards."""
        kept = set(names) & self.offsets.keys()
        return Frontier(
            {name: self.offsets[name] for name in self.offsets if name in kept},
            {name: self.times[name] for name in self.times if name in kept},
            self.ended & kept,
        )

    def advance(self, shard: str, offset: int, time_us: int, *, has_ended: bool) -> None:
        """Note that a shard was read up to an offset."""
        self.offsets[shard] = offset
        self.times[shard] = max(time_us, self.times[shard])
        if has_ended:
            self.ended.add(shard)

    def find_children(self, shards: Sequence[SourceShard]) -> list[SourceShard]:
        """Return the shards that begin now. ``shards`` are listed with parents before children."""
        pending = self._find_pending(shards)

        def is_read(parent: str) -> bool:
            return parent in self.ended or (parent not in self.offsets and parent not in pending)

        ready = {
            shard.shard_id: shard
            for shard in shards
            if shard.shard_id in pending and all(map(is_read, shard.parents))
        }
        while held_back := [name for name in ready if self._has_late_sibling(name, ready, shards)]:
            for name in held_back:
                del ready[name]
        return list(ready.values())

    def _find_pending(self, shards: Sequence[SourceShard]) -> set[str]:
        """Return the descendants of the shards that are being read."""
        pending: set[str] = set()
        for shard in shards:
            if shard.shard_id in self.offsets:
                continue
            if any(parent in self.offsets or parent in pending for parent in shard.parents):
                pending.add(shard.shard_id)
        return pending

    def _has_late_sibling(
        self, name: str, ready: Mapping[str, SourceShard], shards: Sequence[SourceShard]
    ) -> bool:
        parents = {parent for parent in ready[name].parents if parent in self.offsets}
        return any(
            shard.shard_id not in ready and shard.shard_id not in self.offsets
            for shard in shards
            if parents & set(shard.parents)
        )

    def begin_children(self, children: Sequence[tuple[SourceShard, int]]) -> None:
        """Let children, with the offsets of their first entries, take their parents' place."""
        for child, offset in children:
            times = [self.times[parent] for parent in child.parents if parent in self.times]
            self.offsets[child.shard_id] = offset
            self.times[child.shard_id] = max(times, default=0)
        for parent in {parent for child, _ in children for parent in child.parents}:
            if parent in self.ended:
                del self.offsets[parent], self.times[parent]
                self.ended.discard(parent)

    def is_at(self, goal: Frontier) -> bool:
        """True if both are at the same places of the same shards. An end is one place."""
        if self.ended != goal.ended or self.offsets.keys() != goal.offsets.keys():
            return False
        return all(
            goal.offsets[shard] == offset or shard in self.ended
            for shard, offset in self.offsets.items()
        )
