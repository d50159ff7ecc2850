"""The tables of a server that a source follows, read from the server's own schema.

A table that can't be followed is an ``UnfitMySqlTable`` with the reason and a remedy. It
stops no other table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import pymysql

from rowtide.connectors.sources.mysql.schema import (
    KNOWN,
    MySqlColumn,
    MySqlTable,
    quote_name,
    select_term,
    unfit_key,
)
from rowtide.connectors.sources.mysql.server import MySqlServer
from rowtide.core.values.limits import Limits
from rowtide.core.values.schema import is_table_name

__all__ = [
    "SYSTEM",
    "MySqlTables",
    "UnfitMySqlTable",
    "find_table",
    "is_of_a_table",
    "list_tables",
    "reads_itself_alone",
    "writes_itself_alone",
]

KEY_COLUMNS_MAX = 4
"""The limit of a table of rowtide."""

_VIRTUAL = ("information_schema", "performance_schema")
SYSTEM = (*_VIRTUAL, "mysql", "sys")

_KINDS = ("BASE TABLE", "SYSTEM VERSIONED")
_TABLES = (
    "SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE, ENGINE, TABLE_ROWS FROM information_schema.TABLES"
    f" WHERE TABLE_TYPE IN ({', '.join(map(repr, _KINDS))})"
)
_NAMED = (
    "SELECT TABLE_TYPE, ENGINE FROM information_schema.TABLES"
    " WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s"
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
_TRANSACTIONAL = {"innodb", "rocksdb", "tokudb", "ndbcluster"}
_OF_THEIR_OWN = {*_TRANSACTIONAL, "myisam", "aria", "memory", "archive", "csv", "blackhole"}
"""Engines whose tables store their own rows. Others may write rows of other tables."""

_TRIGGERS = (
    "SELECT TRIGGER_NAME FROM information_schema.TRIGGERS"
    " WHERE EVENT_OBJECT_SCHEMA = %s AND EVENT_OBJECT_TABLE = %s"
)
_ME = "CONCAT('\\'', REPLACE(CURRENT_USER(), '@', '\\'@\\''), '\\'')"
_HOLDS = (
    "SELECT 1 FROM information_schema.USER_PRIVILEGES"
    f" WHERE PRIVILEGE_TYPE = %s AND GRANTEE = {_ME}"
    " UNION SELECT 1 FROM information_schema.SCHEMA_PRIVILEGES"
    f" WHERE PRIVILEGE_TYPE = %s AND GRANTEE = {_ME} AND %s LIKE TABLE_SCHEMA"
    " UNION SELECT 1 FROM information_schema.TABLE_PRIVILEGES"
    f" WHERE PRIVILEGE_TYPE = %s AND GRANTEE = {_ME} AND TABLE_SCHEMA = %s"
    " AND TABLE_NAME = %s"
)
_GONE = {1049, 1054, 1146}
_CONNECTION = {
    *(0, 1021, 1037, 1040, 1041, 1053, 1077, 1079, 1080, 1135, 1152, 1153, 1158, 1159, 1160, 1161),
    *(1184, 1203, 1205, 1213, 1226, 1317, 1820, 1862, 1927, 3169, 4031),
}
"""Errors that do not concern a table. Those from 2000 to 2999 are the client's own."""


class UnfitMySqlTable(NamedTuple):
    """A table that can't be followed: its name in rowtide, the reason, and a remedy.

    ``until_altered``: its schema does not show the reason, so only a statement about it
    ends this.
    """

    full_name: str
    target: str
    reason: str
    remedy: str
    until_altered: bool = False


class MySqlTables(NamedTuple):
    """The wanted tables, by full name."""

    fit: dict[str, MySqlTable]
    unfit: dict[str, UnfitMySqlTable]


class _Refused(Exception):
    """A table can't be followed. The arguments are the reason and the remedy."""


def list_tables(server: MySqlServer) -> MySqlTables:
    """Return the wanted tables."""
    found = MySqlTables({}, {})
    for row in sorted(server.rows(_TABLES), key=lambda row: row[:2]):
        database, name = row[:2]
        if database in SYSTEM or not server.settings.wants(database, name):
            continue
        table = _table(server, *row, others=found.fit)
        if isinstance(table, MySqlTable):
            found.fit[table.full_name] = table
        elif table is not None:
            found.unfit[table.full_name] = table
    return found


def find_table(
    server: MySqlServer, database: str, name: str, others: Mapping[str, MySqlTable]
) -> MySqlTable | UnfitMySqlTable | None:
    """Return a table as it is now, None if it does not exist. ``others`` are followed too."""
    query = _TABLES + " AND TABLE_SCHEMA = %s AND TABLE_NAME = %s"
    for row in server.rows(query, (database, name)):
        # A server that ignores letter case finds other tables too.
        if row[:2] == (database, name):
            return _table(server, *row, others=others)
    return None


def writes_itself_alone(server: MySqlServer, database: str, name: str) -> bool:
    """True if a statement that writes a table surely changes rows of no other table.

    A view, a trigger, and some engines change others. A user without permission to see
    triggers can't know. A table that does not exist was temporary, or its DROP is in the
    binlog.
    """
    if database.lower() in SYSTEM:
        return True  # System tables have no triggers.
    found = server.rows(_NAMED, (database, name))
    if not found:
        return _would_see(server, database, name)
    if any(
        kind not in _KINDS or str(engine).lower() not in _OF_THEIR_OWN for kind, engine in found
    ):
        return False
    seen = _holds(server, "TRIGGER", database, name)
    return seen and not server.rows(_TRIGGERS, (database, name))


def reads_itself_alone(server: MySqlServer, database: str, name: str) -> bool:
    """True if a statement that reads a table surely changes nothing: it is no view.

    A view may call a function that writes. A user without permission to see the table
    can't know.
    """
    if database.lower() in _VIRTUAL:
        return True  # No view can be created there.
    found = server.rows(_NAMED, (database, name))
    if not found:
        return _would_see(server, database, name)
    return all(kind in _KINDS for kind, _ in found)


def _would_see(server: MySqlServer, database: str, name: str) -> bool:
    """True if the user would surely see a table if it existed."""
    # With this setting a privilege on all databases may have exceptions.
    revokes = server.rows("SHOW VARIABLES LIKE 'partial_revokes'")
    if any(value == "ON" for _, value in revokes):
        return False
    return _holds(server, "SELECT", database, name)


def _holds(server: MySqlServer, privilege: str, database: str, name: str) -> bool:
    """True if the user surely has a privilege on a table, even if it does not exist."""
    arguments = (privilege, privilege, database, privilege, database, name)
    return bool(server.rows(_HOLDS, arguments))


def is_of_a_table(code: int) -> bool:
    """True if an error of a read concerns only its table."""
    return code not in _CONNECTION and not 2000 <= code < 3000


def _table(
    server: MySqlServer,
    database: str,
    name: str,
    kind: str,
    engine: str | None,
    rows: int | None,
    *,
    others: Mapping[str, MySqlTable],
) -> MySqlTable | UnfitMySqlTable | None:
    """Return a table, None if it was dropped meanwhile."""
    full_name = f"{database}.{name}"
    target = server.settings.names.get(full_name, name)
    try:
        table = _describe_table(server, database, name, kind, target)
        if table is None:
            return None
        _check_target(table, others)
        _probe(server, table)
    except _Refused as refused:
        return UnfitMySqlTable(full_name, target, *refused.args)
    except pymysql.err.MySQLError as error:
        code = error.args[0] if error.args else 0
        if code in _GONE:
            return None
        if not is_of_a_table(code):
            raise
        return UnfitMySqlTable(
            full_name, target, f"the server refuses to read it: {error}", _AS_SAID
        )
    transactional = (engine or "").lower() in _TRANSACTIONAL
    return table._replace(transactional=transactional, rows_estimate=rows)


_AS_SAID = "Do what the server's message asks for, or leave the table out under 'except'."
_OTHER_KEY = (
    "Name the columns of another unique index under 'keys', or leave it out under 'except'."
)


def _check_target(table: MySqlTable, others: Mapping[str, MySqlTable]) -> None:
    if not is_table_name(table.target, Limits()):
        raise _Refused(
            f"rowtide has no table names such as {table.target!r}: they are 1 to 255 letters "
            f"(a to z), digits and '_', no digit first",
            f"Give it a name in rowtide under 'names', by {table.full_name!r}.",
        )
    for other in others.values():
        if other.target == table.target and other.full_name != table.full_name:
            raise _Refused(
                f"{other.full_name} and {table.full_name} would both be the table {table.target}",
                "Give one of them another name under 'names'.",
            )


def _probe(server: MySqlServer, table: MySqlTable) -> None:
    """Read a table without rows, as a snapshot does, to check privileges and the key's index."""
    terms = ", ".join(select_term(column) for column in table.columns)
    index = quote_name(table.key_index)
    # A table that is locked for long must not delay the others. It is checked later.
    server.rows(f"SET lock_wait_timeout = {PROBE_S}")
    try:
        server.rows(
            f"SELECT {terms} FROM {quote_name(table.database)}.{quote_name(table.name)}"
            f" FORCE INDEX ({index}) LIMIT 0"
        )
    except pymysql.err.MySQLError as error:
        code = error.args[0] if error.args else 0
        if code == _NO_INDEX:
            raise _Refused(
                f"the index {table.key_index} of its key is invisible, or ignored",
                "Make the index visible, or name the columns of another one under 'keys'.",
            ) from error
        if code != _LOCKED:
            raise
    finally:
        server.rows("SET lock_wait_timeout = DEFAULT")


_LOCKED, _NO_INDEX = 1205, 1176
PROBE_S = 1
"""How long a lock is waited for."""


def _describe_table(
    server: MySqlServer, database: str, name: str, kind: str, target: str
) -> MySqlTable | None:
    settings, full_name = server.settings, f"{database}.{name}"
    if kind != "BASE TABLE":
        raise _Refused("it is system-versioned", "Leave it out under 'except'.")
    if not settings.cascades and (found := server.rows(_CASCADES, (database, name))):
        names = ", ".join(constraint for (constraint,) in found)
        raise _Refused(
            f"foreign keys change it without an entry in the binlog ({names})",
            "Set 'cascades: true' to follow it without those changes.",
        )
    found_columns = server.rows(_COLUMNS, (database, name))
    if not found_columns:
        return None
    columns = tuple(_columns(found_columns, server.log.no_default))
    unknown = [c.name for c in columns if c.type not in KNOWN or "COMPRESSED" in c.declared]
    if unknown:
        raise _Refused(
            f"it has columns of types that can't be followed: {', '.join(unknown)}",
            "Change these columns, or leave the table out under 'except'.",
        )
    index, key = _key(server, database, name, {column.name: column for column in columns})
    wanted = settings.keys.get(full_name)
    by_name = {column.name: column for column in key}
    target_key = tuple(by_name[part] for part in wanted) if wanted else key
    return MySqlTable(database, name, columns, key, index, target, target_key)


def _columns(
    rows: Iterable[tuple[Any, ...]], no_default: Sequence[str | None]
) -> Iterator[MySqlColumn]:
    for name, kind, declared, nullable, default, charset, extra in rows:
        if "VIRTUAL" not in extra:  # A virtual column is computed on read.
            known = None if default in no_default else str(default)
            computed = "STORED" in extra or "PERSISTENT" in extra
            yield MySqlColumn(
                name, kind, declared, nullable == "YES", known, charset or "", computed
            )


def _key(
    server: MySqlServer, database: str, name: str, columns: Mapping[str, MySqlColumn]
) -> tuple[str, tuple[MySqlColumn, ...]]:
    """Return the index that identifies rows, and its columns."""
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
            _check_key(key, [column for column, part in parts if part is not None])
            return index, key
    if wanted is None:
        raise _Refused("it has no primary key, so its rows can't be identified", _OTHER_KEY)
    raise _Refused(
        f"it has no unique index over {', '.join(wanted)}, without NULL and virtual columns",
        _OTHER_KEY,
    )


def _check_key(key: tuple[MySqlColumn, ...], cut: list[str]) -> None:
    if len(key) > KEY_COLUMNS_MAX:
        raise _Refused(
            f"its key has {len(key)} columns; the limit is {KEY_COLUMNS_MAX}", _OTHER_KEY
        )
    if unfit := unfit_key(key):
        raise _Refused(f"its key has columns of types that no key can have: {unfit}", _OTHER_KEY)
    if cut:
        raise _Refused(f"its key has only the first characters of {cut[0]}", _OTHER_KEY)
