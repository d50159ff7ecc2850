"""Keys of a table that changed while a moment was opened, for servers that can't separate
them.

A chunk that is read at a moment has all that is ``settled``, and may have more, up to the
moment's place. The binlog shows what. Rows of keys that changed there are left out of the
chunk, because the binlog's own rows are whole and are written before it. If they are not
whole, or are too many to remember, the chunk is read again.
"""

from __future__ import annotations

from collections.abc import Sequence

from rowtide.connectors.rows import Key, SourceRow
from rowtide.connectors.sources.mysql.binlog import BinlogPiece
from rowtide.connectors.sources.mysql.gtids import Gtids

__all__ = ["ChunkWindow"]

KEYS_MAX = 50_000


class ChunkWindow:
    """Changes of one of rowtide's tables after ``settled``. None are recorded if it is None."""

    def __init__(self, table: str, settled: Gtids | None) -> None:
        self._table = table
        self._settled = settled
        self.keys: set[Key] = set()
        self.unclear = False

    def note(self, piece: BinlogPiece) -> None:
        """Record what a piece of the binlog changes."""
        if self._settled is None or not piece.rows or piece.gtid in self._settled:
            return
        for row in piece.rows:
            if row.table == self._table:
                self.keys.add(row.key)
                self.unclear = self.unclear or not row.whole
        self.unclear = self.unclear or len(self.keys) > KEYS_MAX

    def filter_rows(self, rows: Sequence[SourceRow]) -> Sequence[SourceRow]:
        """Return the rows of a chunk that did not change."""
        return [row for row in rows if row.key not in self.keys] if self.keys else rows
