"""The tables of a database that a source follows, read from the server's own catalog."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from typing import NamedTuple

from rowtide.connectors.rows import TableShape
from rowtide.connectors.sources.postgres.partitions import (
    Partition,
    read_partitions,
    unfit_partitions,
)
from rowtide.connectors.sources.postgres.server import PostgresServer
from rowtide.connectors.sources.postgres.type_parts import TypeParts, read_type_parts
from rowtide.connectors.sources.postgres.unfit import (
    BY_INDEX,
    FULL,
    CatalogRow,
    PostgresIndex,
    UnfitPostgresTable,
    key_of,
    unfit_columns,
    unfit_rows,
    unfit_target,
)
from rowtide.connectors.sources.postgres.values import key_type
from rowtide.core.values.schema import KeyColumn

__all__ = [
    "FULL",
    "PostgresColumn",
    "PostgresTable",
    "PostgresTables",
    "read_catalog",
    "read_table",
    "read_tables",
]

STRICT_VERSION = 180_000
"""From this version on an update fails if its replica identity has an unpublished column."""


class PostgresColumn(NamedTuple):
    """A column. ``number`` is never used again. ``type_oid`` is the base type of a
    domain.

    ``filled``: rows older than the column may have a value in it.
    """

    number: int
    name: str
    type: str
    type_oid: int
    filled: bool

    @property
    def identity(self) -> list[str]:
        """The column's identity. While it and the table's file stay the same, so do the values."""
        return [str(self.number), self.name, self.type]


class PostgresTable(NamedTuple):
    """A followed table. ``key`` has the columns by which the server identifies its rows.

    ``target`` is its name in rowtide. ``file`` changes if the table is rewritten.
    ``estimate`` is the server's estimate of its rows, -1 if unknown. ``within`` has the
    full names of the partitioned tables that it is a part of. ``parts`` has the states of
    its partitions by number, None if the table is not partitioned.
    """

    oid: int
    schema: str
    name: str
    file: int
    identity: str
    columns: tuple[PostgresColumn, ...]
    key: tuple[PostgresColumn, ...]
    target: str
    types: Sequence[TypeParts]
    estimate: int
    within: Sequence[str]
    parts: Mapping[int, str] | None

    @property
    def full_name(self) -> str:
        return f"{self.schema}.{self.name}"

    @property
    def key_names(self) -> Sequence[str]:
        """The columns of the key in rowtide's order."""
        return [column.name for column in self.key]

    @property
    def shape(self) -> TableShape:
        """The table as rowtide has it."""
        parts = [KeyColumn(column.name, key_type(column.type_oid)) for column in self.key]
        return TableShape(self.target, tuple(parts))


class PostgresTables(NamedTuple):
    """The wanted tables, by full name: those that can be followed, and the others."""

    fit: dict[str, PostgresTable]
    unfit: dict[str, UnfitPostgresTable]


def read_tables(
    server: PostgresServer, owners: MutableMapping[str, str], *, generated: bool
) -> PostgresTables:
    """Return the wanted tables.

    ``owners`` has the full name of the table that is followed under each name of
    rowtide's. It is updated: a table that has its name keeps it. ``generated``: the
    server streams stored generated columns.
    """
    with server.one_moment():
        rows = read_catalog(server)
        found = _tables(server, rows, generated=generated)
    for target, owner in list(owners.items()):
        if owner not in found.fit:
            owners.pop(target, None)
    by_name = {row.full_name: row for row in rows}
    for name, table in list(found.fit.items()):
        owner = owners.setdefault(table.target, name)
        fault = unfit_target(by_name[name], table.target, owner)
        if fault is not None:
            found.unfit[name] = UnfitPostgresTable(name, table.target, *fault)
            del found.fit[name]
            if owner == name:
                del owners[table.target]
    return found


def read_catalog(server: PostgresServer) -> list[CatalogRow]:
    """Return the wanted tables. A partition belongs to a wanted partitioned table."""
    wants = server.settings.wants
    rows = [CatalogRow(*row) for row in server.rows(_TABLES)]
    return [row for row in rows if wants(row.full_name) and not any(map(wants, row.within))]


def read_table(
    server: PostgresServer, oid: int, *, generated: bool
) -> PostgresTable | UnfitPostgresTable | None:
    """Return a table as it is now, None if it was dropped or is not wanted."""
    with server.one_moment():
        rows = [row for row in read_catalog(server) if row.oid == oid]
        found = _tables(server, rows, generated=generated)
    if not rows:
        return None
    return found.fit.get(rows[0].full_name) or found.unfit[rows[0].full_name]


class _Columns(NamedTuple):
    """The columns of one table. ``names`` has whether the server streams each."""

    streamed: list[PostgresColumn]
    names: dict[str, bool]


def _tables(
    server: PostgresServer, rows: Sequence[CatalogRow], *, generated: bool
) -> PostgresTables:
    oids = [row.oid for row in rows]
    columns = _columns(server, oids, generated=generated)
    indexes: dict[int, list[PostgresIndex]] = {}
    for oid, *index in server.rows(_INDEXES, (oids,)):
        indexes.setdefault(oid, []).append(PostgresIndex(*index))
    types = read_type_parts(server, oids)
    partitions = read_partitions(server, [row.oid for row in rows if row.kind == "p"])
    found = PostgresTables({}, {})
    for row in rows:
        table = _table(
            server,
            row,
            columns.get(row.oid, _Columns([], {})),
            indexes.get(row.oid, []),
            types.get(row.oid, []),
            partitions.get(row.oid),
        )
        if isinstance(table, UnfitPostgresTable):
            found.unfit[row.full_name] = table
        else:
            found.fit[row.full_name] = table
    return found


def _columns(
    server: PostgresServer, oids: Sequence[int], *, generated: bool
) -> dict[int, _Columns]:
    found: dict[int, _Columns] = {}
    for oid, kind, *column in server.rows(_COLUMNS, (oids,)):
        of_table = found.setdefault(oid, _Columns([], {}))
        streamed = kind == "" or (generated and kind == "s")
        of_table.names[column[1]] = streamed
        if streamed:
            of_table.streamed.append(PostgresColumn(*column))
    return found


def _table(
    server: PostgresServer,
    row: CatalogRow,
    columns: _Columns,
    indexes: Sequence[PostgresIndex],
    types: Sequence[TypeParts],
    partitions: Sequence[Partition] | None,
) -> PostgresTable | UnfitPostgresTable:
    settings = server.settings
    target = settings.target(row.schema, row.name)
    names, fault = key_of(row, indexes, settings.keys.get(row.full_name))
    identity = _identity(row, indexes)
    fault = (
        unfit_rows(row, settings.user)
        or fault
        or unfit_partitions(row, partitions or (), identity)
        or unfit_columns(
            row,
            columns.names,
            key=names,
            identity=identity,
            strict=server.version >= STRICT_VERSION,
        )
    )
    if fault is not None:
        return UnfitPostgresTable(row.full_name, target, *fault)
    by_name = {column.name: column for column in columns.streamed}
    return PostgresTable(
        row.oid,
        row.schema,
        row.name,
        row.file,
        row.identity,
        tuple(columns.streamed),
        tuple(by_name[name] for name in names),
        target,
        types,
        row.estimate if partitions is None else _estimate(partitions),
        row.within,
        None if partitions is None else {part.oid: part.state for part in partitions},
    )


def _estimate(partitions: Sequence[Partition]) -> int:
    known = [part.estimate for part in partitions if part.estimate >= 0]
    return sum(known) if known else -1


def _identity(row: CatalogRow, indexes: Iterable[PostgresIndex]) -> Sequence[str]:
    by_index = row.identity == BY_INDEX
    of_index: Mapping[bool, Sequence[str]] = {
        index.identity if by_index else index.primary: index.columns for index in indexes
    }
    return of_index.get(True, ())


_TABLES = """
SELECT c.oid::int8, n.nspname, c.relname, coalesce(pg_relation_filenode(c.oid)::int8, 0),
       c.relreplident::text, CASE c.relpersistence WHEN 'p' THEN c.relkind::text ELSE 'u' END,
       CASE WHEN NOT row_security_active(c.oid) THEN ''
            WHEN pg_has_role(c.relowner, 'USAGE') THEN 'forced' ELSE 'active' END,
       coalesce(has_schema_privilege(n.oid, 'USAGE'), true),
       coalesce(has_table_privilege(c.oid, 'SELECT'), true), pg_has_role(c.relowner, 'USAGE'),
       c.reltuples::int8,
       ARRAY(SELECT an.nspname || '.' || a.relname
               FROM pg_partition_ancestors(CASE WHEN c.relispartition THEN c.oid END) above (oid)
               JOIN pg_class a ON a.oid = above.oid JOIN pg_namespace an ON an.oid = a.relnamespace
              WHERE a.oid <> c.oid)
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
SELECT attrelid::int8, attgenerated::text, attnum, attname, format_type(atttypid, atttypmod),
       base.type::int8, attnotnull OR atthasdef OR atthasmissing
  FROM pg_attribute JOIN base ON base.oid = atttypid
 WHERE attrelid = ANY (%s::oid[]) AND attnum > 0 AND NOT attisdropped
 ORDER BY attrelid, attnum
"""
# With a deferred index two rows may have one key for a while, and the second would
# replace both.
_INDEXES = """
SELECT i.indrelid::int8, c.relname, i.indisprimary, i.indisreplident,
       array_agg(a.attname::text ORDER BY k.place), bool_and(a.attnotnull)
  FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
 CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY AS k(number, place)
  JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
 WHERE i.indrelid = ANY (%s::oid[]) AND i.indisunique AND i.indisvalid AND i.indimmediate
   AND i.indpred IS NULL AND i.indexprs IS NULL AND k.place <= i.indnkeyatts
 GROUP BY i.indexrelid, i.indrelid, c.relname, i.indisprimary, i.indisreplident
 ORDER BY c.relname
"""
