"""Opens the rows that are left in a directory, for a slot's owner or a standby."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterable
from pathlib import Path

from rowtide.core.shard.mark import mark_key
from rowtide.core.values.schema import ShardRange, Table
from rowtide.stream.shard.row_store import RowStore, StoreDamaged, destroy, remove_leftover
from rowtide.stream.slot.failures import log_failures

__all__ = ["find_begun", "find_known_shards", "local_rows", "remove_old", "unseen"]

logger = logging.getLogger(__name__)

WRITE_BUFFER_BYTES = 16 * 1024 * 1024
AHEAD_S_MAX = 60.0
"""A clock is set back by less than this while it is kept in step with others."""


def local_rows(
    path: Path, *, kept_s: float, write_buffer_bytes: int = WRITE_BUFFER_BYTES
) -> RowStore:
    """Open the rows in a directory; empty if the changelog may no longer have what they lack.

    The changelog keeps removals for at least ``kept_s``. The age of the rows is the time
    noted in them, by this machine's clock. The rows are also empty if RocksDB finds them
    damaged, because they are a copy. Raises ``StoreFailed``.
    """
    remove_leftover(path)
    try:
        rows = RowStore(path, write_buffer_bytes=write_buffer_bytes)
    except StoreDamaged as error:
        logger.warning("local rows are damaged, rebuilding from Kafka: %s", error)
        destroy(path)
        rows = RowStore(path, write_buffer_bytes=write_buffer_bytes)
    read_s = rows.changelog_time()
    if read_s is not None and (why := _find_distrust(time.time() - read_s, kept_s)):
        logger.warning("%s: local rows are %s, rebuilding from Kafka", path, why)
        rows.close(flush=False)
        destroy(path)
        rows = RowStore(path, write_buffer_bytes=write_buffer_bytes)
    return rows


def remove_old(path: Path, kept_s: float) -> float:
    """Remove rows that were not opened for ``kept_s``: they would be rebuilt anyway.

    Return for how many more seconds they are kept; infinity if there are none.
    """
    try:
        age_s = time.time() - path.stat().st_mtime
    except FileNotFoundError:
        return math.inf
    if age_s < kept_s:
        return kept_s - age_s
    with log_failures(f"rows at {path} that are too old to be used"):
        destroy(path)
        return math.inf
    return kept_s


def _find_distrust(age_s: float, kept_s: float) -> str:
    """Return why rows that equalled the changelog ``age_s`` ago are deleted, or ""."""
    if age_s > kept_s:
        return "too old"
    # One of the two clocks, then or now, was wrong: the rows may be of any age.
    return "of a time that lies ahead" if age_s < -AHEAD_S_MAX else ""


def find_known_shards(rows: RowStore) -> frozenset[str] | None:
    """Return the shards of which a store has rows before it reads more; None: it is empty."""
    if rows.changelog_position() is None:
        return None
    return frozenset(shard_id for shard_id, _ in rows.marks())


def find_begun(
    rows: RowStore, coming: Iterable[tuple[Table, ShardRange]]
) -> list[tuple[Table, ShardRange]]:
    """Return those of the shards ``coming`` to a slot of which its rows have some."""
    return [pair for pair in coming if rows.get(mark_key(pair[1].shard_id)) is not None]


def unseen(known: frozenset[str] | None, shards: Iterable[tuple[Table, ShardRange]]) -> list[str]:
    """Return the shards whose keys came to the slot unseen by a store with other rows.

    ``shards`` are the live ones, and those still coming of which rows are here.

    Such a store may have older rows in their place that no tombstone names: it must be
    deleted.
    """
    if known is None:
        return []
    return [
        shard.shard_id
        for _, shard in shards
        if shard.came and not shard.sealed_us and shard.shard_id not in known
    ]
