"""The publication of a source: which tables the server sends, and since when without a
gap.

If a table was removed from the publication or restricted in it for a while, changes were
missed. Each membership has its own number at the server, which is never used again. While
a number stays, nothing was missed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple

from rowtide.connectors.fields import SettingsRefused
from rowtide.connectors.sources.postgres.server import (
    CHANGED,
    FORBIDDEN,
    UNPUBLISHABLE,
    PostgresServer,
    quote_name,
    quote_text,
)
from rowtide.connectors.sources.postgres.tables import PostgresTable
from rowtide.connectors.sources.postgres.unfit import UnfitPostgresTable

__all__ = [
    "Publication",
    "Published",
    "ensure_publication",
    "ensure_roots",
    "list_members",
    "publication",
    "publication_number",
    "publish",
    "withdraw",
]

logger = logging.getLogger(__name__)

WHOLE = "insert, update, delete, truncate"
VIA_ROOT = "publish_via_partition_root = true"


class Publication(NamedTuple):
    """A publication. ``version`` changes with its settings.

    ``whole``: it publishes every kind of change. ``own``: the source created it.
    ``generated``: it publishes stored generated columns. ``via_root``: it publishes
    changes of partitions as those of a partitioned table that it has.
    """

    oid: int
    version: str
    whole: bool
    own: bool
    generated: bool
    via_root: bool


class Published(NamedTuple):
    """A table in a publication. ``numbers`` are those of its memberships.

    ``columns`` is None if the server can't leave some out. ``listed``: by its own name.
    """

    schema: str
    name: str
    numbers: list[str]
    columns: list[str] | None
    filtered: bool
    listed: bool

    def has_all_of(self, table: PostgresTable) -> bool:
        """True if all rows and columns of a table are published."""
        names = {column.name for column in table.columns}
        return not self.filtered and (self.columns is None or names <= set(self.columns))


def publication(server: PostgresServer) -> Publication | None:
    """Return the publication as it is, None if there is none."""
    name = server.settings.publication
    found = server.rows(_PUBLICATION, (_make_comment(server), name))
    return Publication(*found[0]) if found else None


def publication_number(server: PostgresServer) -> int | None:
    """Return the number of the publication, which is never used again; None if there is none."""
    found = publication(server)
    return found.oid if found is not None else None


def ensure_publication(server: PostgresServer) -> Publication:
    """Create the publication, or repair one that the source made. Raises SettingsRefused."""
    name = server.settings.publication
    found = publication(server)
    options = f"publish = '{WHOLE}', {VIA_ROOT}"
    if server.version >= GENERATED_VERSION:
        options += ", publish_generated_columns = stored"
    if found is None:
        # Two statements sent together are one transaction, so no other session sees it
        # without its comment.
        server.run(
            f"CREATE PUBLICATION {quote_name(name)} WITH ({options});"
            f"COMMENT ON PUBLICATION {quote_name(name)} IS {quote_text(_make_comment(server))}"
        )
    elif found.own and not (
        found.whole and (found.generated or server.version < GENERATED_VERSION)
    ):
        logger.warning(
            "publication %s did not publish every change; it is set to do so again", name
        )
        server.run(f"ALTER PUBLICATION {quote_name(name)} SET ({options})")
    elif not found.whole:
        raise SettingsRefused(
            f"The publication {name} must publish {WHOLE}. Run ALTER PUBLICATION "
            f"{quote_name(name)} SET (publish = '{WHOLE}')."
        )
    else:
        return found
    return _read_again(server)


def ensure_roots(
    server: PostgresServer, found: Publication, tables: Mapping[str, PostgresTable]
) -> tuple[Publication, dict[str, UnfitPostgresTable]]:
    """Make partitioned tables be published as one. Return those that can't be."""
    roots = [table for table in tables.values() if table.parts is not None]
    if found.via_root or not roots:
        return found, {}
    name = server.settings.publication
    statement = f"ALTER PUBLICATION {quote_name(name)} SET ({VIA_ROOT})"
    if found.own:
        logger.warning("publication %s is set to publish partitions as one table", name)
        server.run(statement)
        return _read_again(server), {}
    reason = f"It is partitioned, and the publication {name} has each partition as a table."
    return found, {
        table.full_name: UnfitPostgresTable(
            table.full_name,
            table.target,
            reason,
            f"Run {statement}; or leave the table out with 'except'.",
        )
        for table in roots
    }


def _read_again(server: PostgresServer) -> Publication:
    made = publication(server)
    if made is None:
        raise SettingsRefused(
            f"Another process dropped the publication {server.settings.publication}."
        )
    return made


def publish(
    server: PostgresServer, found: Publication, tables: Mapping[str, PostgresTable]
) -> tuple[dict[str, Published], dict[str, UnfitPostgresTable]]:
    """Adapt the publication to the tables. Return its tables, and those that it can't
    have.

    A table in neither was dropped meanwhile. A table that the source added, and that is
    no longer followed, is removed: otherwise the server would restrict the application
    for replication's sake.
    """
    there = list_members(server, found)
    unfit: dict[str, UnfitPostgresTable] = {}
    changed = found.own and _take_out(server, [n for n in there if n not in tables], there)
    for name, table in tables.items():
        known = there.get(name)
        above = [] if found.own else [root for root in table.within if root in there]
        if known is None and above:
            unfit[name] = _hidden(server, table, above[0])
        elif known is None or (found.own and known.listed and not known.has_all_of(table)):
            changed = True
            if fault := _put_in(server, table, again=known is not None):
                unfit[name] = fault
    if changed:
        there = list_members(server, found)
    for name, known in there.items():
        if name in tables and not known.has_all_of(tables[name]):
            unfit[name] = _narrow(server, tables[name])
    return {name: known for name, known in there.items() if name not in unfit}, unfit


def withdraw(server: PostgresServer) -> bool:
    """Drop the publication if the source made it. True if it still exists."""
    found = publication(server)
    if found is not None and found.own:
        with suppress(FORBIDDEN):
            server.run(f"DROP PUBLICATION IF EXISTS {quote_name(server.settings.publication)}")
            return False
    return found is not None


def list_members(server: PostgresServer, found: Publication) -> dict[str, Published]:
    """Return the tables that the server sends, by full name."""
    newer = server.version >= SCHEMAS_VERSION
    numbers: dict[str, list[str]] = {}
    listed = set()
    arguments = (found.oid,) * (2 if newer else 1)
    for kind, schema, table, number in server.rows(_NUMBERS if newer else _LISTED, arguments):
        name = f"{schema}.{table}"
        numbers.setdefault(name, []).append(f"{found.version}/{kind}{number}")
        if kind == "t":
            listed.add(name)
    every = [f"{found.version}/all"]
    query = _PUBLISHED if newer else _OLD
    return {
        (name := f"{schema}.{table}"): Published(
            schema, table, numbers.get(name, every), columns, filtered, name in listed
        )
        for schema, table, columns, filtered in server.rows(query, (server.settings.publication,))
    }


def _put_in(
    server: PostgresServer, table: PostgresTable, *, again: bool
) -> UnfitPostgresTable | None:
    """Add a whole table to the publication. Return why it can't be added."""
    settings = server.settings
    name, quoted_table = quote_name(settings.publication), quote_name(table.schema, table.name)
    add = f"ALTER PUBLICATION {name} ADD TABLE ONLY {quoted_table}"
    drop = f"ALTER PUBLICATION {name} DROP TABLE ONLY {quoted_table};" if again else ""
    logger.info("adding %s to publication %s", table.full_name, settings.publication)
    try:
        server.run(drop + add)
    except CHANGED:
        return None  # The table was just dropped.
    except FORBIDDEN:
        return UnfitPostgresTable(
            table.full_name,
            table.target,
            f"It is not in the publication {settings.publication}, and the role {settings.user} "
            f"can't add it: only the owner of both can.",
            f"Run ALTER TABLE {quoted_table} OWNER TO {quote_name(settings.user)}; or as a "
            f"superuser {add};",
        )
    except UNPUBLISHABLE as error:
        why = " ".join(str(error).split())
        return UnfitPostgresTable(
            table.full_name,
            table.target,
            f"The publication {settings.publication} can't have it: {why}",
            f"Run {add}; or leave the table out with 'except'.",
        )
    return None


def _take_out(server: PostgresServer, names: Iterable[str], there: Mapping[str, Published]) -> bool:
    """Remove tables from the publication. True if there were any."""
    taken = [name for name in names if there[name].listed]
    publication_name = quote_name(server.settings.publication)
    for name in taken:
        table = quote_name(there[name].schema, there[name].name)
        logger.info("removing %s from publication %s: not followed", name, publication_name)
        with suppress(*UNPUBLISHABLE):
            server.run(f"ALTER PUBLICATION {publication_name} DROP TABLE ONLY {table}")
    return bool(taken)


def _hidden(server: PostgresServer, table: PostgresTable, root: str) -> UnfitPostgresTable:
    return UnfitPostgresTable(
        table.full_name,
        table.target,
        f"The publication {server.settings.publication} has its changes as those of {root}.",
        f"Name {root} under 'tables', or take it out of the publication.",
    )


def _narrow(server: PostgresServer, table: PostgresTable) -> UnfitPostgresTable:
    name = server.settings.publication
    quoted_table = quote_name(table.schema, table.name)
    return UnfitPostgresTable(
        table.full_name,
        table.target,
        f"The publication {name} has not all rows and columns of it.",
        f"Run ALTER PUBLICATION {quote_name(name)} DROP TABLE ONLY {quoted_table}; "
        f"ALTER PUBLICATION {quote_name(name)} ADD TABLE ONLY {quoted_table};",
    )


def _make_comment(server: PostgresServer) -> str:
    return f"made by rowtide for the slot {server.settings.slot}"


SCHEMAS_VERSION = 150_000
"""The first version whose publications may have whole schemas, and parts of tables."""

GENERATED_VERSION = 180_000
"""The first version whose publications may have stored generated columns."""

# The row's xmin is the transaction that last changed a setting of the publication.
_PUBLICATION = """
SELECT oid::int8, oid::text || '/' || xmin::text,
       pubinsert AND pubupdate AND pubdelete AND pubtruncate,
       coalesce(obj_description(oid, 'pg_publication') = %s, false),
       coalesce(to_jsonb(p) ->> 'pubgencols', 'n') = 's', pubviaroot
  FROM pg_publication p WHERE pubname = %s
"""
_LISTED = """
SELECT 't', n.nspname, c.relname, r.oid::text
  FROM pg_publication_rel r JOIN pg_class c ON c.oid = r.prrelid
  JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE r.prpubid = %s
"""
_NUMBERS = f"""{_LISTED}
UNION ALL
SELECT 's', n.nspname, c.relname, s.oid::text
  FROM pg_publication_namespace s JOIN pg_namespace n ON n.oid = s.pnnspid
  JOIN pg_class c ON c.relnamespace = n.oid
 WHERE s.pnpubid = %s
"""
_PUBLISHED = """
SELECT schemaname, tablename, attnames::text[], rowfilter IS NOT NULL
  FROM pg_publication_tables WHERE pubname = %s
"""
_OLD = """
SELECT schemaname, tablename, NULL, false FROM pg_publication_tables WHERE pubname = %s
"""
