"""The tables of a server that a source follows, read from the server's own schema."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rowtide.connectors.fields import SettingsRefused
from rowtide.connectors.mysql.source_schema import KNOWN, Column, SourceTable, unfit_key
from rowtide.connectors.mysql.source_server import Server
from rowtide.connectors.source_tables import clashes

__all__ = ["followed_table", "followed_tables"]

KEY_COLUMNS_MAX = 4
"""A table of rowtide has no more."""

_SYSTEM = ("information_schema", "mysql", "performance_schema", "sys")

_TABLES = (
    "SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE FROM information_schema.TABLES"
    " WHERE TABLE_TYPE IN ('BASE TABLE', 'SYSTEM VERSIONED')"
)
_COLUMNS = (
    "SELECT COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, IS_NULLABLE, COLUMN_DEFAULT, CHARACTER_SET_NAME,"
    " EXTRA FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s"
    " ORDER BY ORDINAL_POSITION"
)
_INDEXES = (
    "SELECT INDEX_NAME, COLUMN_NAME, SUB_PART FROM information_schema.STATISTICS"
    " WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s AND NON_UNIQUE = 0"
    " ORDER BY INDEX_NAME <> 'PRIMARY', INDEX_NAME, SEQ_IN_INDEX"
)
_CASCADES = (
    "SELECT CONSTRAINT_NAME FROM information_schema.REFERENTIAL_CONSTRAINTS"
    " WHERE CONSTRAINT_SCHEMA = %s AND TABLE_NAME = %s"
    " AND (DELETE_RULE IN ('CASCADE', 'SET NULL', 'SET DEFAULT')"
    " OR UPDATE_RULE IN ('CASCADE', 'SET NULL', 'SET DEFAULT'))"
)


def followed_tables(server: Server) -> dict[str, SourceTable]:
    """Return the tables that are wanted, by full name. Raises SettingsRefused."""
    found: dict[str, SourceTable] = {}
    faults: list[str] = []
    for database, name, kind in sorted(server.rows(_TABLES)):
        if database not in _SYSTEM and server.settings.wants(database, name):
            try:
                table = _table(server, database, name, kind)
            except SettingsRefused as error:
                faults.append(str(error))
            else:
                found[table.full_name] = table
    faults += clashes(found.values())
    if faults:
        raise SettingsRefused(" ".join(faults))
    return found


def followed_table(server: Server, database: str, name: str) -> SourceTable | None:
    """Return a table as it is now, None where there is none. Raises SettingsRefused."""
    query = _TABLES + " AND TABLE_SCHEMA = %s AND TABLE_NAME = %s"
    for found, table, kind in server.rows(query, (database, name)):
        # Where the server does not tell letters' cases apart, it finds others too.
        if (found, table) == (database, name):
            return _table(server, database, name, kind)
    return None


def _table(server: Server, database: str, name: str, kind: str) -> SourceTable:
    settings, full_name = server.settings, f"{database}.{name}"
    if kind != "BASE TABLE":
        raise SettingsRefused(f"{full_name} is system-versioned, which can't be followed.")
    if not settings.cascades and (found := server.rows(_CASCADES, (database, name))):
        names = ", ".join(constraint for (constraint,) in found)
        raise SettingsRefused(
            f"{full_name} has foreign keys that change it without a word in the binlog ({names}); "
            f"'cascades: true' follows it all the same, without those changes."
        )
    found_columns = server.rows(_COLUMNS, (database, name))
    columns = tuple(_columns(found_columns, server.log.no_default))
    unknown = [c.name for c in columns if c.type not in KNOWN or "COMPRESSED" in c.declared]
    if unknown:
        raise SettingsRefused(
            f"{full_name} has columns of types that can't be followed: {', '.join(unknown)}."
        )
    index, key = _key(server, database, name, {column.name: column for column in columns})
    wanted = settings.keys.get(full_name)
    by_name = {column.name: column for column in key}
    target_key = tuple(by_name[part] for part in wanted) if wanted else key
    target = settings.names.get(full_name, name)
    return SourceTable(database, name, columns, key, index, target, target_key)


def _columns(rows: Iterable[tuple[Any, ...]], no_default: Sequence[str | None]) -> Iterator[Column]:
    for name, kind, declared, nullable, default, charset, extra in rows:
        if "VIRTUAL" not in extra:  # A virtual one is computed when it is read.
            known = None if default in no_default else str(default)
            computed = "STORED" in extra or "PERSISTENT" in extra
            yield Column(name, kind, declared, nullable == "YES", known, charset or "", computed)


def _key(
    server: Server, database: str, name: str, columns: Mapping[str, Column]
) -> tuple[str, tuple[Column, ...]]:
    """Return the index that rows are told apart by, and its columns. Raises SettingsRefused."""
    full_name = f"{database}.{name}"
    wanted = server.settings.keys.get(full_name)
    indexes: dict[str, list[tuple[str, Any]]] = {}
    for index, column, part in server.rows(_INDEXES, (database, name)):
        indexes.setdefault(index, []).append((column, part))
    for index, parts in indexes.items():
        names = [column for column, _ in parts]
        if index != "PRIMARY" if wanted is None else sorted(names) != sorted(wanted):
            continue
        key = tuple(columns[column] for column in names if column in columns)
        if len(key) == len(names) and not any(column.nullable for column in key):
            _check_key(full_name, key, [column for column, part in parts if part is not None])
            return index, key
    lacking = (
        "has no primary key"
        if wanted is None
        else f"has no unique index without NULL over {', '.join(wanted)}"
    )
    raise SettingsRefused(
        f"{full_name} {lacking}, so its rows can't be told apart; leave it out under 'except', or "
        f"name the columns of a unique index under 'keys'."
    )


def _check_key(full_name: str, key: tuple[Column, ...], cut: list[str]) -> None:
    if len(key) > KEY_COLUMNS_MAX:
        raise SettingsRefused(
            f"{full_name} has a key of {len(key)} columns; the limit is {KEY_COLUMNS_MAX}."
        )
    if unfit := unfit_key(key):
        raise SettingsRefused(f"{full_name} has columns in its key that can't be one: {unfit}.")
    if cut:
        raise SettingsRefused(f"{full_name} has only the first characters of {cut[0]} in its key.")
