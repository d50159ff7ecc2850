"""A look at the server: followed tables, unfit tables, and which tables missed changes."""

from __future__ import annotations

import logging
from collections.abc import Collection, MutableMapping
from typing import NamedTuple

from rowtide.connectors.sources.postgres.partitions import empty_partitions, same_rows
from rowtide.connectors.sources.postgres.position import PostgresCheckpoint, PostgresTableProgress
from rowtide.connectors.sources.postgres.publication import (
    Publication,
    Published,
    ensure_publication,
    ensure_roots,
    publication_number,
    publish,
)
from rowtide.connectors.sources.postgres.server import PostgresServer
from rowtide.connectors.sources.postgres.tables import PostgresTable, read_tables
from rowtide.connectors.sources.postgres.type_parts import note_types, same_values
from rowtide.connectors.sources.postgres.unfit import UnfitPostgresTable
from rowtide.connectors.sources.progress import keeps_values
from rowtide.connectors.sources.source import SourceTarget
from rowtide.core.values.errors import Rejected, Unavailable

__all__ = ["Look", "look", "make_targets", "note_tables"]

logger = logging.getLogger(__name__)


class Look(NamedTuple):
    """Wanted tables by full name: those that are published and fit, and the others.

    ``empty`` has the new partitions that never had a row.
    """

    tables: dict[str, PostgresTable]
    unfit: dict[str, UnfitPostgresTable]
    publication: Publication
    published: dict[str, Published]
    empty: Collection[int]

    def refuse(self, fault: UnfitPostgresTable) -> None:
        """Stop following a table."""
        self.tables.pop(fault.full_name, None)
        self.unfit[fault.full_name] = fault


def look(
    server: PostgresServer,
    owners: MutableMapping[str, str],
    partitions: Collection[int],
    *,
    publication: int | None = None,
) -> Look:
    """Publish the tables and return them. Blocks. For ``owners`` see ``read_tables``.

    ``partitions`` are known already. Raises SettingsRefused if no table can be published.
    Raises Unavailable if the publication with number ``publication`` was dropped: the log
    since then can't be read.
    """
    if publication is not None and publication_number(server) != publication:
        raise Unavailable(
            f"The publication {server.settings.publication} was dropped: all tables are copied "
            f"again."
        )
    made = ensure_publication(server)
    found = read_tables(server, owners, generated=made.generated)
    made, unrooted = ensure_roots(server, made, found.fit)
    fit = {name: table for name, table in found.fit.items() if name not in unrooted}
    published, unpublished = publish(server, made, fit)
    tables = {name: table for name, table in fit.items() if name in published}
    every = {oid for table in tables.values() for oid in table.parts or ()}
    empty = empty_partitions(server, every.difference(partitions))
    return Look(tables, {**found.unfit, **unrooted, **unpublished}, made, published, empty)


async def make_targets(target: SourceTarget, found: Look) -> None:
    """Create rowtide's tables. A table that rowtide refuses is unfit."""
    for table in list(found.tables.values()):
        try:
            await target.ensure_table(table.shape)
        except Rejected as error:
            found.refuse(
                UnfitPostgresTable(
                    table.full_name, table.target, error.message, _remedy(error, table)
                )
            )


def note_tables(
    checkpoint: PostgresCheckpoint, found: Look, logged: Collection[UnfitPostgresTable]
) -> list[str]:
    """Record the existing tables. Return those whose copies and reads must not continue.

    These are copied from the start, or no longer followed. ``logged`` are faults that
    were logged before.
    """
    for fault in found.unfit.values():
        if fault not in logged:
            logger.warning("%s The other tables are still followed", fault)
    others = [name for name in checkpoint.tables if name not in found.tables]
    for name in others:
        if name not in found.unfit:
            logger.warning("%s was dropped at the source; its rows in rowtide stay", name)
        del checkpoint.tables[name]
    changed = [
        name
        for name, table in found.tables.items()
        if not _goes_on(checkpoint, table, found.published[name], found.empty)
    ]
    return others + changed


def _goes_on(
    checkpoint: PostgresCheckpoint,
    table: PostgresTable,
    published: Published,
    empty: Collection[int],
) -> bool:
    """Record a table. False if it must be copied from the start."""
    name = table.full_name
    progress = checkpoint.tables.get(name)
    parts = table.parts or {}
    why = ""
    if progress is None:
        checkpoint.tables[name] = progress = PostgresTableProgress(sweep=True)
    elif progress.oid != table.oid:
        why = "is another table now"
    elif progress.published and not set(progress.published) & set(published.numbers):
        why = "was not completely in the publication for a while, so changes are missing"
    elif not same_rows(progress.parts, parts, empty):
        why = "has other partitions, or some were emptied or rewritten"
    elif not same_values(progress.types, table.types):
        why = "uses a type whose values have other names now"
    elif progress.file != table.file or not keeps_values(
        progress.columns, table.columns, lambda column: column.filled
    ):
        why = "has other columns or was rewritten"
    if why:
        logger.warning("%s %s, so it is copied again", name, why)
        # Keys may have other values now, so rows of the former keys are searched and
        # deleted.
        progress.restart(sweep=True)
    begun = bool(why) or not progress.oid
    progress.oid, progress.file = table.oid, table.file
    progress.columns = [column.identity for column in table.columns]
    progress.types, progress.published = note_types(table.types), published.numbers
    progress.parts = {str(oid): state for oid, state in parts.items()}
    return not begun


def _remedy(error: Rejected, table: PostgresTable) -> str:
    if error.code == "OTSQuotaExhausted":
        return "Delete tables of the instance that are not used, or leave some out with 'except'."
    return (
        f"Delete rowtide's table {table.target}, or give {table.full_name} another name under "
        f"'names'."
    )
