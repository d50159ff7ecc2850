"""Compares what a copy reads of its changelog with what it has read of the logs.

A copy reads the changelog only as far as it has read the logs, so its entries bring
nothing new. A log is read to the end that its broker reports, and a deposed broker may
report an old end. So entries are checked before they are folded: entries ahead of a log's
fold would show a part of later changes. A copy also stops showing a shard whose rows are
removed without a record in its log. They moved to another slot, which neither the log's
end nor the catalog may have shown, if deposed brokers answered.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rowtide.core.rows.chunk import DELETED, header
from rowtide.core.shard.mark import mark_key, mark_position
from rowtide.core.values.errors import Unavailable
from rowtide.stream.log.changelog import ChangelogEntry
from rowtide.stream.shard.copy import row_ranges
from rowtide.stream.slot.changelog.flush import tombstone_stamp
from rowtide.stream.slot.standby.standby_shard import StandbyShard

__all__ = ["Reach", "Removed"]


class Removed(Unavailable):
    """Rows that ``shards`` show are removed, but not by records in their logs."""

    def __init__(self, shards: Collection[StandbyShard]) -> None:
        super().__init__()
        self.shards = shards


class Reach:
    """How far the shards of one slot were followed. Shards that are not shown do not count."""

    def __init__(self, shards: Collection[StandbyShard]) -> None:
        # After a seal there are only no-ops, which only the owner counts.
        self._marks = {
            mark_key(s.place.shard_id): s for s in shards if not (s.lacks or s.has_ended)
        }
        self._ranges = [
            (low, high, shard)
            for shard in shards
            for low, high in row_ranges(shard.shard.table, shard.place)
        ]

    def require(self, entries: Sequence[ChangelogEntry]) -> None:
        """Raise ``Unavailable`` if an entry is ahead of what was read of its shard's log.

        Raises ``Removed`` for shards that must not be shown any more before the entry is
        folded.
        """
        for entry in entries:
            if entry.key[:1] == b"r":
                ahead = self._is_later(entry)
            else:
                ahead = entry.value is not None and self._is_further(entry.key, entry.value)
            if ahead:
                raise Unavailable(f"the changelog at {entry.offset} is ahead of a log")
            if entry.value is None:
                self._require_gone(entry)

    def _is_further(self, mark: bytes, value: bytes) -> bool:
        shard = self._marks.get(mark)
        return shard is not None and mark_position(value)[0] > shard.shard.state.applied

    def _is_later(self, entry: ChangelogEntry) -> bool:
        """True if a row's entry is later than what was read of every shard that may have it."""
        key, value, headers = entry.key, entry.value, entry.headers
        stamp = tombstone_stamp(headers) if value is None else header(value)[4]
        having = [shard for low, high, shard in self._ranges if low <= key < high]
        if not having or any(shard.lacks or shard.broken for shard in having):
            return False  # It is not shown.
        return stamp > max(max(s.shard.state.stamp, s.place.floor_us) for s in having)

    def _require_gone(self, entry: ChangelogEntry) -> None:
        """Raise if a row is removed that exists in what was read of its shard's log."""
        stamp = tombstone_stamp(entry.headers)
        within = [shard for low, high, shard in self._ranges if low <= entry.key < high]
        shown = [shard for shard in within if shard.fresh_s is not None]
        if not stamp or not shown:
            return
        stored = shown[0].rows.get(entry.key)
        if stored is None:
            return
        found = header(stored)
        if not found[1] & DELETED and found[4] <= stamp:
            raise Removed(shown)
