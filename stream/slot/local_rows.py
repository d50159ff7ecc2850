"""Opens the rows that are left in a directory, for their owner or for who keeps a copy."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterable
from pathlib import Path

from rowtide.core.shard.mark import mark_key
from rowtide.core.values.schema import ShardRange, Table
from rowtide.stream.shard.row_store import RowStore, StoreDamaged, destroy, remove_leftover
from rowtide.stream.slot.failures import logged

__all__ = ["begun", "known_shards", "local_rows", "remove_old", "unseen"]

logger = logging.getLogger(__name__)

WRITE_BUFFER_BYTES = 16 * 1024 * 1024
AHEAD_S_MAX = 60.0
"""A clock is set back by less than this as it is kept in step with others."""


def local_rows(
    path: Path, *, kept_s: float, write_buffer_bytes: int = WRITE_BUFFER_BYTES
) -> RowStore:
    """Open the rows in a directory, empty where they lack what the changelog may have dropped.

    It keeps what is removed for ``kept_s`` at least: the rows are as old as the time noted in them
    says, by this machine's clock. Empty too where RocksDB finds them damaged: they are a copy.
    Raises ``StoreFailed``.
    """
    remove_leftover(path)
    try:
        rows = RowStore(path, write_buffer_bytes=write_buffer_bytes)
    except StoreDamaged as error:
        logger.warning("local rows are damaged, rebuilding from Kafka: %s", error)
        destroy(path)
        rows = RowStore(path, write_buffer_bytes=write_buffer_bytes)
    read_s = rows.changelog_time()
    if read_s is not None and (why := _untrusted(time.time() - read_s, kept_s)):
        logger.warning("%s: local rows are %s, rebuilding from Kafka", path, why)
        rows.close(flush=False)
        destroy(path)
        rows = RowStore(path, write_buffer_bytes=write_buffer_bytes)
    return rows


def remove_old(path: Path, kept_s: float) -> float:
    """Remove rows that nobody has opened for ``kept_s``: they would be made anew all the same.

    Return for how many seconds more they are kept; infinity where there are none.
    """
    try:
        age_s = time.time() - path.stat().st_mtime
    except FileNotFoundError:
        return math.inf
    if age_s < kept_s:
        return kept_s - age_s
    with logged(f"rows at {path} that are too old to be used"):
        destroy(path)
        return math.inf
    return kept_s


def _untrusted(age_s: float, kept_s: float) -> str:
    """Return why rows that were as the changelog says ``age_s`` ago are thrown away, or ""."""
    if age_s > kept_s:
        return "too old"
    # By which of the two clocks, then or now, nobody knows: they may be of any age.
    return "of a time that lies ahead" if age_s < -AHEAD_S_MAX else ""


def known_shards(rows: RowStore) -> frozenset[str] | None:
    """Return the shards of which a store has rows before it reads more; None: it is empty."""
    if rows.changelog_position() is None:
        return None
    return frozenset(shard_id for shard_id, _ in rows.marks())


def begun(
    rows: RowStore, coming: Iterable[tuple[Table, ShardRange]]
) -> list[tuple[Table, ShardRange]]:
    """Return those of the shards ``coming`` to a slot of which its rows have some."""
    return [pair for pair in coming if rows.get(mark_key(pair[1].shard_id)) is not None]


def unseen(known: frozenset[str] | None, shards: Iterable[tuple[Table, ShardRange]]) -> list[str]:
    """Return the shards whose keys came to the slot unseen by a store that had others.

    ``shards`` are those that live, and those that are still coming, where they have ``begun``.

    Such a store may have rows in their place of an earlier time that nobody's tombstones name: it
    is to be thrown away.
    """
    if known is None:
        return []
    return [
        shard.shard_id
        for _, shard in shards
        if shard.came and not shard.sealed_us and shard.shard_id not in known
    ]
