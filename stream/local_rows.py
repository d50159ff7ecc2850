"""Opens the rows that are left in a directory, for their owner or for who keeps a copy."""

from __future__ import annotations

import logging
import time
from pathlib import Path

from rowtide.stream.row_store import RowStore, destroy

__all__ = ["local_rows"]

logger = logging.getLogger(__name__)

WRITE_BUFFER_BYTES = 16 * 1024 * 1024


def local_rows(
    path: Path, *, kept_s: float, write_buffer_bytes: int = WRITE_BUFFER_BYTES
) -> RowStore:
    """Open the rows in a directory, empty where they lack what the changelog may have dropped."""
    rows = RowStore(path, write_buffer_bytes=write_buffer_bytes)
    read_s = rows.changelog_time()
    if read_s is not None and time.time() - read_s > kept_s:
        logger.warning("%s: local rows are too old, rebuilding from Kafka", path)
        rows.close(flush=False)
        destroy(path)
        rows = RowStore(path, write_buffer_bytes=write_buffer_bytes)
    return rows
