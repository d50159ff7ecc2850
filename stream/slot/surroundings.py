"""What the slots of a worker, and its copies of others, have in common."""

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
    """Where slots keep what they have, and by which clocks and limits they go.

    ``clock_us`` tells the time of day, ``steady_s`` seconds that never go back.
    """

    cluster: LogCluster
    topics: TopicNames
    limits: Limits
    settings: SlotSettings
    clock_us: Callable[[], int]
    steady_s: Callable[[], float] | None = None
    counts: Counts = field(default_factory=Counts)

    def old_commits(self) -> LongAgo:
        """Return what tells which transactions are so old that nobody repeats their commit."""
        return LongAgo(
            self.settings.commits_kept_s + self.limits.transaction_s_max,
            self.clock_us,
            self.steady_s or asyncio.get_running_loop().time,
        )


@dataclass(frozen=True, slots=True)
class SlotLinks:
    """Whom a slot asks.

    ``before_open`` returns once the catalog is known that it opens by, under its claim; ``tables``
    tells a slot's shards, ``table_known`` whether a table or an index may still exist.
    """

    leases: LeaseKeeper
    before_open: Callable[[int], Coroutine[Any, Any, None]]
    tables: Callable[[int], list[tuple[Table, ShardRange]]]
    table_known: Callable[[int], bool]
    indexes: IndexLinks
    reshapes: ReshapeLinks
    handover: HandoverLinks
