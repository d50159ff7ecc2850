"""Folds the valid entries of a shard's log into the rows.

All writes to the rows are in the ledger of the next flush, and every observer has seen
them. Readers find the entries in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rowtide.core.rows.fold import Writes
from rowtide.core.shard.shard import Shard
from rowtide.core.values.errors import Unavailable
from rowtide.stream.log.log import Entry
from rowtide.stream.shard.flush_ledger import FlushLedger
from rowtide.stream.shard.log_readers import LogReaders
from rowtide.stream.shard.replay import Range, replay, take
from rowtide.stream.shard.row_store import RowStore

__all__ = ["LogFold"]

WriteObserver = Callable[[Writes], None]


class LogFold:
    """The fold of one shard's log into ``rows``."""

    def __init__(self, shard: Shard, rows: RowStore) -> None:
        self.ledger = FlushLedger(shard)
        self.readers = LogReaders()
        self.others: Callable[[], Sequence[Range]] = tuple
        """Keys that now belong to another shard here: the log's changes of them are skipped."""
        self.index_known: Callable[[int], bool] = lambda _: False
        """True if an index with this number may exist that ``shard`` does not have."""
        self._shard = shard
        self._rows = rows
        self._observers: list[WriteObserver] = []

    def replay(self, entries: Sequence[Entry]) -> None:
        """Fold entries of the log into the rows, in one write.

        Raises ``Unavailable`` if an entry is a later owner's: this one steps down. Raises
        it too if an entry names an index that was created since the table was looked up:
        an owner that was paused, and now has a successor, would skip the index's rows.
        Then nothing is written, and the shard must not be used again.
        """
        shard = self._shard
        shard.indexes.passed_over.clear()
        writes, claim = replay(shard, entries)
        for number in filter(self.index_known, shard.indexes.passed_over):
            raise Unavailable(f"the log of {shard.shard_id} names index {number}, created since")
        self.readers.add_applied(entries)
        self.write(writes)
        if claim > shard.claim >= 0:
            raise Unavailable(f"shard {shard.shard_id} has a later owner; this one steps down")

    def recover(self, entries: Sequence[Entry], *, never: bool) -> None:
        """Fold entries that the rows may already have, and the changelog lack.

        Entries up to the mark are only noted. If the changelog ``never`` had anything of
        the shard, all are noted: the rows may have them without a mark.
        ``find_unflushed`` ends it.
        """
        applied = self._shard.state.applied
        self.ledger.note(e for e in entries if never or e.offset <= applied)
        self.replay([e for e in entries if e.offset > applied])

    def find_unflushed(self) -> None:
        """Add the chunks of noted entries to the next flush."""
        self.ledger.find_noted(self._rows, self.others())

    def write(self, writes: Writes) -> None:
        """Write the changes of entries, with the shard's mark."""
        taken = take(self._shard, self._rows, writes, self.others())
        self.ledger.add_writes(taken)
        for observe in self._observers:
            observe(taken)

    def add_write_observer(self, observe: WriteObserver) -> None:
        """Call ``observe`` with all writes to the rows from now on."""
        self._observers.append(observe)

    def remove_write_observer(self, observe: WriteObserver) -> None:
        """Stop calling ``observe``, if it was added."""
        self._observers = [o for o in self._observers if o != observe]
