"""The shards that one flush writes, and the key ranges that it must not change.

A parent and its children have chunks of the same rows. So the writes of one belong in the
changelog only together with those of the others. While a shard's log is read again, its
rows are ahead of the known dirty chunks. Then neither it nor any shard that shares rows
with it is flushed. Otherwise a rebuild would fold the rest of its log onto rows that
never existed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import NamedTuple

from rowtide.core.values.schema import ShardRange, Table
from rowtide.stream.shard.copy import Range, row_ranges
from rowtide.stream.shard.owner import ShardOwner

__all__ = ["FlushScope", "flush_scope"]

SAMPLE = 64
"""Dirty chunks that are sampled to estimate the size of all, and one more of each shard."""


class FlushScope(NamedTuple):
    """The shards that a flush writes, and the key ranges, low <= key < high, that it leaves out."""

    shards: list[ShardOwner]
    left: list[Range]

    def is_unflushed(self, chunk_key: bytes) -> bool:
        """True if the changelog may lack the newest state of a chunk."""
        if any(chunk_key in owner.ledger.keys for owner in self.shards):
            return True
        return any(low <= chunk_key < high for low, high in self.left)

    @property
    def dirty(self) -> int:
        """The number of chunks to be written."""
        return sum(len(owner.ledger.keys) for owner in self.shards)

    @property
    def dirty_bytes(self) -> int:
        """The estimated bytes of these chunks."""
        looked, size, dirty = 0, 0, self.dirty
        for owner in self.shards:
            # The order of a set of bytes does not depend on their sizes.
            all_keys = owner.ledger.keys
            keys = list(islice(all_keys, 1 + SAMPLE * len(all_keys) // max(dirty, 1)))
            looked += len(keys)
            size += sum(len(chunk) for chunk in owner.rows.get_many(keys) if chunk is not None)
        return size * dirty // max(looked, 1)


def flush_scope(
    owners: Mapping[str, ShardOwner], held: Iterable[tuple[Table, ShardRange]]
) -> FlushScope:
    """Return what a flush may write. ``held`` are all shards of which the slot may have rows.

    Those without an owner are about to open. Three kinds are left out: these, shards that
    have not found all dirty chunks, and shards that share rows with one that is left out.
    A shard without anything to flush blocks no other: a parent that was flushed to its
    end does not block its children.
    """
    left: list[Range] = []
    ready: list[tuple[ShardOwner, list[Range]]] = []
    for table, shard in held:
        owner, ranges = owners.get(shard.shard_id), row_ranges(table, shard)
        if owner is None or not owner.ledger.is_complete:
            left += ranges
        elif owner.has_unflushed:
            ready.append((owner, ranges))
    bound = [pair for pair in ready if _has_overlap(pair[1], left)]
    while bound:
        left += [found for _, ranges in bound for found in ranges]
        ready = [pair for pair in ready if pair not in bound]
        bound = [pair for pair in ready if _has_overlap(pair[1], left)]
    return FlushScope([owner for owner, _ in ready], left)


def _has_overlap(ours: Iterable[Range], others: Iterable[Range]) -> bool:
    """True if a range of ``others`` overlaps the table's range of a shard."""
    [(low, high), *_] = ours  # The table's range: its local indexes have the same bounds.
    return any(low < end and begin < high for begin, end in others)
