"""What the log's entries wrote that the changelog may lack; noted while a shard opens."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rowtide.core.records import record
from rowtide.core.shard.shard import ROWS, Shard
from rowtide.stream.log.log import Entry
from rowtide.stream.shard.replay import Range, among
from rowtide.stream.shard.row_store import RowStore

__all__ = ["Unflushed"]


class Unflushed:
    """The places that entries of one shard wrote to, each with the oldest stamp it was given."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._places: dict[Range, int] = {}

    def note(self, entries: Iterable[Entry]) -> set[bytes]:
        """Note the places that entries wrote to; return the store keys of other notes."""
        keys: set[bytes] = set()
        for entry in entries:
            envelope, body = record.decode_record(entry.value)
            noted = self._shard.noted_key(body)
            if noted is not None:
                keys.add(noted)
            # What was copied from elsewhere was written long before.
            stamp = 0 if isinstance(body, record.Copy) else envelope.stamp
            for place in self._shard.written_ranges(entry.key, body):
                self._places[place] = min(stamp, self._places.get(place, stamp))
        return keys

    def find(self, rows: RowStore, others: Sequence[Range]) -> set[bytes]:
        """Return the chunks of each place that are no older than its entry; forget the places."""
        found: set[bytes] = set()
        for (low, high), stamp in self._places.items():
            if low[:1] == ROWS:
                changed = rows.changed_since(low, high, stamp)
                found.update(key for key in changed if not among(key, others))
            else:
                found.add(low)
        self._places.clear()
        return found
