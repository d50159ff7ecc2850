"""Failed openings of a slot, and when another worker should take the slot because of them.

A slot that fails opens again, under its lease: that is faster than any other worker. If
the next opening also fails because of this worker's disk, another worker may succeed. A
failure in Kafka affects most workers, and is usually temporary: it is retried for a while
before the slot is given away. Times are seconds of the event loop.
"""

from __future__ import annotations

import asyncio

from rowtide.stream.shard.row_store import StoreFailed
from rowtide.stream.slot.failures import StoreBehind

__all__ = ["Openings"]

PATIENCE_S = 30.0
"""Longer than a stock cluster takes to elect another leader of a partition."""


class Openings:
    """The results of a slot's openings since it was last open."""

    def __init__(self) -> None:
        self.failure: BaseException | None = None
        """The error that ended its last life; None while it is open, and before the first
        has ended.
        """
        self._failed_s: float | None = None
        """When the first opening failed since then."""

    def note_success(self) -> None:
        """Start again: the slot is open."""
        self.failure = self._failed_s = None

    def note_end(self, failure: BaseException, *, opened: bool) -> None:
        """Record the error that ended a life; ``opened`` is true if the slot was open in it."""
        self.failure = failure
        if not opened and self._failed_s is None:
            self._failed_s = asyncio.get_running_loop().time()

    def are_for_others(self) -> bool:
        """True if another worker should try, although our lease is renewed."""
        is_failing = self._failed_s is not None
        return is_failing and (isinstance(self.failure, StoreFailed) or self.have_failed_long())

    def have_failed_long(self) -> bool:
        """True if none has succeeded for longer than a failure of Kafka takes to pass."""
        if self._failed_s is None:
            return False
        return asyncio.get_running_loop().time() - self._failed_s > PATIENCE_S

    @property
    def why(self) -> str:
        """Why the last life ended, for any reader: no name, no path; empty if there is no
        failure.
        """
        if self.failure is None:
            return ""
        if isinstance(self.failure, StoreFailed):
            return "its rows cannot be opened or written"
        if isinstance(self.failure, StoreBehind):
            return "its rows are rebuilt from Kafka"
        return "a request to Kafka failed"
