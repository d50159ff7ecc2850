"""What a slot needs of how slots go from worker to worker."""

from __future__ import annotations

from typing import Protocol

__all__ = ["HandoverLinks"]


class HandoverLinks(Protocol):
    """How a slot's worker gets it, and whether it lets go of it."""

    async def obtain(self, slot: int) -> None:
        """Return once no other worker serves ``slot``, as far as asking them helps."""
        ...

    def give_way(self, slot: int) -> bool:
        """Let another worker, which has claimed it, have a slot that we but adopted."""
        ...
