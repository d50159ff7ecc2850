"""Names and kinds of rowtide's topics. A topic is Kafka's, or one of the local log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["TopicKind", "TopicNames", "TopicSpec"]

TopicKind = Literal["log", "compacted"]


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic to be created. ``name`` is the full name, prefix included.

    A ``log`` topic keeps everything until we trim it. A ``compacted`` topic keeps the
    last value of each key, and its tombstones for ``tombstone_retention_s``.
    """

    name: str
    partitions: int = 1
    kind: TopicKind = "log"
    tombstone_retention_s: float = 86400.0

    def __post_init__(self) -> None:
        if self.partitions < 1:
            raise ValueError(f"topic {self.name} must have a partition, not {self.partitions}")


@dataclass(frozen=True, slots=True)
class TopicNames:
    """The topics of one rowtide in a cluster: all begin with ``prefix``."""

    prefix: str
    changelog: str
    """The Faust table ``rows`` determines this name."""

    @classmethod
    def of(cls, prefix: str) -> TopicNames:
        """Return the names under a prefix."""
        return cls(prefix, f"{prefix}-rows-changelog")

    @property
    def catalog(self) -> str:
        """The catalog's log."""
        return f"{self.prefix}.catalog"

    @property
    def lease(self) -> str:
        """The lease topic: partition n belongs to slot n."""
        return f"{self.prefix}.lease"

    @property
    def importing(self) -> str:
        """Name of the topic that exists while an import runs: no worker serves meanwhile."""
        return f"{self.prefix}.import"

    def shard(self, shard_id: str) -> str:
        """The log of one shard."""
        return f"{self.prefix}.shard.{shard_id}"

    def transactional_id(self, slot: int) -> str:
        """Return the transactional id: its last holder may flush the slot's changelog."""
        return f"{self.prefix}.slot.{slot}"

    def system(self, slots: int) -> list[TopicSpec]:
        """Return the topics that must exist before the first worker serves."""
        return [
            TopicSpec(self.catalog, 1, "log"),
            TopicSpec(self.lease, slots, "log"),
            TopicSpec(self.changelog, slots, "compacted"),
        ]
