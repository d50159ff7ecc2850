"""How many rows of a source's table to read at once, by the size of earlier rows."""

from __future__ import annotations

from collections.abc import Hashable

__all__ = ["CHUNK_BYTES", "ChunkSizes"]

CHUNK_BYTES = 8 * 1024 * 1024
"""A chunk has at most this many bytes and one row more."""

FIRST_ROWS = 512
"""Rows of a table's first chunk, before the size of its rows is known."""


class ChunkSizes:
    """The sizes of chunks of any number of tables. ``rows_max`` bounds a chunk."""

    def __init__(self, rows_max: int) -> None:
        self._rows_max = rows_max
        self._row_bytes: dict[Hashable, int] = {}

    def rows(self, table: Hashable) -> int:
        """Return how many rows of a table to read at once."""
        known = self._row_bytes.get(table)
        return max(1, min(self._rows_max, CHUNK_BYTES // known if known else FIRST_ROWS))

    def note(self, table: Hashable, rows: int, size: int) -> None:
        """Record the size in bytes of a number of rows."""
        if rows:
            self._row_bytes[table] = size // rows + 1
