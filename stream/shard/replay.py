"""Folds a shard's log, for its owner and for standbys."""

from __future__ import annotations

from collections.abc import Sequence

from rowtide.core.records import record
from rowtide.core.rows.fold import Writes
from rowtide.core.shard.mark import decode_mark, encode_mark, entry_digest, mark_key
from rowtide.core.shard.shard import Shard
from rowtide.core.shard.shard_state import ShardState
from rowtide.core.values.limits import Limits
from rowtide.core.values.schema import ShardRange, Table
from rowtide.stream.log.log import Entry
from rowtide.stream.shard.row_store import RowStore

__all__ = ["Range", "is_among", "replay", "shard_at_mark", "take"]

Range = tuple[bytes, bytes]
"""Keys of the store: low <= key < high."""


def shard_at_mark(table: Table, shard: ShardRange, rows: RowStore, limits: Limits) -> Shard:
    """Return a shard in the state of its rows: at its mark, or before its log's first entry.

    A copy counts only once the changelog has it. Until then the next owner of the slot
    may have made room for it there, and so in these rows too.
    """
    mark = rows.get(mark_key(shard.shard_id))
    if mark is None or (shard.copied and rows.find_flushed(shard.shard_id) < 0):
        state = ShardState(table.options, stamp=shard.floor_us, stream=table.stream)
    else:
        state = decode_mark(mark)
    machine = Shard(shard.shard_id, table, rows, state, limits=limits)
    machine.retable(table)
    return machine


def replay(shard: Shard, entries: Sequence[Entry]) -> tuple[Writes, int]:
    """Fold entries; return the writes for ``take``, and the latest claim among valid entries."""
    writes: Writes = []
    claim = -1
    for entry in entries:
        replayed = shard.replay(entry.offset, entry.value)
        writes += replayed.writes
        if replayed.valid:
            claim = max(claim, record.decode_envelope(entry.value).claim)
    # The last applied one, without an unfinished group: only its digest is ever read.
    last = next((e for e in reversed(entries) if e.offset == shard.state.applied), None)
    if last is not None:
        shard.state.entry = entry_digest(last.value)
    return writes, claim


def take(shard: Shard, rows: RowStore, writes: Writes, others: Sequence[Range] = ()) -> Writes:
    """Write the changes of a shard's entries and its mark, all or nothing; return what
    was written.

    Keys in ``others`` are left out: they left and returned with another shard, whose copy
    has their present rows.
    """
    taken = [w for w in writes if not is_among(w[0], others)] if others else writes
    rows.take(taken, [(mark_key(shard.shard_id), encode_mark(shard.state))])
    shard.settle_writes(writes)
    return taken


def is_among(key: bytes, ranges: Sequence[Range]) -> bool:
    """True if a key is in one of the ranges."""
    return any(low <= key < high for low, high in ranges)
