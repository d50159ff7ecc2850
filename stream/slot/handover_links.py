"""A slot's view of how slots go from worker to worker."""

from __future__ import annotations

from typing import Protocol

__all__ = ["HandoverLinks"]


class HandoverLinks(Protocol):
    """How a slot's worker gets the slot, and if it hands it over."""

    async def obtain(self, slot: int) -> None:
        """Return once no other worker serves ``slot``, as far as requests to it help."""
        ...

    def give_way(self, slot: int) -> bool:
        """Hand an adopted slot over to another worker, which has claimed it."""
        ...
