"""The shards of one slot in this life: open, opening, or closed."""

from __future__ import annotations

from dataclasses import dataclass, field

from rowtide.core.values.errors import Unavailable
from rowtide.stream.shard.owner import ShardOwner
from rowtide.stream.slot.opening.opening_shards import OpeningShards
from rowtide.stream.slot.reshape.closed_shards import ClosedShards

__all__ = ["SlotShards"]


@dataclass(frozen=True, slots=True)
class SlotShards:
    """Shards by shard id. A shard in none of the three is not the slot's, or has ended."""

    open: dict[str, ShardOwner] = field(default_factory=dict)
    begun: OpeningShards = field(default_factory=OpeningShards)
    """Shards that are open or about to be: each has a task that opens and serves it."""
    closed: ClosedShards = field(default_factory=ClosedShards)
    """Shards whose logs lost entries or cannot be read, with the reason; see ``ClosedShards``."""

    def owner(self, shard_id: str) -> ShardOwner:
        """Return an open shard. Raises ``Unavailable``, with the reason if it stays closed."""
        owner = self.open.get(shard_id)
        if owner is None:
            reason = self.closed.get(shard_id) or self.begun.find_gone(shard_id)
            raise Unavailable() if reason is None else Unavailable(reason)
        return owner

    def all_closed(self) -> dict[str, str]:
        """Return why shards are closed, including those whose logs do not exist."""
        return {**self.begun.all_gone(), **self.closed}

    def clear(self) -> None:
        """Forget everything: the slot closes."""
        self.open.clear()
        self.closed.clear()
        self.begun.clear()
