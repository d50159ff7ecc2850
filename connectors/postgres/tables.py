"""The tables of a database that a source follows, read from the server's own catalog."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from rowtide.connectors.fields import SettingsRefused
from rowtide.connectors.postgres.server import FORBIDDEN, Server, quoted, quoted_name
from rowtide.connectors.postgres.values import key_type
from rowtide.connectors.rows import TableShape
from rowtide.connectors.source_tables import clashes
from rowtide.core.schema import KeyColumn

__all__ = [
    "Column",
    "Faulty",
    "SourceTable",
    "followed_tables",
    "publish",
    "table_by_oid",
    "withdraw",
]

logger = logging.getLogger(__name__)

KEY_COLUMNS_MAX = 4
"""A table of rowtide has no more."""

FULL = "f"


class Column(NamedTuple):
    """A column. ``number`` is never given again; ``type_oid`` is a domain's own type.

    ``filled``: rows that are older than the column may have a value there.
    """

    number: int
    name: str
    type: str
    type_oid: int
    filled: bool

    @property
    def identity(self) -> list[str]:
        """Return what rests on: while it stays, and the table's file, so do the values."""
        return [str(self.number), self.name, self.type]


class SourceTable(NamedTuple):
    """A table that is followed. ``key`` are the columns that the server names its rows by.

    ``target`` is its name in rowtide. ``file`` is another one once the table was rewritten.
    """

    oid: int
    schema: str
    name: str
    file: int
    identity: str
    columns: tuple[Column, ...]
    key: tuple[Column, ...]
    target: str

    @property
    def full_name(self) -> str:
        return f"{self.schema}.{self.name}"

    @property
    def shape(self) -> TableShape:
        """Return the table as rowtide has it."""
        parts = [KeyColumn(column.name, key_type(column.type_oid)) for column in self.key]
        return TableShape(self.target, tuple(parts))


class Faulty(SettingsRefused):
    """Tables can't be followed; ``sound`` are those that can."""

    def __init__(self, faults: Sequence[str], sound: dict[str, SourceTable]) -> None:
        super().__init__(" ".join(faults))
        self.sound = sound


def followed_tables(server: Server) -> dict[str, SourceTable]:
    """Return the tables that are wanted, by full name. Raises Faulty."""
    wanted = [row for row in server.rows(_TABLES) if server.settings.wants(f"{row[1]}.{row[2]}")]
    found: dict[str, SourceTable] = {}
    faults: list[str] = []
    for table in _tables(server, wanted, faults):
        found[table.full_name] = table
    faults += clashes(found.values())
    if faults:
        raise Faulty(faults, found)
    return found


def table_by_oid(server: Server, oid: int) -> SourceTable | None:
    """Return a table as it is now; None where it is gone or not wanted. Raises Faulty."""
    rows = [row for row in server.rows(_TABLES) if row[0] == oid]
    faults: list[str] = []
    found = _tables(server, rows, faults)
    if faults:
        raise Faulty(faults, {})
    return found[0] if found and server.settings.wants(found[0].full_name) else None


def _tables(
    server: Server, rows: Sequence[tuple[Any, ...]], faults: list[str]
) -> list[SourceTable]:
    oids = [row[0] for row in rows]
    columns: dict[int, list[Column]] = {}
    for oid, *column in server.rows(_COLUMNS, (oids,)):
        columns.setdefault(oid, []).append(Column(*column))
    keys = {(oid, kind): names for oid, kind, names in server.rows(_KEYS, (oids,))}
    found = []
    for oid, schema, name, file, identity, kind in rows:
        full_name = f"{schema}.{name}"
        names = keys.get((oid, "identity" if identity == "i" else "primary"), [])
        fault = _fault(identity, kind, names)
        if fault:
            faults.append(f"{full_name} can't be followed: {fault}")
            continue
        by_name = {column.name: column for column in columns[oid]}
        key = tuple(by_name[column] for column in names)
        target = server.settings.target(schema, name)
        every = tuple(columns[oid])
        found.append(SourceTable(oid, schema, name, file, identity, every, key, target))
    return found


def _fault(identity: str, kind: str, key: Sequence[str]) -> str:
    """Say why a table can't be followed; nothing where it can."""
    if kind == "p":
        return "it is partitioned; name its partitions instead."
    if kind == "u":
        return "it is unlogged."
    if identity == "n":
        return "its REPLICA IDENTITY is NOTHING, so the stream does not name rows that change."
    if not key:
        return (
            "it has no primary key, or one that is DEFERRABLE. ALTER TABLE ... REPLICA IDENTITY "
            "USING INDEX names a unique index instead."
        )
    if len(key) > KEY_COLUMNS_MAX:
        return f"its key has {len(key)} columns, and a table of rowtide {KEY_COLUMNS_MAX} at most."
    return ""


def publish(server: Server, tables: Mapping[str, SourceTable]) -> None:
    """Make the publication, or see that it has what is wanted. Raises SettingsRefused."""
    name = server.settings.publication
    found = server.rows(_PUBLICATION, (name,))
    wanted = ", ".join(f"ONLY {quoted_name(t.schema, t.name)}" for t in tables.values())
    if not found:
        of = f" FOR TABLE {wanted}" if wanted else ""
        # Two statements sent together are one transaction: who sees it sees whose it is.
        server.run(
            f"CREATE PUBLICATION {quoted_name(name)}{of};"
            f"COMMENT ON PUBLICATION {quoted_name(name)} IS {quoted(_made_for(server))}"
        )
        return
    if not all(found[0]):
        raise SettingsRefused(
            f"The publication {name} must publish insert, update, delete and truncate."
        )
    newer = server.rows("SELECT current_setting('server_version_num')::int >= 150000")[0][0]
    there: set[str] = set()
    for schema, table, columns, filtered in server.rows(_PUBLISHED if newer else _OLD, (name,)):
        full_name = f"{schema}.{table}"
        there.add(full_name)
        if full_name in tables and (
            filtered or (columns is not None and len(columns) < len(tables[full_name].columns))
        ):
            raise SettingsRefused(
                f"The publication {name} has not all rows and columns of {full_name}."
            )
    missing = [table for full_name, table in tables.items() if full_name not in there]
    if missing:
        added = ", ".join(f"ONLY {quoted_name(t.schema, t.name)}" for t in missing)
        logger.info("publication %s gets %s", name, added)
        server.run(f"ALTER PUBLICATION {quoted_name(name)} ADD TABLE {added}")


def withdraw(server: Server) -> bool:
    """Drop the publication if ``publish`` made it; return whether one is left."""
    name = server.settings.publication
    found = server.rows(_MADE_FOR, (name,))
    if found == [(_made_for(server),)]:
        with suppress(FORBIDDEN):
            server.run(f"DROP PUBLICATION IF EXISTS {quoted_name(name)}")
            return False
    return bool(found)


def _made_for(server: Server) -> str:
    return f"made by rowtide for the slot {server.settings.slot}"


_MADE_FOR = "SELECT obj_description(oid, 'pg_publication') FROM pg_publication WHERE pubname = %s"
_TABLES = """
SELECT c.oid::int8, n.nspname, c.relname, coalesce(pg_relation_filenode(c.oid)::int8, 0),
       c.relreplident::text, CASE c.relpersistence WHEN 'p' THEN c.relkind::text ELSE 'u' END
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE c.relkind IN ('r', 'p') AND c.relpersistence <> 't'
   AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast')
 ORDER BY n.nspname, c.relname
"""
_COLUMNS = """
WITH RECURSIVE base AS (
    SELECT oid, oid AS type FROM pg_type WHERE typtype <> 'd'
    UNION ALL
    SELECT t.oid, base.type FROM pg_type t JOIN base ON t.typbasetype = base.oid
)
SELECT attrelid::int8, attnum, attname, format_type(atttypid, atttypmod), base.type::int8,
       attnotnull OR atthasdef OR atthasmissing
  FROM pg_attribute JOIN base ON base.oid = atttypid
 WHERE attrelid = ANY (%s::oid[]) AND attnum > 0 AND NOT attisdropped AND attgenerated = ''
 ORDER BY attrelid, attnum
"""
_KEYS = """
SELECT i.indrelid::int8, kind, array_agg(a.attname::text ORDER BY k.place)
  FROM pg_index i
 CROSS JOIN LATERAL (SELECT 'primary' WHERE i.indisprimary
                     UNION ALL SELECT 'identity' WHERE i.indisreplident) AS kinds(kind)
 CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY AS k(number, place)
  JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
 WHERE i.indrelid = ANY (%s::oid[]) AND i.indisvalid AND k.place <= i.indnkeyatts
   AND i.indimmediate  -- Two rows may have one key for a while: the second would be taken for both.
 GROUP BY i.indrelid, kind
"""
_PUBLICATION = """
SELECT pubinsert, pubupdate, pubdelete, pubtruncate FROM pg_publication WHERE pubname = %s
"""
_PUBLISHED = """
SELECT schemaname, tablename, attnames, rowfilter IS NOT NULL
  FROM pg_publication_tables WHERE pubname = %s
"""
_OLD = """
SELECT schemaname, tablename, NULL, false FROM pg_publication_tables WHERE pubname = %s
"""
