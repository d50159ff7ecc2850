"""Configuration of a slot."""

from __future__ import annotations

from dataclasses import dataclass, field

from rowtide.stream.shard.owner import ShardSettings
from rowtide.stream.slot.upkeep.reclaimer import ReclaimSettings

__all__ = ["SlotSettings"]


@dataclass(frozen=True, slots=True)
class SlotSettings:
    """How often a slot flushes and trims.

    A longer ``flush_s`` writes the changelog less often and replays more after the loss
    of the disk. ``dirty_max`` chunks, or ``dirty_bytes_max``, force an earlier flush.
    They do not bound its transaction: it has all dirty chunks, and may take as long as
    brokers allow. ``commits_kept_s`` is the time in which a CommitTransaction may be
    repeated. For that time one row per transaction is kept, and a shard that ended is
    known. ``changelog_kept_s`` must be below the changelog's delete retention: an older
    local copy is deleted and rebuilt.
    """

    flush_s: float = 10.0
    dirty_max: int = 50_000
    dirty_bytes_max: int = 128 << 20
    trim_s: float = 30.0
    commits_kept_s: float = 600.0
    changelog_kept_s: float = 12 * 3600.0
    shard: ShardSettings = field(default_factory=ShardSettings)
    reclaim: ReclaimSettings = field(default_factory=ReclaimSettings)
