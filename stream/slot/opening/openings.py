"""Openings of a slot that failed, and when another worker should have the slot for it.

A slot that fails opens again, under the lease that it has: that is faster than any other worker.
Where the next opening fails too, by this worker's disk, others may do better. What fails in Kafka
fails for most of them, and mostly passes: it is tried for a while before the slot goes. Times are
seconds of the event loop.
"""

from __future__ import annotations

import asyncio

from rowtide.stream.shard.row_store import StoreFailed
from rowtide.stream.slot.failures import StoreBehind

__all__ = ["Openings"]

PATIENCE_S = 30.0
"""Above what a stock cluster takes to elect another leader of a partition."""


class Openings:
    """What became of a slot's openings since it was open last."""

    def __init__(self) -> None:
        self.failure: BaseException | None = None
        """What ended its last life; None while it is open, and before the first has ended."""
        self._failed_s: float | None = None
        """When the first opening failed since then."""

    def succeeded(self) -> None:
        """Begin anew: the slot is open."""
        self.failure = self._failed_s = None

    def ended(self, failure: BaseException, *, opened: bool) -> None:
        """Take what ended a life, which had ``opened`` or never was open."""
        self.failure = failure
        if not opened and self._failed_s is None:
            self._failed_s = asyncio.get_running_loop().time()

    def are_for_others(self) -> bool:
        """True if another worker should try, though our lease is renewed."""
        if self._failed_s is None:
            return False
        if isinstance(self.failure, StoreFailed):
            return True
        return asyncio.get_running_loop().time() - self._failed_s > PATIENCE_S

    @property
    def why(self) -> str:
        """What ended the last life, for anybody to read: no name, no path; empty for nothing."""
        if self.failure is None:
            return ""
        if isinstance(self.failure, StoreFailed):
            return "its rows can't be opened or written"
        if isinstance(self.failure, StoreBehind):
            return "its rows are rebuilt from Kafka"
        return "what it asked of Kafka failed"
