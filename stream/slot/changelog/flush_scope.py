"""Which of a slot's shards one flush writes, and where it leaves the changelog as it is.

A parent and its children have chunks of the same rows, so what one of them wrote belongs in the
changelog only beside what the others wrote. While a shard's log is read again, the rows are ahead
of what is known to be dirty: neither is it flushed then, nor what shares rows with it. A rebuild
would fold the rest of its log onto rows that never were.
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
"""Dirty chunks that are looked at to tell how large all are, and one more of each shard."""


class FlushScope(NamedTuple):
    """The shards that a flush writes, and the key ranges, low <= key < high, that it leaves."""

    shards: list[ShardOwner]
    left: list[Range]

    def lacks(self, chunk_key: bytes) -> bool:
        """True if the changelog may lack the newest state of a chunk."""
        if any(chunk_key in owner.ledger.keys for owner in self.shards):
            return True
        return any(low <= chunk_key < high for low, high in self.left)

    @property
    def dirty(self) -> int:
        """How many chunks are to be written."""
        return sum(len(owner.ledger.keys) for owner in self.shards)

    @property
    def dirty_bytes(self) -> int:
        """About how many bytes these chunks have."""
        looked, size, dirty = 0, 0, self.dirty
        for owner in self.shards:
            # A set of bytes has no order that says anything of their sizes.
            all_keys = owner.ledger.keys
            keys = list(islice(all_keys, 1 + SAMPLE * len(all_keys) // max(dirty, 1)))
            looked += len(keys)
            size += sum(len(chunk) for chunk in owner.rows.get_many(keys) if chunk is not None)
        return size * dirty // max(looked, 1)


def flush_scope(
    owners: Mapping[str, ShardOwner], held: Iterable[tuple[Table, ShardRange]]
) -> FlushScope:
    """Return what a flush may write. ``held`` are all shards of which the slot may have rows.

    Those of them without an owner are about to open. Left out are they, whoever has not found all
    that is dirty, and whoever shares rows with one that is left out. A shard that has nothing to
    flush binds nobody: a parent that was flushed to its end does not hold its children up.
    """
    left: list[Range] = []
    told: list[tuple[ShardOwner, list[Range]]] = []
    for table, shard in held:
        owner, ranges = owners.get(shard.shard_id), row_ranges(table, shard)
        if owner is None or not owner.ledger.is_complete:
            left += ranges
        elif owner.unflushed:
            told.append((owner, ranges))
    bound = [pair for pair in told if _meet(pair[1], left)]
    while bound:
        left += [found for _, ranges in bound for found in ranges]
        told = [pair for pair in told if pair not in bound]
        bound = [pair for pair in told if _meet(pair[1], left)]
    return FlushScope([owner for owner, _ in told], left)


def _meet(ours: Iterable[Range], others: Iterable[Range]) -> bool:
    [(low, high), *_] = ours  # The table's own: its local indexes have the same bounds.
    return any(low < end and begin < high for begin, end in others)
