"""Which shards belong to which partition of a Faust app's tables, and what the tables must be.

A worker may count a shard's changes only into partitions that Faust assigned to it. So each shard
has one partition, and only that partition's worker reads the shard.
"""

from __future__ import annotations

import zlib
from typing import Any

__all__ = [
    "find_owned_partitions",
    "find_recovered_ends",
    "partition_of",
    "require_exact_tables",
    "table_partitions",
]


def partition_of(shard_id: str, partitions: int) -> int:
    """Return the partition of a shard, from 0 to ``partitions`` - 1. It never changes."""
    return zlib.crc32(shard_id.encode()) % partitions


def table_partitions(app: Any) -> int:
    """Return how many partitions each table of an app has; 0 if the app has no table.

    Raises ValueError if the tables differ, or if a changelog topic has another number.
    """
    counts = {table.name: table.partitions or app.conf.topic_partitions for table in tables_of(app)}
    if len(set(counts.values())) > 1:
        raise ValueError(f"All tables of an app must have the same number of partitions: {counts}")
    for table in tables_of(app):
        made = app.consumer.topic_partitions(table.changelog_topic_name)
        if made not in (None, counts[table.name]):
            raise ValueError(
                f"Topic {table.changelog_topic_name} has {made} partitions, and table {table.name} "
                f"{counts[table.name]}. The number is fixed: give the table {made} partitions."
            )
    return max(counts.values(), default=0)


def find_owned_partitions(app: Any) -> frozenset[int]:
    """Return the partitions that Faust assigned to this worker, of every table of the app."""
    actives = app.assignor.assigned_actives()
    owned = [
        {tp.partition for tp in actives if tp.topic == table.changelog_topic_name}
        for table in tables_of(app)
    ]
    return frozenset(set.intersection(*owned)) if owned else frozenset()


def find_recovered_ends(app: Any) -> dict[tuple[str, int], int]:
    """Return, by changelog partition, the offset up to which Faust has recovered it."""
    highwaters = app.tables.recovery.active_highwaters
    return {tuple(tp): last + 1 for tp, last in highwaters.items()}


def require_exact_tables(app: Any) -> None:
    """Raise ValueError if the app's settings could lose or repeat counts after a crash."""
    if app.in_transaction:
        raise ValueError(
            "processing_guarantee 'exactly_once' commits a table's changelog only with messages "
            "of a topic. Use 'at_least_once' and drop repeats by their stamp."
        )
    if app.conf.producer_threaded:
        raise ValueError("producer_threaded must be off: Kafka's answers are not seen with it.")
    if app.tables and app.conf.table_standby_replicas:
        raise ValueError(
            f"table_standby_replicas is {app.conf.table_standby_replicas} and must be 0: Faust's "
            f"recovery is not reliable with standbys."
        )
    for table in tables_of(app):
        store = str(table._store or app.conf.store)
        if not store.startswith("memory:"):
            raise ValueError(
                f"Table {table.name} has the store {store}. After a crash a store on disk may be "
                f"ahead of its changelog. Use memory://."
            )
        if table.recovery_buffer_size == 1:
            raise ValueError(
                f"Table {table.name} has recovery_buffer_size 1, with which Faust applies a "
                f"table's own changelog again. Use 2 at least."
            )


def tables_of(app: Any) -> list[Any]:
    """Return the app's tables."""
    return list(app.tables.values())
