"""The chunks of a shard that the next flush must write to the changelog.

The owner adds the keys of everything that it writes. While a shard opens, entries that
the rows already have are read again, because the changelog may lack their chunks. These
are only noted; ``find_noted`` then adds their chunks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from operator import itemgetter

from rowtide.core.records import record
from rowtide.core.rows.fold import Writes
from rowtide.core.shard.shard import ROWS, Shard
from rowtide.stream.log.log import Entry
from rowtide.stream.shard.replay import Range, is_among
from rowtide.stream.shard.row_store import RowStore

__all__ = ["FlushLedger"]

_key_of = itemgetter(0)


class FlushLedger:
    """The keys of one shard's chunks that changed since the last flush."""

    def __init__(self, shard: Shard) -> None:
        self.is_complete = False
        """True if ``keys`` has everything of this shard that the changelog may lack."""
        self._shard = shard
        self._keys: set[bytes] = set()
        self._places: dict[Range, int] = {}
        """The key ranges that noted entries wrote, each with its oldest stamp."""

    @property
    def keys(self) -> Set[bytes]:
        """The store keys that the next flush writes."""
        return self._keys

    def add(self, keys: Iterable[bytes]) -> None:
        """Add store keys, also those of a flush that failed."""
        self._keys.update(keys)

    def add_writes(self, writes: Writes) -> None:
        """Add the store keys of writes."""
        self._keys.update(map(_key_of, writes))

    def take(self) -> set[bytes]:
        """Return the keys for a flush, and begin a new set."""
        taken, self._keys = self._keys, set()
        return taken

    def note(self, entries: Iterable[Entry]) -> None:
        """Note the key ranges that entries wrote; add the store keys of other notes."""
        for entry in entries:
            envelope, body = record.decode_record(entry.value)
            noted = self._shard.find_note_key(body)
            if noted is not None:
                self._keys.add(noted)
            # Copied rows were written long before.
            stamp = 0 if isinstance(body, record.CopyBody) else envelope.stamp
            for place in self._shard.find_written_ranges(entry.key, body):
                self._places[place] = min(stamp, self._places.get(place, stamp))

    def find_noted(self, rows: RowStore, others: Sequence[Range]) -> None:
        """Add the chunks of each noted range that are not older than its entry.

        ``others`` are keys that now belong to another shard. The notes are dropped.
        """
        for (low, high), stamp in self._places.items():
            if low[:1] == ROWS:
                changed = rows.scan_changed(low, high, stamp)
                self._keys.update(key for key in changed if not is_among(key, others))
            else:
                self._keys.add(low)
        self._places.clear()
