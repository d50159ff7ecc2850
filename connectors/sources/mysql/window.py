"""What changed in a table while a moment of it was opened, where a server can't tell it apart.

A chunk that is read at a moment has all that is ``settled``, and may have more, up to the moment's
place. The binlog says what: rows of keys that changed there are left out of the chunk, for the
binlog's own, which are whole, are made before it. Where they are not, or are too many to remember,
the chunk is read again.
"""

from __future__ import annotations

from collections.abc import Sequence

from rowtide.connectors.rows import Key, SourceRow
from rowtide.connectors.sources.mysql.binlog import BinlogPiece
from rowtide.connectors.sources.mysql.gtids import Gtids

__all__ = ["ChunkWindow"]

KEYS_MAX = 50_000


class ChunkWindow:
    """Changes of a table of rowtide's beyond ``settled``; none where that is None."""

    def __init__(self, table: str, settled: Gtids | None) -> None:
        self._table = table
        self._settled = settled
        self.keys: set[Key] = set()
        self.unclear = False

    def note(self, piece: BinlogPiece) -> None:
        """Remember what a piece of the binlog changes."""
        if self._settled is None or not piece.rows or piece.gtid in self._settled:
            return
        for row in piece.rows:
            if row.table == self._table:
                self.keys.add(row.key)
                self.unclear = self.unclear or not row.whole
        self.unclear = self.unclear or len(self.keys) > KEYS_MAX

    def left(self, rows: Sequence[SourceRow]) -> Sequence[SourceRow]:
        """Return the rows of a chunk that did not change."""
        return [row for row in rows if row.key not in self.keys] if self.keys else rows
