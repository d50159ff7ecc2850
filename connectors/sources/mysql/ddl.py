"""What statements of the binlog mean for tables.

The columns that a statement lists are not read: after a change the server reports the table as it
is. By then it may be one after further statements. So a statement's effect on values is decided
here.

Every statement that is not known to be harmless is ``UNCLEAR``: every table is read again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from typing import NamedTuple

from rowtide.connectors.sources.mysql.alter import Effect, effects
from rowtide.connectors.sources.mysql.words import Name, Reader, Token, UnknownForm, tokens
from rowtide.connectors.sources.mysql.writes import query_part, read_tables, written_table

__all__ = ["UNCLEAR", "Meaning", "What", "meanings", "meanings_of"]


class What(Enum):
    """What became of a table."""

    CREATED = "created"
    ALTERED = "altered"
    """It has the rows that it had. One that was not followed may have some."""
    RESHAPED = "reshaped"
    """Altered so that its rows may have other values in columns of the same names and types."""
    EMPTIED = "emptied"
    DROPPED = "dropped"
    REPLACED = "replaced"
    """It may have other rows now, or be gone: it was renamed, or partitions of it went."""
    WRITTEN = "written"
    """A statement was logged instead of its rows, and it names this table alone."""
    READ = "read"
    """A statement that was logged instead of its rows reads it. A view may write others then."""
    UNHOOKED = "unhooked"
    """A trigger or a view is gone, by which statements before this one may have written others."""
    UNCLEAR = "unclear"
    """Rows of any table may have changed, and any table may have another shape."""


class Meaning(NamedTuple):
    """A table that a statement is about; an empty table is every one of the database.

    Of ``UNHOOKED`` and ``UNCLEAR`` both names are empty.
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
"""What CREATE, ALTER and DROP can name besides tables and indexes, and words in front of it."""

_HARMLESS = {
    *("GRANT", "REVOKE", "FLUSH", "OPTIMIZE", "SAVEPOINT", "RELEASE", "BEGIN", "COMMIT", "START"),
    *("USE", "INSTALL", "UNINSTALL", "SHUTDOWN", "KILL", "RESET", "PURGE", "CHANGE", "STOP"),
    *("LOCK", "UNLOCK", "SHOW", "HELP", "CACHE", "BINLOG", "PREPARE", "DEALLOCATE", "SET"),
    *("CHECK", "CHECKSUM", "BACKUP"),
}
"""First words of statements that change neither rows nor shapes of tables."""


def meanings(statement: str, database: str, mode: int = 0) -> list[Meaning]:
    """Return what a statement, run in ``database``, means for tables, in its order.

    ``mode`` is the session's ``sql_mode``.
    """
    return meanings_of(tokens(statement, mode), database)


def meanings_of(found: Sequence[Token], database: str) -> list[Meaning]:
    """Return what a statement of these tokens means."""
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
    """Pass over the settings up to FOR; return False where the rest can't be read for sure.

    The statement was read under the session's own sql_mode, and the binlog has the one set here.
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
        yield _meaning(What.WRITTEN, written_table(reader, database))
        yield from _reads(reader.rest, database)


def _reads(rest: Sequence[Token], database: str) -> Iterator[Meaning]:
    for name in read_tables(rest, database):
        yield _meaning(What.READ, name)


def _create(reader: Reader, database: str) -> Iterator[Meaning]:
    replaces = reader.take("OR", "REPLACE")
    temporary = reader.take("TEMPORARY")
    if reader.take("TABLE"):
        # The server logs it too where the table was there and nothing was done.
        may_be_there = reader.take_if_exists()
        name = reader.name(database)
        query = query_part(reader.rest)
        yield from _reads(query, database)
        if temporary:
            return
        # Where the rows are logged, the statement has no query.
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
    """Give what CREATE and DROP mean for the table of an index: a key may come or go with it."""
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
    # It removes rows that would be two under a new unique key.
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
        # It may be there still: MariaDB logs so the rename of a temporary table that hid it.
        yield _meaning(What.REPLACED, former)
        yield _meaning(What.REPLACED, reader.name(database))
        if not reader.take(","):
            return


def _maintain(reader: Reader, database: str) -> Iterator[Meaning]:
    """Give what ANALYZE and REPAIR mean: a repair may lose rows, MariaDB can analyze a change."""
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
