"""The partitions of a table that is followed as one.

The stream has the changes of each row under the name of the partitioned table. It does
not have rows that come or go with a whole partition: by ATTACH, DETACH, DROP, or TRUNCATE
of one partition. So the state of each partition is recorded: how it was attached, and its
storage.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from rowtide.connectors.sources.postgres.server import PostgresServer, quote_name
from rowtide.connectors.sources.postgres.unfit import LEAVE_OUT, NOTHING, CatalogRow, Fault

__all__ = ["Partition", "empty_partitions", "read_partitions", "same_rows", "unfit_partitions"]


class Partition(NamedTuple):
    """A partition that has rows, at any depth.

    ``state`` changes if it is attached again, truncated or rewritten. ``key`` has the
    sorted columns of its replica identity. ``estimate`` is the server's estimate of its
    rows, -1 if unknown. It is no foreign table: a table with a key can't have such a
    partition.
    """

    oid: int
    schema: str
    name: str
    logged: bool
    identity: str
    key: Sequence[str]
    state: str
    estimate: int


def read_partitions(server: PostgresServer, oids: Sequence[int]) -> dict[int, list[Partition]]:
    """Return the partitions of partitioned tables, by table."""
    found: dict[int, list[Partition]] = {oid: [] for oid in oids}
    for oid, *partition in server.rows(_PARTITIONS, (list(oids),)):
        found[oid].append(Partition(*partition))
    return found


def unfit_partitions(
    row: CatalogRow, partitions: Sequence[Partition], identity: Sequence[str]
) -> Fault | None:
    """Return why partitions can't be followed as one table, None if they can.

    ``identity`` has the columns of the table's own replica identity.
    """
    for part in partitions:
        full_name, quoted = f"{part.schema}.{part.name}", quote_name(part.schema, part.name)
        if not part.logged:
            return (
                f"Its partition {full_name} is unlogged.",
                f"Run ALTER TABLE {quoted} SET LOGGED, or {LEAVE_OUT}.",
            )
        if part.identity == NOTHING:
            return (
                f"The REPLICA IDENTITY of its partition {full_name} is NOTHING, so the stream "
                f"does not name rows that change.",
                f"Run ALTER TABLE {quoted} REPLICA IDENTITY DEFAULT.",
            )
        if part.identity != row.identity or list(part.key) != sorted(identity):
            return (
                f"Its partition {full_name} has another REPLICA IDENTITY than the table.",
                f"Run ALTER TABLE {quoted} REPLICA IDENTITY with what {row.quoted} has.",
            )
    return None


def empty_partitions(server: PostgresServer, oids: Collection[int]) -> frozenset[int]:
    """Return which partitions have no rows and never had any."""
    if not oids:
        return frozenset()
    # A table's first file has the table's number. Each TRUNCATE changes it.
    return frozenset(oid for (oid,) in server.rows(_EMPTY, (list(oids),)))


def same_rows(kept: Mapping[str, str], now: Mapping[int, str], empty: Collection[int]) -> bool:
    """True if no row came or went with a partition since ``kept`` was recorded."""
    return all(now.get(int(oid)) == state for oid, state in kept.items()) and all(
        oid in empty for oid in now if str(oid) not in kept
    )


# The xmin of a row of pg_inherits is the transaction that attached the partition.
_PARTITIONS = """
WITH RECURSIVE part (root, oid, joined) AS (
    SELECT inhparent, inhrelid, xmin::text FROM pg_inherits
     WHERE inhparent = ANY (%s::oid[]) AND NOT inhdetachpending
    UNION ALL
    SELECT part.root, i.inhrelid, part.joined || '+' || i.xmin::text
      FROM part JOIN pg_inherits i ON i.inhparent = part.oid
     WHERE NOT i.inhdetachpending
)
SELECT root::int8, c.oid::int8, n.nspname, c.relname,
       c.relpersistence = 'p', c.relreplident::text,
       ARRAY(SELECT a.attname::text
               FROM pg_index x JOIN pg_attribute a ON a.attrelid = x.indrelid
                AND a.attnum = ANY ((x.indkey::int2[])[0:x.indnkeyatts - 1])
              WHERE x.indrelid = c.oid AND x.indisvalid AND x.indimmediate
                AND CASE c.relreplident WHEN 'i' THEN x.indisreplident ELSE x.indisprimary END
              ORDER BY a.attname::text COLLATE "C"),
       part.joined || '/' || coalesce(pg_relation_filenode(c.oid)::int8, 0), c.reltuples::int8
  FROM part JOIN pg_class c ON c.oid = part.oid JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE c.relkind <> 'p'
 ORDER BY n.nspname, c.relname
"""
_EMPTY = """
SELECT oid::int8 FROM pg_class
 WHERE oid = ANY (%s::oid[]) AND relkind = 'r' AND pg_relation_filenode(oid) = oid
   AND pg_relation_size(oid) = 0
"""
