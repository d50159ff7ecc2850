"""Removes invisible versions in the background: expired and surplus ones.

A pass goes through a slot's shards in slices of chunks. If a slice may have something to
remove, a hidden record of the range goes through the log like every change. Its
evaluation decides what it removes, under the options then in force
(``core/shard/reclaim.py``). Deleted rows of an earlier life, whose stamped delete the
changelog has, are passed to the flush on the way: their tombstones were still to be sent.

Times are seconds of the event loop's clock.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Any

from rowtide.core.records.record import Reclaim
from rowtide.core.rows.chunk import row_key, table_prefix
from rowtide.core.shard.reclaim_scan import Slice, scan_slice
from rowtide.core.values.errors import OutcomeUnknown, Unavailable
from rowtide.core.values.schema import LOCAL
from rowtide.stream.shard.owner import ShardOwner

__all__ = ["ReclaimSettings", "Reclaimed", "Reclaimer", "chunk_ranges"]

logger = logging.getLogger(__name__)

Bury = Callable[[dict[bytes, int]], Awaitable[None]]
"""Sends the tombstones of deleted rows that the changelog has, if they are such rows."""

SLICE_CHUNKS = 500
"""Chunks read before other tasks get their turn on the event loop: about a millisecond."""

WORK_BYTES = 128 * 1024
"""Bytes of chunks that one record decodes and writes again: about ten milliseconds."""


@dataclass(frozen=True, slots=True)
class ReclaimSettings:
    """How fast a slot is gone through, and how often.

    A higher rate takes CPU from clients and, if there is much to remove, log and disk. At
    a low rate, or with long pauses, invisible versions keep their space longer.
    ``pause_s`` is between the end of a pass and the next.
    """

    rows_per_s: int = 20_000
    pause_s: float = 300.0

    def __post_init__(self) -> None:
        if self.rows_per_s < 1:
            raise ValueError(f"rows_per_s must be 1 or more, not {self.rows_per_s}")


@dataclass(slots=True)
class Reclaimed:
    """The work that was done: chunks read, ranges evaluated, deleted rows found."""

    rows: int = 0
    ranges: int = 0
    graves: int = 0

    def add(self, found: Slice) -> None:
        """Count a slice."""
        self.rows += found.scanned
        self.ranges += bool(found.last)
        self.graves += len(found.graves)


class Reclaimer:
    """The reclaimer of one slot. The slot repeats ``go_through``."""

    def __init__(
        self,
        shards: Callable[[], Collection[ShardOwner]],
        bury: Bury,
        *,
        clock_us: Callable[[], int],
        settings: ReclaimSettings,
    ) -> None:
        self._shards = shards
        self._bury = bury
        self._clock_us = clock_us
        self._settings = settings
        self._allowed = asyncio.Event()
        self._allowed.set()
        self._total = Reclaimed()
        self._passes = 0
        self._at: str | None = None

    def hold(self, *, paused: bool) -> None:
        """Pause within a slice, keeping what was written; or continue where the pause began."""
        (self._allowed.clear if paused else self._allowed.set)()

    def status(self) -> dict[str, Any]:
        """Return the progress: ``shard`` is the present one, None between passes."""
        return {
            "paused": not self._allowed.is_set(),
            "shard": self._at,
            "passes": self._passes,
            "rows": self._total.rows,
            "ranges": self._total.ranges,
        }

    async def go_through(self) -> None:
        """Go through the slot's shards once. An error of one does not end the pass."""
        for owner in list(self._shards()):
            await self._allowed.wait()
            try:
                await self._go_through(owner, self._wait)
            except (Unavailable, OutcomeUnknown) as error:
                logger.warning("reclaiming %s: %s", owner.shard.shard_id, error)
        self._at = None
        self._passes += 1

    async def reclaim_now(self, owner: ShardOwner) -> Reclaimed:
        """Go through one shard at once, paused or not, at full speed.

        Raises ``Unavailable``, ``OutcomeUnknown``.
        """
        return await self._go_through(owner, lambda _: asyncio.sleep(0))

    async def _go_through(
        self, owner: ShardOwner, wait: Callable[[Slice], Awaitable[None]]
    ) -> Reclaimed:
        done = Reclaimed()
        for low, high in chunk_ranges(owner):
            await self._go_over(owner, low, high, done, wait)
        self._at = None
        return done

    async def _go_over(
        self,
        owner: ShardOwner,
        low: bytes,
        high: bytes,
        done: Reclaimed,
        wait: Callable[[Slice], Awaitable[None]],
    ) -> None:
        following: bytes | None = low
        while following is not None:
            if owner not in self._shards():
                raise Unavailable
            self._at = owner.shard.shard_id
            found = scan_slice(
                owner.rows,
                following,
                high,
                owner.shard.reclaim_body(b"", b"", self._clock_us()),
                chunks_max=SLICE_CHUNKS,
                work_bytes_max=WORK_BYTES,
            )
            if found.last:
                for first, last in owner.transactions.list_free_ranges(found.first, found.last):
                    await owner.submit_hidden(Reclaim(first, last, 0, 0))
            if found.graves:
                await self._bury(found.graves)
            done.add(found)
            self._total.add(found)
            following = found.following
            await wait(found)

    async def _wait(self, found: Slice) -> None:
        """Keep to the rate, and wait during a pause."""
        await asyncio.sleep(found.scanned / self._settings.rows_per_s)
        await self._allowed.wait()


def chunk_ranges(owner: ShardOwner) -> list[tuple[bytes, bytes]]:
    """Return the chunk keys of a shard, low <= key < high: its table's, its local indexes'.

    Rows of an index have one version and do not expire: only deleted ones can be found.
    """
    table, place = owner.shard.table, owner.shard.indexes.place()
    numbers = [table.table_id, *(i.table_id for i in table.indexes if i.kind == LOCAL)]
    return [
        (
            row_key(number, place.begin),
            row_key(number, place.end) if place.end else table_prefix(number + 1),
        )
        for number in numbers
    ]
