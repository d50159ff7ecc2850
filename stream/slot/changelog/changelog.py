"""A slot owner's writes to its changelog: flushes and removals, one at a time.

A writer that has fenced all others is not enough: a former owner that was cut off for a
while fences too. So after a fence the writer proves that the slot's claim is still the
last. Nothing is written without that proof. Times are seconds.
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
"""Interval of notes that the rows equal the changelog, while nothing is written."""


@dataclass(frozen=True, slots=True)
class ClosedWriting:
    """The slot has no rows, so none are written."""


@dataclass(frozen=True, slots=True)
class OpenWriting:
    """The rows of this life of the slot, and their writer."""

    rows: RowStore
    flush: ChangelogFlush


class SlotChangelog:
    """The writing side of one slot's changelog, across the slot's lives.

    ``require_claim`` raises ``Unavailable`` if a later claim has taken the slot.
    """

    def __init__(
        self,
        number: int,
        writer: ChangelogWriter,
        require_claim: Callable[[], Awaitable[None]],
        counts: Counts,
    ) -> None:
        self.flushed_s: float | None = None
        """When the changelog last had everything, in seconds of ``time.monotonic``."""
        self._number = number
        self._writer = writer
        self._require_claim = require_claim
        self._counts = counts
        self._writing = asyncio.Lock()
        self._state: ClosedWriting | OpenWriting = ClosedWriting()
        self._touched_s = -TOUCH_S
        """The last attempt to note the age of the rows, on the steady clock."""

    @property
    def is_open(self) -> bool:
        """True if the slot has rows that may be written."""
        return isinstance(self._state, OpenWriting)

    def open(self, rows: RowStore) -> None:
        """Write these rows from now on; they are as new as the changelog, or newer."""
        self._state = OpenWriting(rows, ChangelogFlush(self._writer, rows))

    def close(self) -> None:
        """Write nothing more; a flush that still reads rows fails."""
        if isinstance(state := self._state, OpenWriting):
            state.flush.close()
        self._state = ClosedWriting()

    async def prepare(self) -> None:
        """Do the work that needs no ownership, so that fencing takes less time."""
        await self._writer.prepare()

    async def fence(self) -> None:
        """Fence the former owner's flushes, unless a later claim has taken the slot."""
        await self._writer.fence()
        try:
            await self._require_claim()
        except BaseException:
            # The next write would take a fenced writer for one with a proven claim.
            self._writer.leave()
            raise

    async def flush(self, scope: Callable[[], FlushScope], held: Sequence[ShardOwner] = ()) -> int:
        """Write the shards in ``scope``, which is read as writing begins; return the
        number of entries.

        ``held`` are its closed shards. Raises the errors of ``ChangelogWriter.flush``.
        Raises ``Unavailable`` if the slot is not open, or was opened again since they
        were opened.
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
        """Let the next flush send stamped tombstones for deleted rows that the changelog has.

        Deletes that ``scope`` still has to flush are left out, whichever shard flushes
        them: a parent may have deleted rows that its child goes over.
        """
        async with self._writing:
            if isinstance(state := self._state, OpenWriting):
                unflushed = scope()
                state.flush.bury(
                    {k: at for k, at in graves.items() if not unflushed.is_unflushed(k)}
                )

    async def remove(self, keys: Sequence[bytes], stamps: Mapping[bytes, int]) -> None:
        """Remove chunks from the changelog, then from the rows; see ``ChangelogFlush.remove``."""
        async with self._writing:
            writing = await self._ready()
            await writing.flush.remove(keys, time.time(), stamps=stamps)

    async def require_read(self) -> None:
        """Raise if the changelog was not read to its end; see ``ChangelogFlush``."""
        async with self._writing:
            writing = await self._ready()
            await writing.flush.require_read(time.time())

    async def touch(self) -> None:
        """Note the time in the rows if that was not done for long, because nothing was written.

        Without the note a restart would take the rows for an outdated copy. The noted
        time is one at which the claim was the last and the rows had read everything.
        Raises the errors of ``require_read``.
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
        """Return the fenced writer. Raises the errors of ``fence``, and ``Unavailable``."""
        if not self._writer.ready:
            await self.fence()
        if not isinstance(state := self._state, OpenWriting):
            raise self._unavailable()
        return state

    def _unavailable(self) -> Unavailable:
        return Unavailable(f"slot {self._number} is not open")
