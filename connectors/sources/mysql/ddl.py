"""The meaning of the binlog's statements for tables.

The columns in a statement are not parsed. After a change the server reports the table as
it is, possibly after further statements. So a statement's effect on values is decided
here. A statement that is not known to be harmless is ``UNCLEAR``: every table is read
again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from typing import NamedTuple

from rowtide.connectors.sources.mysql.alter import Effect, effects
from rowtide.connectors.sources.mysql.words import Name, Reader, Token, UnknownForm, tokens
from rowtide.connectors.sources.mysql.writes import find_target, query_part, read_tables

__all__ = ["UNCLEAR", "Meaning", "What", "meanings", "meanings_of"]


class What(Enum):
    """What happened to a table."""

    CREATED = "created"
    ALTERED = "altered"
    """It keeps its rows. A table that was not followed may have some."""
    RESHAPED = "reshaped"
    """Altered, and its rows may have other values in columns of the same names and types."""
    EMPTIED = "emptied"
    DROPPED = "dropped"
    REPLACED = "replaced"
    """It may have other rows or not exist: it was renamed, or lost partitions."""
    WRITTEN = "written"
    """A statement was logged instead of its rows. It writes only this table."""
    READ = "read"
    """A statement that was logged instead of its rows reads it. A view may write other tables."""
    UNHOOKED = "unhooked"
    """A trigger or view was dropped. By it earlier statements may have written other tables."""
    UNCLEAR = "unclear"
    """Rows of any table may have changed, and any table may have another shape."""


class Meaning(NamedTuple):
    """A table and what a statement did to it. An empty table means all of the database.

    ``UNHOOKED`` and ``UNCLEAR`` have two empty names.
    """

    what: What
    database: str
    table: str


UNCLEAR = Meaning(What.UNCLEAR, "", "")
_UNHOOKED = Meaning(What.UNHOOKED, "", "")

_OTHER_OBJECTS = {
    *("ALGORITHM", "SQL", "DEFINER", "VIEW", "TRIGGER", "PROCEDURE", "FUNCTION", "AGGREGATE"),
    *("EVENT", "USER", "ROLE", "SERVER", "SEQUENCE", "TABLESPACE", "LOGFILE", "UNDO", "RESOURCE"),
    *("PACKAGE", "LIBRARY", "INSTANCE", "PREPARE", "DATABASE", "SCHEMA"),
}
"""What CREATE, ALTER and DROP can name besides tables and indexes, and words before it."""

_HARMLESS = {
    *("GRANT", "REVOKE", "FLUSH", "OPTIMIZE", "SAVEPOINT", "RELEASE", "BEGIN", "COMMIT", "START"),
    *("USE", "INSTALL", "UNINSTALL", "SHUTDOWN", "KILL", "RESET", "PURGE", "CHANGE", "STOP"),
    *("LOCK", "UNLOCK", "SHOW", "HELP", "CACHE", "BINLOG", "PREPARE", "DEALLOCATE", "SET"),
    *("CHECK", "CHECKSUM", "BACKUP"),
}
"""First words of statements that change neither rows nor shapes of tables."""


def meanings(statement: str, database: str, mode: int = 0) -> list[Meaning]:
    """Return what a statement, run in ``database``, means for tables, in order.

    ``mode`` is the session's ``sql_mode``.
    """
    return meanings_of(tokens(statement, mode), database)


def meanings_of(found: Sequence[Token], database: str) -> list[Meaning]:
    """Return the meanings of a statement's tokens."""
    reader = Reader(found)
    while reader.take("SET", "STATEMENT"):
        if not _pass_settings(reader):
            return [UNCLEAR]
    while reader.take(";"):
        pass
    if not reader.rest:
        return []
    try:
        return list(_meanings(reader, database))
    except UnknownForm:
        return [UNCLEAR]


def _pass_settings(reader: Reader) -> bool:
    """Skip the settings up to FOR. False if the rest can't be parsed reliably.

    The server parsed the statement under the session's sql_mode, but the binlog has the
    one set here.
    """
    depth = 0
    while reader.rest:
        if reader.next == "SQL_MODE":
            return False
        if depth == 0 and reader.take("FOR"):
            return True
        depth += (reader.next == "(") - (reader.next == ")")
        reader.skip()
    return False


def _meanings(reader: Reader, database: str) -> Iterator[Meaning]:
    if reader.take("CREATE"):
        yield from _create(reader, database)
    elif reader.take("ALTER"):
        yield from _alter(reader, database)
    elif reader.take("DROP"):
        yield from _drop(reader, database)
    elif reader.take("TRUNCATE"):
        if len(reader.rest) > 1:
            reader.take("TABLE")
        yield _meaning(What.EMPTIED, reader.name(database))
    elif reader.take("RENAME"):
        yield from _rename(reader, database)
    elif reader.next in ("ANALYZE", "REPAIR"):
        yield from _maintain(reader, database)
    elif reader.next not in _HARMLESS:
        yield _meaning(What.WRITTEN, find_target(reader, database))
        yield from _reads(reader.rest, database)


def _reads(rest: Sequence[Token], database: str) -> Iterator[Meaning]:
    for name in read_tables(rest, database):
        yield _meaning(What.READ, name)


def _create(reader: Reader, database: str) -> Iterator[Meaning]:
    replaces = reader.take("OR", "REPLACE")
    temporary = reader.take("TEMPORARY")
    if reader.take("TABLE"):
        # The server also logs it if the table existed and nothing was done.
        may_be_there = reader.take_if_exists()
        name = reader.name(database)
        query = query_part(reader.rest)
        yield from _reads(query, database)
        if temporary:
            return
        # If the rows are logged, the statement has no query.
        made = What.REPLACED if query else What.CREATED
        yield _meaning(What.ALTERED if may_be_there else made, name)
        if replaces and not query:
            yield _meaning(What.EMPTIED, name)
    elif reader.take_any({"DATABASE", "SCHEMA"}):
        if replaces:
            reader.take_if_exists()
            yield Meaning(What.DROPPED, reader.part(), "")
    else:
        yield from _index_or_other(reader, database)


def _drop(reader: Reader, database: str) -> Iterator[Meaning]:
    if reader.take("TEMPORARY"):
        return
    if reader.take_any({"TABLE", "TABLES"}):
        reader.take_if_exists()
        while True:
            yield _meaning(What.DROPPED, reader.name(database))
            if not reader.take(","):
                return
    elif reader.take_any({"DATABASE", "SCHEMA"}):
        reader.take_if_exists()
        yield Meaning(What.DROPPED, reader.part(), "")
    elif reader.next in ("TRIGGER", "VIEW"):
        yield _UNHOOKED
    else:
        yield from _index_or_other(reader, database)


def _index_or_other(reader: Reader, database: str) -> Iterator[Meaning]:
    """Yield what CREATE and DROP of an index mean for its table: a key may be added or dropped."""
    if reader.take("SPATIAL", "REFERENCE") or reader.next in _OTHER_OBJECTS:
        return
    while reader.take_any({"ONLINE", "OFFLINE", "UNIQUE", "FULLTEXT", "SPATIAL", "VECTOR"}):
        pass
    if not reader.take("INDEX"):
        raise UnknownForm
    while reader.rest and not reader.take("ON"):
        reader.skip()
    yield _meaning(What.ALTERED, reader.name(database))


def _alter(reader: Reader, database: str) -> Iterator[Meaning]:
    reader.take("ONLINE")
    # IGNORE removes rows that are duplicates in a new unique key.
    ignores = reader.take("IGNORE")
    if reader.take_any({"DATABASE", "SCHEMA"}):
        if any(token.upper == "UPGRADE" for token in reader.rest):
            raise UnknownForm
        return
    if not reader.take("TABLE"):
        if reader.next not in _OTHER_OBJECTS:
            raise UnknownForm
        return
    reader.take_if_exists()
    name = reader.name(database)
    found = effects(reader, database)
    for other in found.others:
        yield _meaning(What.REPLACED, other)
    if found.renamed is not None:
        yield _meaning(What.REPLACED, name)
        yield _meaning(What.REPLACED, found.renamed)
    elif ignores or found.effect is Effect.ROWS:
        yield _meaning(What.REPLACED, name)
    else:
        reshapes = found.effect is Effect.VALUES
        yield _meaning(What.RESHAPED if reshapes else What.ALTERED, name)


def _rename(reader: Reader, database: str) -> Iterator[Meaning]:
    if reader.take("USER"):
        return
    if not reader.take_any({"TABLE", "TABLES"}):
        raise UnknownForm
    while True:
        reader.take_if_exists()
        former = reader.name(database)
        if not reader.take("NOWAIT") and reader.take("WAIT"):
            reader.skip()
        if not reader.take("TO"):
            raise UnknownForm
        # The table may still exist: MariaDB logs this for the rename of a temporary table
        # that hid it.
        yield _meaning(What.REPLACED, former)
        yield _meaning(What.REPLACED, reader.name(database))
        if not reader.take(","):
            return


def _maintain(reader: Reader, database: str) -> Iterator[Meaning]:
    """Yield what ANALYZE and REPAIR mean: a repair may lose rows, MariaDB can analyze a change."""
    repairs = reader.take("REPAIR")
    if not repairs:
        reader.skip()
    reader.take_any({"NO_WRITE_TO_BINLOG", "LOCAL"})
    if not reader.take_any({"TABLE", "TABLES", "VIEW"}):
        raise UnknownForm
    while repairs:
        yield _meaning(What.REPLACED, reader.name(database))
        if not reader.take(","):
            return


def _meaning(what: What, name: Name) -> Meaning:
    return Meaning(what, *name)
