"""Which of a table's changes a reader wants: which columns, and of which rows.

A filter is applied to the change: its key and the cells that it puts. An update that does not touch
a column, and a delete, lack that column; the filter's ``filter_if_missing`` decides then. With
selected columns, a reader does not get an update that touches none of them. It always gets puts and
deletes, because they end the old row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rowtide.core.protocol.plainbuffer import key_piece
from rowtide.core.rows.read import RowFilter
from rowtide.core.values.cell import PUT, Cell

__all__ = ["ChangeSelection"]


class ChangeSelection(NamedTuple):
    """``columns`` None means all; ``filter`` None passes every change."""

    columns: frozenset[bytes] | None = None
    filter: RowFilter | None = None

    def choose(
        self, key: Sequence[tuple[bytes, bytes]], cells: Sequence[Cell], *, merges: bool
    ) -> Sequence[Cell] | None:
        """Return the wanted cells of a change, or None if the reader does not want the change.

        ``merges``: the cells are merged into the row, so without any cell there is no change.
        """
        if self.filter is not None:
            puts = [cell for cell in cells if cell.op == PUT]
            if self.filter.choose(key_piece(key)[0], puts) is None:
                return None
        if self.columns is None:
            return cells
        kept = [cell for cell in cells if cell.name in self.columns]
        return kept if kept or not merges else None
