"""Batches that wait at the same time are committed together.

These targets take a thousand rows in little more time than one, and many small commits
slow them down. While one commit runs, batches of other shards gather. The first of them
commits all. ``apply`` returns when the commit with its batch has returned.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from rowtide.connectors.rows import Refused, SinkBatch
from rowtide.connectors.sinks.columnar.settling import refusals_of

__all__ = ["Commit", "Gathering", "Pace"]

Commit = Callable[[Sequence[SinkBatch]], Awaitable[Sequence[Refused]]]
"""Makes batches durable and returns the rows that the target will never accept."""


@dataclass(frozen=True, slots=True)
class Pace:
    """When to commit: at ``rows_enough`` waiting rows, or ``interval_s`` after the last commit."""

    interval_s: float = 0.0
    rows_enough: int = 1


@dataclass(slots=True, eq=False)
class _Ticket:
    batch: SinkBatch
    refused: Sequence[Refused] | None = None
    """None until the batch is committed."""


class Gathering:
    """A queue of commits. The caller at its head commits for all that wait."""

    def __init__(self, commit: Commit, pace: Pace = Pace()) -> None:
        self._commit = commit
        self._pace = pace
        self._waiting: list[_Ticket] = []
        self._turn = asyncio.Lock()
        self._enough = asyncio.Event()
        self._last_s = float("-inf")

    async def apply(self, batch: SinkBatch) -> Sequence[Refused]:
        """Commit a batch, alone or with others."""
        ticket = _Ticket(batch)
        self._waiting.append(ticket)
        self._look()
        try:
            async with self._turn:
                if ticket.refused is None:
                    await self._until_due()
                    await self._commit_all()
        finally:
            # The caller was cancelled or its commit failed. It gets the error and
            # retries.
            if ticket in self._waiting:
                self._waiting.remove(ticket)
                self._look()
        assert ticket.refused is not None, "committed"
        return ticket.refused

    async def _until_due(self) -> None:
        now_s = asyncio.get_running_loop().time()
        left_s = self._last_s + self._pace.interval_s - now_s
        if left_s > 0:
            try:
                async with asyncio.timeout(left_s):
                    await self._enough.wait()
            except TimeoutError:
                pass  # Too few rows came, but they have waited long enough.

    async def _commit_all(self) -> None:
        tickets = list(self._waiting)
        refused = await self._commit([ticket.batch for ticket in tickets])
        self._last_s = asyncio.get_running_loop().time()
        for ticket in tickets:
            ticket.refused = refusals_of(ticket.batch, refused)
        self._waiting = [ticket for ticket in self._waiting if ticket.refused is None]
        self._look()

    def _look(self) -> None:
        rows = sum(len(ticket.batch) for ticket in self._waiting)
        if rows >= self._pace.rows_enough:
            self._enough.set()
        else:
            self._enough.clear()
