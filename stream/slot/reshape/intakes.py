"""The shards that are on their way to a slot, which another slot still serves.

Their rows arrive in their logs (``stream/shard/copy.py``). They are folded as they come, so that
little is left to read when the catalog says that they are here. Before the first of them, what the
slot has of an earlier time in their place is removed: it would stand beside what has since been
deleted. What went elsewhere is removed in time, too.
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
from rowtide.stream.slot.local_rows import begun, unseen
from rowtide.stream.slot.opening.shard_opening import ShardOpener
from rowtide.stream.slot.reshape.reshape_links import ReshapeLinks

__all__ = ["SlotIntakes"]

logger = logging.getLogger(__name__)

WAIT_S = 0.5
RETRY_S = 0.2

Remove = Callable[[list[tuple[bytes, bytes]]], Awaitable[int]]
"""Removes some of the rows within ranges, from the changelog too; returns how many."""


class SlotIntakes:
    """Those of one slot. ``log_of`` returns a handle of its own on a shard's log."""

    def __init__(
        self,
        number: int,
        links: ReshapeLinks,
        opener: ShardOpener,
        remove: Remove,
        log_of: Callable[[str], Log],
    ) -> None:
        self.arriving: dict[str, ShardOwner] = {}
        """By shard id, as far as their rows have come."""
        self._number = number
        self._links = links
        self._opener = opener
        self._remove = remove
        self._log_of = log_of
        self._begun: set[str] = set()
        self._noted: dict[str, list[Range]] = {}
        """Of which shards the rows note in this life that some came: the keys."""
        self._clearing = asyncio.Lock()

    async def sweep(self, rows: RowStore) -> int:
        """Remove some rows that the slot has of shards that went elsewhere; return how many."""
        # Whatever comes here meanwhile makes room for itself after us.
        async with self._clearing:
            for number in rows.table_numbers():
                held = self._links.held(self._number, number)
                removed = await self._remove(_gaps(number, held))
                if removed:
                    return removed
        return 0

    def clear(self) -> None:
        """Forget everything: the slot closes."""
        self.arriving.clear()
        self._noted.clear()
        self._begun = set()  # Tasks of the life that ends take themselves off the former one.

    def settle(self, tasks: asyncio.TaskGroup, rows: RowStore) -> None:
        """Take in what the catalog plans to come here."""
        for table, shard in self._links.arriving(self._number):
            if shard.shard_id not in self._begun:
                self._begun.add(shard.shard_id)
                tasks.create_task(
                    self._take_in(table, shard, rows), name=f"intake[{shard.shard_id}]"
                )

    def left(self, rows: RowStore) -> list[str]:
        """Return the shards of which rows came that were given up while we had not the slot.

        Whoever had it then made room for the next copy as far as it knew of rows, which is not all
        that there are here.
        """
        known = {shard.shard_id for _, shard in self._links.arriving(self._number)}
        return [i for i in rows.arriving() if i not in known and not self._links.knows(i)]

    def unusable(
        self,
        rows: RowStore,
        known: frozenset[str] | None,
        shards: Iterable[tuple[Table, ShardRange]],
    ) -> str:
        """Return why rows are to be thrown away for what came to the slot meanwhile, or "".

        ``known`` are the shards of which they had some before they read more, ``shards`` those
        that live.
        """
        if came := unseen(known, [*shards, *self.marked(rows)]):
            return f"it has not seen these come: {', '.join(came)}"
        if left := self.left(rows):
            return f"rows of copies that were given up are in it, of {', '.join(left)}"
        return ""

    def marked(self, rows: RowStore) -> list[tuple[Table, ShardRange]]:
        """Return those of which the rows have some already: no room is made for them any more."""
        return begun(rows, self._links.arriving(self._number))

    async def arrived(self, table: Table, shard: ShardRange, rows: RowStore) -> ShardOwner | None:
        """Return what came of a shard that is here now; make room for it where nothing did."""
        # Nothing of it is folded before there is room: where some is, nobody need be waited for.
        while rows.get(mark_key(shard.shard_id)) is None:
            async with self._clearing:  # Whoever still makes room for it stops before we go on.
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
                    await self._made_room(table, shard, rows)
                    await self._fold(table, shard, rows)
                except (StoreError, record.CorruptRecord) as error:
                    logger.info("shard %s arrives later: %s", shard.shard_id, error)
                    await asyncio.sleep(RETRY_S)
        finally:
            begun.discard(shard.shard_id)

    async def _made_room(self, table: Table, shard: ShardRange, rows: RowStore) -> None:
        while rows.get(mark_key(shard.shard_id)) is None and self._links.is_arriving(shard):
            async with self._clearing:  # By turns: others make room, too.
                if not await self._remove(row_ranges(table, shard)):
                    self._forget_given_up(row_ranges(table, shard), rows)
                    return

    def _forget_given_up(self, room: list[Range], rows: RowStore) -> None:
        """Note no more of a former copy that some of it is in the rows: room was made for it."""
        for shard_id in [name for name, keys in self._noted.items() if keys == room]:
            if not self._links.knows(shard_id):
                rows.note_arriving(shard_id, arrives=False)
                del self._noted[shard_id]

    async def _fold(self, table: Table, shard: ShardRange, rows: RowStore) -> None:
        """Fold what comes, until the shard is here or goes elsewhere."""
        if not self._links.is_arriving(shard):
            return
        rows.note_arriving(shard.shard_id, arrives=True)
        self._noted[shard.shard_id] = row_ranges(table, shard)
        owner = self.arriving[shard.shard_id] = self._opener.arriving(table, shard, rows)
        log = self._log_of(shard.shard_id)
        # An earlier life of the slot may have folded some, which is flushed in ours.
        flushed = rows.flushed(shard.shard_id)
        at = min(owner.end, flushed + 1)
        held = rows.get(mark_key(shard.shard_id))
        applied = -1 if held is None else mark_position(held)[0]
        owner.ledger.is_complete = at > applied
        try:
            while self._links.is_arriving(shard):
                entries = await log.read(at, bytes_max=READ_BYTES, wait_s=WAIT_S)
                # Meanwhile it may have been opened, by what had come until then; or its copy has
                # begun anew, and room was made for that.
                ours = self.arriving.get(shard.shard_id) is owner
                if entries and ours and self._links.is_arriving(shard):
                    # What fails here may be ahead of its rows: nobody opens, or flushes, with it.
                    del self.arriving[shard.shard_id]
                    owner.fold.recover(entries, never=flushed < 0)
                    owner.fold.find_unflushed()
                    self.arriving[shard.shard_id] = owner
                    at = entries[-1].offset + 1
                    owner.ledger.is_complete = at > applied
                await asyncio.sleep(0)
        finally:
            if not self._links.knows(shard.shard_id):
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
