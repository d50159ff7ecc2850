"""Faults planted in what keeps a global index up with its table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from rowtide.core.records import record
from rowtide.core.records.record import IndexBuild, IndexWrite
from rowtide.core.rows.overlay import RangeReader
from rowtide.core.shard.shard_index import ShardIndexes
from rowtide.core.values.schema import ShardRange, TableOptions
from rowtide.stream.api.index import IndexOperations
from rowtide.stream.log.log import Entry
from rowtide.stream.shard import index_feed
from rowtide.stream.shard.index_feed import IndexFeeder
from rowtide.stream.shard.owner import ShardOwner
from tests.simulation.edge_mutations import make_mutation_behind
from tests.simulation.program import FOLLOWED_FROM

__all__ = ["FOLLOWING", "build_at_once"]


async def _pin_nothing(_self: IndexOperations, _owner: ShardOwner) -> int | None:
    return None


def _all_in_turn(self: IndexFeeder) -> list[ShardRange]:
    return list(self._sources())  # Children beside their parents.


def _first(writes: Iterable[IndexWrite]) -> list[IndexWrite]:
    every = {(write.table, *write.key): write for write in reversed(list(writes))}
    return list(every.values())


def build_at_once(
    _self: ShardIndexes, _view: RangeReader, asked: IndexBuild, _by: TableOptions, _now_us: int
) -> IndexBuild:
    """Say that an index has gone through its rows, and bring none of them."""
    return IndexBuild(asked.table, None, ())


def _find_anywhere(
    entries: Sequence[Entry], owner: ShardOwner, *, learned: bool
) -> tuple[list[IndexWrite], int, int]:
    number = owner.shard.table.table_id
    writes: list[IndexWrite] = []
    stamp = 0
    for entry in entries:
        envelope, body = record.decode_record(entry.value)
        stamp = max(stamp, envelope.stamp)  # Even if it is void at its offset.
        if isinstance(
            body, record.PutBody | record.UpdateBody | record.DeleteBody | record.IndexBuild
        ):
            writes += [write for write in body.indexes if write.table == number]
    return writes, entries[-1].offset + 1, stamp


where_followed = partial(make_mutation_behind, FOLLOWED_FROM)

FOLLOWING = [
    where_followed("trim what an index still needs", IndexOperations, "pin", _pin_nothing),
    where_followed(
        "follow children beside their parents", IndexFeeder, "_in_turn", _all_in_turn, 60
    ),
    where_followed("learn the first of several changes", index_feed, "latest", _first),
    where_followed("learn nothing of rows there were", ShardIndexes, "build_slice", build_at_once),
    where_followed("learn of what does not stand", index_feed, "_extract_writes", _find_anywhere),
]
"""Each in runs of seeds from ``FOLLOWED_FROM`` on."""
