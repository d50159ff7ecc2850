"""The shards that are moving to a slot, and that another slot still serves.

Their rows arrive in their logs (``stream/shard/copy.py``). They are folded on arrival, so
that little is left to read when the catalog assigns them here. Before the first row,
older rows in their place are removed, because they may have been deleted since. Rows of
shards that left the slot are removed later.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

from rowtide.core.records import record
from rowtide.core.rows.chunk import table_prefix
from rowtide.core.shard.mark import mark_key, mark_position
from rowtide.core.values.errors import StoreError
from rowtide.core.values.schema import ShardRange, Table
from rowtide.stream.log.log import Log
from rowtide.stream.shard.appender import READ_BYTES
from rowtide.stream.shard.copy import Range, row_ranges
from rowtide.stream.shard.owner import ShardOwner
from rowtide.stream.shard.row_store import RowStore
from rowtide.stream.slot.local_rows import find_begun, unseen
from rowtide.stream.slot.opening.shard_opening import ShardOpener
from rowtide.stream.slot.reshape.reshape_links import ReshapeLinks

__all__ = ["SlotIntakes"]

logger = logging.getLogger(__name__)

WAIT_S = 0.5
RETRY_S = 0.2

Remove = Callable[[list[tuple[bytes, bytes]]], Awaitable[int]]
"""Removes some of the rows within ranges, from the changelog too; returns their number."""


class SlotIntakes:
    """The intakes of one slot. ``log_of`` returns a separate handle on a shard's log."""

    def __init__(
        self,
        number: int,
        links: ReshapeLinks,
        opener: ShardOpener,
        remove: Remove,
        log_of: Callable[[str], Log],
    ) -> None:
        self.arriving: dict[str, ShardOwner] = {}
        """By shard id, with the rows that have arrived."""
        self._number = number
        self._links = links
        self._opener = opener
        self._remove = remove
        self._log_of = log_of
        self._begun: set[str] = set()
        self._noted: dict[str, list[Range]] = {}
        """The keys of shards of which a note in the rows says, in this life, that some
        have arrived.
        """
        self._clearing = asyncio.Lock()

    async def sweep(self, rows: RowStore) -> int:
        """Remove some of the slot's rows of shards that left it; return their number."""
        # A shard that arrives meanwhile makes room for itself afterwards.
        async with self._clearing:
            for number in rows.table_numbers():
                held = self._links.list_held(self._number, number)
                removed = await self._remove(_gaps(number, held))
                if removed:
                    return removed
        return 0

    def clear(self) -> None:
        """Forget everything: the slot closes."""
        self.arriving.clear()
        self._noted.clear()
        self._begun = set()  # Tasks of the ended life remove themselves from the old set.

    def settle(self, tasks: asyncio.TaskGroup, rows: RowStore) -> None:
        """Take in the shards that the catalog plans to move here."""
        for table, shard in self._links.arriving(self._number):
            if shard.shard_id not in self._begun:
                self._begun.add(shard.shard_id)
                tasks.create_task(
                    self._take_in(table, shard, rows), name=f"intake[{shard.shard_id}]"
                )

    def list_given_up(self, rows: RowStore) -> list[str]:
        """Return shards with rows here whose move was given up while another worker had the slot.

        That worker made room for the next copy only for the rows that it knew, which are
        not all rows here.
        """
        known = {shard.shard_id for _, shard in self._links.arriving(self._number)}
        return [i for i in rows.arriving() if i not in known and not self._links.is_known(i)]

    def unusable(
        self,
        rows: RowStore,
        known: frozenset[str] | None,
        shards: Iterable[tuple[Table, ShardRange]],
    ) -> str:
        """Return why rows must be deleted because of shards that came to the slot
        meanwhile, or "".

        ``known`` are the shards of which they had some before they read more, ``shards``
        the live ones.
        """
        if came := unseen(known, [*shards, *self.list_begun(rows)]):
            return f"it has not seen these come: {', '.join(came)}"
        if left := self.list_given_up(rows):
            return f"rows of copies that were given up are in it, of {', '.join(left)}"
        return ""

    def list_begun(self, rows: RowStore) -> list[tuple[Table, ShardRange]]:
        """Return the arriving shards of which rows are here: no more room is made for them."""
        return find_begun(rows, self._links.arriving(self._number))

    async def take_arrived(
        self, table: Table, shard: ShardRange, rows: RowStore
    ) -> ShardOwner | None:
        """Return the arrived rows of a shard that is here now; make room if none have arrived."""
        # None of its rows is folded before there is room, so rows here mean that room was
        # made.
        while rows.get(mark_key(shard.shard_id)) is None:
            # Another task that still makes room for it stops before we go on.
            async with self._clearing:
                if not await self._remove(row_ranges(table, shard)):
                    break
        rows.note_arriving(shard.shard_id, arrives=False)
        self._noted.pop(shard.shard_id, None)
        return self.arriving.pop(shard.shard_id, None)

    async def _take_in(self, table: Table, shard: ShardRange, rows: RowStore) -> None:
        begun = self._begun
        try:
            while self._links.is_arriving(shard):
                try:
                    await self._make_room(table, shard, rows)
                    await self._fold(table, shard, rows)
                except (StoreError, record.CorruptRecord) as error:
                    logger.info("shard %s: intake failed, retrying: %s", shard.shard_id, error)
                    await asyncio.sleep(RETRY_S)
        finally:
            begun.discard(shard.shard_id)

    async def _make_room(self, table: Table, shard: ShardRange, rows: RowStore) -> None:
        while rows.get(mark_key(shard.shard_id)) is None and self._links.is_arriving(shard):
            async with self._clearing:  # In turns with other tasks that make room.
                if not await self._remove(row_ranges(table, shard)):
                    self._forget_given_up(row_ranges(table, shard), rows)
                    return

    def _forget_given_up(self, room: list[Range], rows: RowStore) -> None:
        """Drop the note that rows of a former copy are here: room was made for it."""
        for shard_id in [name for name, keys in self._noted.items() if keys == room]:
            if not self._links.is_known(shard_id):
                rows.note_arriving(shard_id, arrives=False)
                del self._noted[shard_id]

    async def _fold(self, table: Table, shard: ShardRange, rows: RowStore) -> None:
        """Fold the arriving entries until the shard is here or goes elsewhere."""
        if not self._links.is_arriving(shard):
            return
        rows.note_arriving(shard.shard_id, arrives=True)
        self._noted[shard.shard_id] = row_ranges(table, shard)
        owner = self.arriving[shard.shard_id] = self._opener.arriving(table, shard, rows)
        log = self._log_of(shard.shard_id)
        # An earlier life of the slot may have folded some, which our life has flushed.
        flushed = rows.find_flushed(shard.shard_id)
        at = min(owner.end, flushed + 1)
        held = rows.get(mark_key(shard.shard_id))
        applied = -1 if held is None else mark_position(held)[0]
        owner.ledger.is_complete = at > applied
        try:
            while self._links.is_arriving(shard):
                entries = await log.read(at, bytes_max=READ_BYTES, wait_s=WAIT_S)
                # It may have been opened meanwhile, with the rows that had arrived. Or
                # its copy was restarted, and room was made for the new one.
                ours = self.arriving.get(shard.shard_id) is owner
                if entries and ours and self._links.is_arriving(shard):
                    # After an error here it may be ahead of its rows: it must not be
                    # opened or flushed.
                    del self.arriving[shard.shard_id]
                    owner.fold.recover(entries, never=flushed < 0)
                    owner.fold.find_unflushed()
                    self.arriving[shard.shard_id] = owner
                    at = entries[-1].offset + 1
                    owner.ledger.is_complete = at > applied
                await asyncio.sleep(0)
        finally:
            if not self._links.is_known(shard.shard_id):
                self.arriving.pop(shard.shard_id, None)
            await log.disconnect()


def _gaps(number: int, held: Iterable[ShardRange]) -> list[tuple[bytes, bytes]]:
    """Return the keys of a table's rows, low <= key < high, that are in none of the shards."""
    gaps: list[tuple[bytes, bytes]] = []
    prefix, at = table_prefix(number), table_prefix(number)
    for shard in sorted(held, key=lambda shard: shard.begin):
        if at < prefix + shard.begin:
            gaps.append((at, prefix + shard.begin))
        if not shard.end:
            return gaps
        at = max(at, prefix + shard.end)
    return [*gaps, (at, table_prefix(number + 1))]
