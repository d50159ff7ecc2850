"""Logs of shards that do not answer, or are gone, for as long as a test says so."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from rowtide.core.values.errors import OutcomeUnknown, Unavailable
from tests.simulation.memory_cluster import MemoryCluster, SimulatedLog

__all__ = ["Unanswering", "unanswering"]


@dataclass(slots=True)
class Unanswering:
    """What the log of one shard does not do. ``shard`` is its id, in whatever life."""

    shard: str
    bounds: bool = False
    """True if it has no leader: it reports no end."""
    refuses: bool = False
    """Whether its leader refuses appends: too few replicas are in sync."""
    unknown: bool = False
    """Whether appends to it get no answer."""
    deleted: bool = False
    """Whether its topic does not exist."""

    def concerns(self, name: str) -> bool:
        """True if a log, or a topic, is this shard's."""
        return f".shard.{self.shard}[" in f"{name}["


@contextmanager
def unanswering(shard: str, **faults: bool) -> Iterator[Unanswering]:
    """Let a shard's log not answer, as the flags say, which may be changed meanwhile."""
    away = Unanswering(shard, **faults)
    bounds, append, exists = SimulatedLog.bounds, SimulatedLog.append, MemoryCluster.exists

    async def read_bounds(self: SimulatedLog) -> tuple[int, int]:
        if away.concerns(self.name) and (away.bounds or away.deleted):
            raise Unavailable(f"bounds of {self.name}: no leader")
        return await bounds(self)

    async def append_or_fail(self: SimulatedLog, entries: Any, *, deadline_s: float) -> int:
        if away.concerns(self.name) and (away.refuses or away.deleted):
            raise Unavailable(f"append to {self.name}: too few replicas")
        if away.concerns(self.name) and away.unknown:
            raise OutcomeUnknown(f"append to {self.name}: no answer")
        return await append(self, entries, deadline_s=deadline_s)

    async def existing(self: MemoryCluster, topic: str) -> bool:
        return not (away.concerns(topic) and away.deleted) and await exists(self, topic)

    with ExitStack() as patches:
        patches.enter_context(patch.object(SimulatedLog, "bounds", read_bounds))
        patches.enter_context(patch.object(SimulatedLog, "append", append_or_fail))
        patches.enter_context(patch.object(MemoryCluster, "exists", existing))
        yield away
