"""Removes unneeded rows of a slot: those of dropped tables, of shards that left the slot,
and commits that no client repeats any more. They go from the changelog first, then from
the rows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress

from rowtide.stream.shard.row_store import RowStore
from rowtide.stream.slot.failures import log_failures
from rowtide.stream.slot.reshape.intakes import SlotIntakes

__all__ = ["SlotSweep"]

SWEEP_S = 30.0
"""Interval of sweeps without a request; a failed one is repeated then."""

PAUSE_S = 0.05
"""Pause between two slices, in which others flush."""

Remove = Callable[[Sequence[bytes], Mapping[bytes, int]], Awaitable[None]]
"""Removes chunks by their keys; a stamp above a row's means that the whole row is to be gone."""


class SlotSweep:
    """The sweeps of one slot. ``remove`` raises what a flush raises."""

    def __init__(self, number: int, remove: Remove, table_known: Callable[[int], bool]) -> None:
        self._number = number
        self._remove = remove
        self._table_known = table_known
        self._is_requested = asyncio.Event()

    def request(self) -> None:
        """Request a sweep soon: there are rows that no shard of the slot needs."""
        self._is_requested.set()

    async def wait(self) -> None:
        """Return once a sweep is requested, or after ``SWEEP_S``."""
        with suppress(TimeoutError):
            async with asyncio.timeout(SWEEP_S):
                await self._is_requested.wait()

    async def run(self, rows: RowStore, intakes: SlotIntakes) -> None:
        """Remove the rows that no shard of the slot needs. Logs errors."""
        self._is_requested.clear()
        with log_failures(f"slot {self._number}: sweep"):
            await self.remove_dropped(rows)
            await self.remove_moved(rows, intakes)

    async def remove_dropped(self, rows: RowStore) -> None:
        """Remove the rows of tables and indexes that are gone."""
        while keys := rows.find_left_over(self._table_known):
            await self._remove(keys, {})
            await asyncio.sleep(PAUSE_S)

    async def remove_moved(self, rows: RowStore, intakes: SlotIntakes) -> None:
        """Remove the rows of shards that left the slot."""
        removed = await intakes.sweep(rows)
        while removed:
            await asyncio.sleep(PAUSE_S)
            removed = await intakes.sweep(rows)

    async def within(self, rows: RowStore, ranges: Sequence[tuple[bytes, bytes]]) -> int:
        """Remove some of the rows within ranges; return the number of chunks."""
        found = dict(rows.rows_within(ranges))
        if found:
            stamps = {chunk_key: stamp for chunk_key, stamp in found.items() if stamp}
            await self._remove(list(found), stamps)
        return len(found)

    async def commits(self, rows: RowStore, started_before_us: int) -> None:
        """Remove the transactions that started before that time."""
        while keys := rows.old_commits(started_before_us):
            await self._remove(keys, {})
