"""Which chunks of a shard the next flush must write to the changelog.

The owner adds the keys of everything that it writes. While a shard opens, entries that the rows
hold already are read again, because the changelog may lack what they wrote. They are only noted:
``find_noted`` adds the chunks that they left.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from operator import itemgetter

from rowtide.core.records import record
from rowtide.core.rows.fold import Writes
from rowtide.core.shard.shard import ROWS, Shard
from rowtide.stream.log.log import Entry
from rowtide.stream.shard.replay import Range, among
from rowtide.stream.shard.row_store import RowStore

__all__ = ["FlushLedger"]

_key_of = itemgetter(0)


class FlushLedger:
    """The keys of one shard's chunks that changed since the last flush."""

    def __init__(self, shard: Shard) -> None:
        self.is_complete = False
        """Whether ``keys`` has everything of this shard that the changelog may lack."""
        self._shard = shard
        self._keys: set[bytes] = set()
        self._places: dict[Range, int] = {}
        """The places that noted entries wrote to, each with the oldest stamp it was given."""

    @property
    def keys(self) -> Set[bytes]:
        """The store keys that the next flush writes."""
        return self._keys

    def add(self, keys: Iterable[bytes]) -> None:
        """Add store keys, also those of a flush that failed."""
        self._keys.update(keys)

    def add_writes(self, writes: Writes) -> None:
        """Add the store keys of what was written."""
        self._keys.update(map(_key_of, writes))

    def take(self) -> set[bytes]:
        """Return the keys, which a flush is about to write, and begin a new set."""
        taken, self._keys = self._keys, set()
        return taken

    def note(self, entries: Iterable[Entry]) -> None:
        """Note the places that entries wrote to; add the store keys of other notes."""
        for entry in entries:
            envelope, body = record.decode_record(entry.value)
            noted = self._shard.noted_key(body)
            if noted is not None:
                self._keys.add(noted)
            # What was copied from elsewhere was written long before.
            stamp = 0 if isinstance(body, record.CopyBody) else envelope.stamp
            for place in self._shard.written_ranges(entry.key, body):
                self._places[place] = min(stamp, self._places.get(place, stamp))

    def find_noted(self, rows: RowStore, others: Sequence[Range]) -> None:
        """Add the chunks of each noted place that are no older than its entry.

        ``others`` are keys that are another shard's by now. The notes are forgotten.
        """
        for (low, high), stamp in self._places.items():
            if low[:1] == ROWS:
                changed = rows.changed_since(low, high, stamp)
                self._keys.update(key for key in changed if not among(key, others))
            else:
                self._keys.add(low)
        self._places.clear()
