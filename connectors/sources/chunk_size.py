"""How many rows of a source's table are read at once: by how wide those before them were."""

from __future__ import annotations

from collections.abc import Hashable

__all__ = ["CHUNK_BYTES", "ChunkSizes"]

CHUNK_BYTES = 8 * 1024 * 1024
"""What is read at once has this and one row at most."""

FIRST_ROWS = 512
"""How wide a table's rows are is known after the first chunk."""


class ChunkSizes:
    """The sizes of chunks of any number of tables; ``rows_max`` is what one has at most."""

    def __init__(self, rows_max: int) -> None:
        self._rows_max = rows_max
        self._row_bytes: dict[Hashable, int] = {}

    def rows(self, table: Hashable) -> int:
        """Return how many rows of a table are to be read at once."""
        known = self._row_bytes.get(table)
        return max(1, min(self._rows_max, CHUNK_BYTES // known if known else FIRST_ROWS))

    def note(self, table: Hashable, rows: int, size: int) -> None:
        """Note how many bytes so many rows of a table were."""
        if rows:
            self._row_bytes[table] = size // rows + 1
