"""Why one table of PostgreSQL can't be followed, and what an operator can do about it.

Such a table stops no other one. It is reported as failed and checked again later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rowtide.connectors.sources.postgres.server import quote_name
from rowtide.core.values.errors import Rejected
from rowtide.core.values.limits import Limits
from rowtide.core.values.schema import check_column_name, is_table_name

__all__ = [
    "CatalogRow",
    "PostgresIndex",
    "UnfitPostgresTable",
    "grants",
    "key_of",
    "unfit_columns",
    "unfit_rows",
    "unfit_target",
]

KEY_COLUMNS_MAX = 4
"""The limit of a table of rowtide."""

FULL, NOTHING, BY_INDEX = "f", "n", "i"
LEAVE_OUT = "leave the table out with 'except'"


class UnfitPostgresTable(NamedTuple):
    """A table that can't be followed now. ``target`` would be its name in rowtide."""

    full_name: str
    target: str
    reason: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.full_name} can't be followed: {self.reason} {self.remedy}"


class CatalogRow(NamedTuple):
    """A table as the catalog has it.

    ``kind`` is ``r``, ``p`` for a partitioned table, ``u`` for an unlogged one.
    ``policy`` is empty unless row level security hides rows from the role; it is
    ``forced`` if the role owns the table. ``usable`` is about its schema. ``estimate`` is
    the server's estimate of its rows, -1 if unknown. ``within`` has the full names of the
    partitioned tables that it is a part of.
    """

    oid: int
    schema: str
    name: str
    file: int
    identity: str
    kind: str
    policy: str
    usable: bool
    readable: bool
    owned: bool
    estimate: int
    within: Sequence[str]

    @property
    def full_name(self) -> str:
        return f"{self.schema}.{self.name}"

    @property
    def quoted(self) -> str:
        return quote_name(self.schema, self.name)


class PostgresIndex(NamedTuple):
    """A unique index that is checked at once, over plain columns."""

    name: str
    primary: bool
    identity: bool
    columns: Sequence[str]
    not_null: bool


Fault = tuple[str, str]
"""A reason and a remedy."""


def unfit_rows(row: CatalogRow, user: str) -> Fault | None:
    """Return why the rows of a table can't be read or streamed, None if they can."""
    role = quote_name(user)
    if row.kind == "u":
        return "It is unlogged.", f"Run ALTER TABLE {row.quoted} SET LOGGED, or {LEAVE_OUT}."
    if row.identity == NOTHING:
        return (
            "Its REPLICA IDENTITY is NOTHING, so the stream does not name rows that change.",
            f"Run ALTER TABLE {row.quoted} REPLICA IDENTITY DEFAULT.",
        )
    if lacking := grants(row, user):
        return f"The role {user} may not read it.", f"Run {' '.join(lacking)}"
    if row.policy == "forced":
        return (
            f"Its row level security is forced, so it hides rows from its owner {user}.",
            f"Run ALTER TABLE {row.quoted} NO FORCE ROW LEVEL SECURITY, or as a superuser "
            f"ALTER ROLE {role} BYPASSRLS.",
        )
    if row.policy:
        return (
            f"Row level security hides rows from the role {user}.",
            f"Run as a superuser ALTER ROLE {role} BYPASSRLS, or make the role the table's owner.",
        )
    return None


def grants(row: CatalogRow, user: str) -> list[str]:
    """Return the statements that let a role read a table, empty if it can."""
    role = quote_name(user)
    found = []
    if not row.usable:
        found.append(f"GRANT USAGE ON SCHEMA {quote_name(row.schema)} TO {role};")
    if not row.readable:
        found.append(f"GRANT SELECT ON {row.quoted} TO {role};")
    return found


def key_of(
    row: CatalogRow, indexes: Sequence[PostgresIndex], wanted: Sequence[str] | None
) -> tuple[Sequence[str], Fault | None]:
    """Return the key's columns, and why rows can't have this key, None if they can.

    ``wanted`` are the columns that the settings name.
    """
    primary = next((index.columns for index in indexes if index.primary), ())
    named = next((index.columns for index in indexes if index.identity), ())
    identity = named if row.identity == BY_INDEX else primary
    key = wanted or identity
    if wanted and not any(
        index.not_null and sorted(index.columns) == sorted(wanted) for index in indexes
    ):
        return key, (
            f"It has no unique index without NULL over {', '.join(wanted)}, the columns that "
            f"'keys' names.",
            f"Make one that is neither partial nor DEFERRABLE, or name other columns; {LEAVE_OUT}.",
        )
    if wanted and row.identity != FULL and not set(wanted) <= set(identity):
        return key, (
            f"The server does not send {', '.join(wanted)} of rows that are deleted.",
            f"Run ALTER TABLE {row.quoted} REPLICA IDENTITY FULL, or USING INDEX with a unique "
            f"index over these columns.",
        )
    if not key:
        return key, (
            "It has no primary key, or one that is DEFERRABLE.",
            f"Run ALTER TABLE {row.quoted} REPLICA IDENTITY USING INDEX with a unique index, or "
            f"REPLICA IDENTITY FULL and name the columns of a unique index under 'keys'; "
            f"{LEAVE_OUT}.",
        )
    if len(key) > KEY_COLUMNS_MAX:
        return key, (
            f"Its key has {len(key)} columns, and a table of rowtide {KEY_COLUMNS_MAX} at most.",
            f"Run ALTER TABLE {row.quoted} REPLICA IDENTITY FULL and name the columns of another "
            f"unique index under 'keys'; {LEAVE_OUT}.",
        )
    return key, None


def unfit_columns(
    row: CatalogRow,
    columns: Mapping[str, bool],
    *,
    key: Sequence[str],
    identity: Sequence[str],
    strict: bool,
) -> Fault | None:
    """Return why the columns can't be streamed, None if they can.

    ``columns`` has whether the server streams each. ``identity`` are the columns of the
    replica identity. ``strict``: the server refuses the application's own updates of a
    published table whose identity has a column that is not streamed.
    """
    for name in columns:
        try:
            check_column_name(name, Limits())
        except Rejected:
            return (
                f"Rowtide has no column with the name {name!r}.",
                f"Run ALTER TABLE {row.quoted} RENAME COLUMN; {LEAVE_OUT}.",
            )
    hidden = [name for name in key if not columns.get(name)]
    if hidden:
        return (
            f"The server does not stream the generated key column {', '.join(hidden)}.",
            f"Publish it: PostgreSQL 18 does so with publish_generated_columns = stored. Or name "
            f"the columns of another unique index under 'keys'; {LEAVE_OUT}.",
        )
    covered = columns if row.identity == FULL else identity
    hidden = [name for name in covered if not columns.get(name)]
    if strict and hidden:
        return (
            f"Its REPLICA IDENTITY has the generated column {', '.join(hidden)}, which is not "
            f"published: the server would refuse the application's UPDATE and DELETE.",
            f"Run ALTER TABLE {row.quoted} REPLICA IDENTITY DEFAULT, or publish a stored column "
            f"with publish_generated_columns = stored; {LEAVE_OUT}.",
        )
    return None


def unfit_target(row: CatalogRow, target: str, owner: str) -> Fault | None:
    """Return why a table can't have its name in rowtide. ``owner`` is the table that has it."""
    if not is_table_name(target, Limits()):
        return (
            f"Rowtide has no table with the name {target!r}: a name has 1 to 255 of a-z, A-Z, 0-9 "
            f"and '_', and no digit first.",
            f"Give it a name under 'names', such as {row.full_name}: NAME.",
        )
    if owner != row.full_name:
        return (
            f"{owner} and {row.full_name} would both be the table {target}.",
            "Give one of them another name under 'names'.",
        )
    return None
