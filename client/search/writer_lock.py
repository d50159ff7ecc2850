"""The lock of the one process that writes an index.

It is a lock of SQLite on a file of its own: it works on every system, and ends with its process.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from rowtide.core.values.errors import Unavailable

__all__ = ["WriterLock"]


class WriterLock:
    """The lock of the index in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self._file = sqlite3.connect(
            folder / "writer.lock", timeout=0, isolation_level=None, check_same_thread=False
        )
        self.is_held = False

    def take(self) -> bool:
        """Take the lock if it is free; return True if we have it."""
        if not self.is_held:
            try:
                self._file.execute("BEGIN EXCLUSIVE")
            except sqlite3.OperationalError as error:
                if "locked" not in str(error):
                    raise Unavailable(f"The lock of a search index fails: {error}.") from error
                return False
            self.is_held = True
        return True

    def close(self) -> None:
        """Release the lock."""
        self.is_held = False
        self._file.close()
