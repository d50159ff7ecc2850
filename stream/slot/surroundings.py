"""The parts that a worker's slots, and its copies of others, share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from rowtide.core.values.limits import Limits
from rowtide.core.values.schema import ShardRange, Table
from rowtide.stream.log.cluster import LogCluster
from rowtide.stream.log.topics import TopicNames
from rowtide.stream.measures.counts import Counts
from rowtide.stream.shard.index_links import IndexLinks
from rowtide.stream.slot.handover_links import HandoverLinks
from rowtide.stream.slot.lease.lease_keeper import LeaseKeeper
from rowtide.stream.slot.reshape.reshape_links import ReshapeLinks
from rowtide.stream.slot.settings import SlotSettings
from rowtide.stream.slot.upkeep.long_ago import LongAgo

__all__ = ["SlotLinks", "Surroundings"]


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Where slots keep their rows and logs, and their clocks and limits.

    ``clock_us`` gives the time of day, ``steady_s`` seconds that never go back.
    """

    cluster: LogCluster
    topics: TopicNames
    limits: Limits
    settings: SlotSettings
    clock_us: Callable[[], int]
    steady_s: Callable[[], float] | None = None
    counts: Counts = field(default_factory=Counts)

    def old_commits(self) -> LongAgo:
        """Return the bound below which no client repeats a transaction's commit any more."""
        return LongAgo(
            self.settings.commits_kept_s + self.limits.transaction_s_max,
            self.clock_us,
            self.steady_s or asyncio.get_running_loop().time,
        )


@dataclass(frozen=True, slots=True)
class SlotLinks:
    """The parts that a slot calls.

    ``before_open`` takes the slot's claim. It returns once the worker has read the catalog
    by which the slot opens. ``tables`` returns a slot's shards. ``table_known`` is true if a
    table or an index may still exist.
    """

    leases: LeaseKeeper
    before_open: Callable[[int], Coroutine[Any, Any, None]]
    tables: Callable[[int], list[tuple[Table, ShardRange]]]
    table_known: Callable[[int], bool]
    indexes: IndexLinks
    reshapes: ReshapeLinks
    handover: HandoverLinks

    def list_shards_with_logs(self, slot: int) -> list[tuple[Table, ShardRange]]:
        """Return a slot's shards, with ended ones that still have a log."""
        return [*self.reshapes.list_ended(slot), *self.tables(slot)]
