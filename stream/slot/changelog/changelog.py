"""What the owner of a slot writes to its changelog: flushes and removals, one at a time.

A writer that has fenced all others is not enough: a former owner that was cut off for a while
fences, too. So whoever fences asks then whether the slot's claim is still the last, and nothing is
written by a writer of which that is not known. Times are seconds.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from rowtide.core.values.errors import Unavailable
from rowtide.stream.log.changelog import ChangelogWriter
from rowtide.stream.measures.counts import Counts
from rowtide.stream.shard.owner import ShardOwner
from rowtide.stream.shard.row_store import RowStore
from rowtide.stream.slot.changelog.flush import ChangelogFlush
from rowtide.stream.slot.changelog.flush_scope import FlushScope

__all__ = ["OpenWriting", "SlotChangelog"]

TOUCH_S = 3600.0
"""Between two notes that the rows are as the changelog says, where nothing is written."""


@dataclass(frozen=True, slots=True)
class ClosedWriting:
    """The slot has no rows, so nothing of them is written."""


@dataclass(frozen=True, slots=True)
class OpenWriting:
    """The rows of this life of the slot, and what writes them."""

    rows: RowStore
    flush: ChangelogFlush


class SlotChangelog:
    """The writing side of one slot's changelog, from life to life of the slot.

    ``require_claim`` raises ``Unavailable`` where a later claim has taken the slot.
    """

    def __init__(
        self,
        number: int,
        writer: ChangelogWriter,
        require_claim: Callable[[], Awaitable[None]],
        counts: Counts,
    ) -> None:
        self.flushed_s: float | None = None
        """When the changelog had everything last, in seconds of ``time.monotonic``."""
        self._number = number
        self._writer = writer
        self._require_claim = require_claim
        self._counts = counts
        self._writing = asyncio.Lock()
        self._state: ClosedWriting | OpenWriting = ClosedWriting()
        self._touched_s = -TOUCH_S
        """When it was last tried to note how old the rows are, on the steady clock."""

    @property
    def is_open(self) -> bool:
        """Whether the slot has rows of which something may be written."""
        return isinstance(self._state, OpenWriting)

    def open(self, rows: RowStore) -> None:
        """Write what these rows have from now on; they are as the changelog says, and newer."""
        self._state = OpenWriting(rows, ChangelogFlush(self._writer, rows))

    def close(self) -> None:
        """Write nothing more; a flush that still reads rows fails."""
        if isinstance(state := self._state, OpenWriting):
            state.flush.close()
        self._state = ClosedWriting()

    async def prepare(self) -> None:
        """Do what may be done before the slot is ours, so that fencing takes less time."""
        await self._writer.prepare()

    async def fence(self) -> None:
        """Fence the former owner's flushes, unless a later claim has taken the slot."""
        await self._writer.fence()
        try:
            await self._require_claim()
        except BaseException:
            # Whoever writes next would take a writer that is fenced for one whose claim is known.
            self._writer.leave()
            raise

    async def flush(self, scope: Callable[[], FlushScope], held: Sequence[ShardOwner] = ()) -> int:
        """Write what ``scope`` says as writing begins; return the number of entries.

        ``held`` are the shards of it that are closed. Raises what ``ChangelogWriter.flush`` raises,
        and ``Unavailable`` where the slot is not open, or was opened again since they were opened.
        """
        async with self._writing:
            writing = await self._ready()
            if any(owner.rows is not writing.rows for owner in held):
                raise self._unavailable()
            began_s = time.monotonic()
            shards, left = scope()
            written = await writing.flush.flush(shards, time.time(), left=left)
            if not left:
                self.flushed_s = began_s
            self._counts.flushes.add(time.monotonic() - began_s)
            self._counts.flush_entries += written
            return written

    async def bury(self, scope: Callable[[], FlushScope], graves: Mapping[bytes, int]) -> None:
        """Let the next flush send tombstones for deleted rows that the changelog has, stamped.

        It lacks those that ``scope`` says are still to be flushed, by whatever shard: a parent may
        have deleted what its child goes over.
        """
        async with self._writing:
            if isinstance(state := self._state, OpenWriting):
                unflushed = scope()
                state.flush.bury({k: at for k, at in graves.items() if not unflushed.lacks(k)})

    async def remove(self, keys: Sequence[bytes], stamps: Mapping[bytes, int]) -> None:
        """Remove chunks from the changelog, then from the rows; see ``ChangelogFlush.remove``."""
        async with self._writing:
            writing = await self._ready()
            await writing.flush.remove(keys, time.time(), stamps=stamps)

    async def require_read(self) -> None:
        """Raise where the changelog was not read to its end; see ``ChangelogFlush``."""
        async with self._writing:
            writing = await self._ready()
            await writing.flush.require_read(time.time())

    async def touch(self) -> None:
        """Note the time in the rows where that was not done for long: nothing was written.

        Else a restart would take them for a copy that has slept. Noted is a time at which the claim
        was the last and the rows had read everything. Raises what ``require_read`` raises.
        """
        if not isinstance(state := self._state, OpenWriting):
            return
        noted_s, steady_s = state.rows.changelog_time(), time.monotonic()
        if noted_s is None or steady_s - self._touched_s < TOUCH_S:
            return
        if 0 <= time.time() - noted_s < TOUCH_S:  # Or the clock was set back meanwhile.
            return
        self._touched_s = steady_s
        await self._require_claim()
        await self.require_read()

    async def _ready(self) -> OpenWriting:
        """Return what writes, fenced. Raises what ``fence`` raises, and ``Unavailable``."""
        if not self._writer.ready:
            await self.fence()
        if not isinstance(state := self._state, OpenWriting):
            raise self._unavailable()
        return state

    def _unavailable(self) -> Unavailable:
        return Unavailable(f"slot {self._number} is not open")
