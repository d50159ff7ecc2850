"""Folds the batches of the shards that are read here, and stores their sums with their positions.

A shard begins at the position of its state. A write that fails gives the shard back: sums in memory
may be ahead of the stored ones.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import NamedTuple

from rowtide.client.changes.leases import ReaderLease
from rowtide.client.changes.worker import Batch
from rowtide.client.endpoint import Endpoint
from rowtide.connectors.runtime.progress import Progress
from rowtide.core.values.errors import StoreError
from rowtide.dashboards.runtime.shard_fold import ShardFold
from rowtide.dashboards.runtime.state_rows import PartPosition, PartWriter, StateTable, part_of
from rowtide.dashboards.runtime.stored_dashboards import DashboardBuild

__all__ = ["BuildFolder"]

PAUSE_S, BUSY_PAUSE_S = 0.01, 0.03
"""A shard's writes are at least so far apart, so that changes that come one by one share some. A
busy shard's writes are further apart: each is a group of rows that the worker stores.
"""
BUSY_CHANGES = 50
"""A shard is busy if its last batch had so many changes."""


class _HeldShard(NamedTuple):
    """A shard that is read here: its sums, and what writes them."""

    fold: ShardFold
    writer: PartWriter


class BuildFolder:
    """The shards of one build in this process. ``ending`` ends the retries of writes.

    ``progress`` has the shards whose state is not written yet because the server rejects it.
    """

    def __init__(
        self, endpoint: Endpoint, build: DashboardBuild, ending: asyncio.Event, progress: Progress
    ) -> None:
        self._endpoint = endpoint
        self._build = build
        self._ending = ending
        self._progress = progress
        self._state = StateTable(endpoint)
        self._held: dict[str, _HeldShard] = {}
        self._next_s: dict[str, float] = {}
        """When a shard's next batch may be stored, by the clock of the event loop."""

    async def resume(self, lease: ReaderLease) -> ReaderLease:
        """Read a shard's state once no other reader can change it."""
        dashboard, shard_id = self._build.dashboard, lease.shard_id
        part = part_of(dashboard.name, self._build.id, shard_id)
        note = partial(self._note, shard_id)
        writer = PartWriter(self._endpoint, part, lease.counter, self._ending, note)
        await writer.fence()
        stored = await self._state.read(part)
        at = stored.position or PartPosition(lease.position, 0, lease.pending)
        held = self._held[shard_id] = _HeldShard(ShardFold(dashboard, at, stored), writer)
        if stored.position is None:
            await self._write(held)
        return lease._replace(position=at.position, pending=at.pending)

    async def fold(self, batch: Batch) -> None:
        """Fold a batch and store the sums. After a failure the shard must be resumed."""
        loop, shard_id = asyncio.get_running_loop(), batch.shard_id
        held = self._held[shard_id]  # That of this reader, also if another one follows meanwhile.
        wait_s = self._next_s.get(shard_id, 0.0) - loop.time()
        if wait_s > 0 and batch.covers is None:
            await asyncio.sleep(wait_s)
        if batch.covers is None:
            changes = batch.changes
            while (done := held.fold.add_changes(changes)) < len(changes):
                await self._write(held)
                changes = changes[done:]
        else:
            await self._fold_page(held, batch, batch.covers)
        await self._write(held)
        is_busy = len(batch.changes) >= BUSY_CHANGES
        self._next_s[shard_id] = loop.time() + (BUSY_PAUSE_S if is_busy else PAUSE_S)

    async def _fold_page(self, held: _HeldShard, batch: Batch, covers: tuple[bytes, bytes]) -> None:
        begin, end = covers
        rows = batch.changes
        while (done := held.fold.add_rows(rows)) < len(rows):
            if done:
                # No key is a prefix of another.
                held.fold.cover((begin, rows[done - 1].key_bytes + b"\0"), batch.stamp)
            await self._write(held)
            rows = rows[done:]
        held.fold.cover((begin, end), batch.stamp)

    def _note(self, shard_id: str, failure: StoreError | None) -> None:
        """Note that a shard waits for a write of its state, or that it does so no more."""
        waiting = self._progress.waiting
        if failure is None:
            waiting.discard(shard_id)
        elif shard_id not in waiting:
            waiting.add(shard_id)
            self._progress.note_failure(f"shard {shard_id}: the state is written later: {failure}")

    async def _write(self, held: _HeldShard) -> None:
        time_ms = max(0, held.fold.at.stamp // 1000) or time.time_ns() // 1_000_000
        await held.writer.write(held.fold.take_rows(), time_ms=time_ms)
