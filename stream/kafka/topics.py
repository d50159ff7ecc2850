"""Names of rowtide's Kafka topics, and what each must be."""

from __future__ import annotations

from dataclasses import dataclass

from rowtide.stream.kafka.config import TopicSpec

__all__ = ["TopicNames"]


@dataclass(frozen=True, slots=True)
class TopicNames:
    """The topics of one rowtide in a cluster: all begin with ``prefix``."""

    prefix: str
    changelog: str
    """Named by the Faust table ``rows``."""

    @property
    def catalog(self) -> str:
        """The catalog's log."""
        return f"{self.prefix}.catalog"

    @property
    def lease(self) -> str:
        """The lease topic: partition n belongs to slot n."""
        return f"{self.prefix}.lease"

    def shard(self, shard_id: str) -> str:
        """The log of one shard."""
        return f"{self.prefix}.shard.{shard_id}"

    def transactional_id(self, slot: int) -> str:
        """Whoever begins with it last may flush the slot's changelog."""
        return f"{self.prefix}.slot.{slot}"

    def system(self, slots: int) -> list[TopicSpec]:
        """Return what must exist before the first worker serves."""
        return [
            TopicSpec(self.catalog, 1, "log"),
            TopicSpec(self.lease, slots, "log"),
            TopicSpec(self.changelog, slots, "compacted"),
        ]
