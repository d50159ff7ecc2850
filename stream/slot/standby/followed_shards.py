"""The shards of a slot that a standby follows.

A shard is followed once its parents in the same slot were read to their ends. So the entries
of a parent are folded before those of its children.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from rowtide.core.shard.mark import decode_mark, mark_key
from rowtide.core.values.schema import ShardRange, Table
from rowtide.stream.shard.copy import came_back, row_ranges
from rowtide.stream.shard.row_store import RowStore
from rowtide.stream.slot.standby.standby_links import StandbyLinks
from rowtide.stream.slot.standby.standby_shard import StandbyShard
from rowtide.stream.slot.surroundings import Surroundings

__all__ = ["FollowedShards"]


class FollowedShards:
    """The followed shards of one slot, ``by_id``.

    ``on_end`` is called when a shard was read to its log's end. ``wake`` is set when the
    standby has work, ``moved`` whenever a shard's state has changed.
    """

    def __init__(
        self,
        number: int,
        surroundings: Surroundings,
        links: StandbyLinks,
        on_end: Callable[[], None],
    ) -> None:
        self.by_id: dict[str, StandbyShard] = {}
        self.wake = asyncio.Event()
        self.moved = asyncio.Event()
        self._number = number
        self._surroundings = surroundings
        self._links = links
        self._on_end = on_end
        self._roomy: set[str] = set()
        """Shards for which older rows were removed; see ``make_room``."""

    def lacking(self) -> list[StandbyShard]:
        """Return the shards that cannot continue before ``StandbyShard.mend``."""
        return [shard for shard in self.by_id.values() if shard.lacks]

    def has_read_since(self, asked_s: float) -> bool:
        """True if every log was read to an end requested since, or cannot be read further now."""
        return all(shard.has_read_since(asked_s) for shard in self.by_id.values())

    def settle(self, rows: RowStore) -> None:
        """Follow the catalog's present shards. Raises ``StoreFailed``."""
        wanted = {s.shard_id: (table, s) for table, s in self._links.tables(self._number)}
        for shard_id in [name for name in self.by_id if name not in wanted]:
            self.by_id.pop(shard_id).leave()
        for shard_id, (table, shard) in wanted.items():
            followed = self.by_id.get(shard_id)
            if followed is not None:
                followed.retable(table, shard)
            elif not any(
                self._has_unread_end(parent) for parent in shard.parents if parent in wanted
            ):
                self.by_id[shard_id] = self._follow(table, shard, rows)
        for followed in self.by_id.values():
            table = followed.shard.table
            beside = [shard for of, shard in wanted.values() if of.table_id == table.table_id]
            followed.others = came_back(table, followed.place, beside)

    def _has_unread_end(self, parent: str) -> bool:
        """True if a shard's end must still be read: its children begin after it.

        The shard is not followed either while its own parents must be read. A shard that lacks
        entries may have read its seal, but has not folded the entries before it.
        """
        followed = self.by_id.get(parent)
        return followed is None or bool(followed.lacks) or followed.shard.state.seal is None

    def _follow(self, table: Table, shard: ShardRange, rows: RowStore) -> StandbyShard:
        around = self._surroundings
        followed = StandbyShard(
            table, shard, rows, self._links.tails, self._note_change, limits=around.limits
        )
        marks = [rows.get(mark_key(name)) for name in shard.parents if name not in self.by_id]
        whole = all(mark is not None and decode_mark(mark).seal for mark in marks)
        # The changelog has parents whose logs are gone, up to their ends.
        lacks = "" if whole or followed.shard.state.applied >= 0 else "the ends of its parents"
        followed.begin(around.topics.shard(shard.shard_id), lacks)
        if lacks:
            self.wake.set()
        return followed

    def _note_change(self, shard: StandbyShard, records: int) -> None:
        """Count the folded records, and wake the tasks that wait for a change."""
        self._surroundings.counts.standby_records += records
        self.moved.set()
        if shard.lacks:
            self.wake.set()
        elif shard.has_ended:
            self._on_end()  # Its children may be followed now.

    async def make_room(self, shard: StandbyShard, rows: RowStore) -> None:
        """Remove older rows in the place of a shard that comes from another slot, once.

        They may have been deleted since, and would be shown beside the rows of the shard's log.
        This happens before the changelog is read that has the shard.
        """
        place = shard.place
        if place.shard_id in self._roomy:
            return
        self._roomy.add(place.shard_id)
        if place.copied and rows.get(mark_key(place.shard_id)) is None:
            ranges = row_ranges(shard.shard.table, place)
            while found := rows.rows_within(ranges):
                rows.make_room(found)
                await asyncio.sleep(0)

    def leave(self) -> None:
        """Stop following all logs, and hide all shards."""
        for shard in self.by_id.values():
            shard.leave()

    def clear(self) -> None:
        """Forget all shards: the standby closes."""
        self.by_id.clear()
        self._roomy.clear()
