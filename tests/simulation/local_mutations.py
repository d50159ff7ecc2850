"""Faults planted where a local index is made of the rows there are, and where disks fail."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from rowtide.core.rows.fold import Writes
from rowtide.core.shard.shard import Shard
from rowtide.core.shard.shard_index import ShardIndexes
from rowtide.stream.api import index as operations
from rowtide.stream.shard.log_fold import LogFold
from rowtide.stream.shard.replay import take
from rowtide.stream.shard.row_store import RowStore, StoreFailed
from rowtide.stream.slot.standby import standby_shard
from tests.simulation.edge_mutations import make_mutation_behind
from tests.simulation.index_mutations import build_at_once
from tests.simulation.program import LOCAL_FROM

__all__ = ["LOCAL"]


_write = LogFold.write


def _write_or_not(self: LogFold, writes: Writes) -> None:
    try:
        _write(self, writes)
    except StoreFailed:
        return  # As if they were there.


def _take_or_not(
    shard: Shard, rows: RowStore, writes: Writes, others: Sequence[tuple[bytes, bytes]]
) -> Writes:
    try:
        return take(shard, rows, writes, others)
    except StoreFailed:
        return []


where_disks_fail = partial(make_mutation_behind, LOCAL_FROM)

LOCAL = [
    where_disks_fail(
        "take an index for built", operations, "is_built", lambda *_: True, seeds_max=60
    ),
    where_disks_fail("build nothing", ShardIndexes, "build_slice", build_at_once),
    where_disks_fail("pass over what a disk does not take", LogFold, "write", _write_or_not),
    where_disks_fail(
        "pass over what a copy's disk does not take", standby_shard, "take", _take_or_not
    ),
]
"""Each in runs of seeds from ``LOCAL_FROM`` on."""
