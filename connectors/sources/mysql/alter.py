"""What the actions of an ALTER TABLE do to the rows that are there.

An action that is not proven to leave all values alone may change them. A column that is added has a
value in older rows unless the action has no default and lets it be NULL. The schema of now can't
tell: the default may be gone by then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from rowtide.connectors.sources.mysql.words import Name, Reader, Token, UnknownForm

__all__ = ["Effect", "Effects", "effects"]


class Effect(IntEnum):
    """What becomes of rows, the least first."""

    NONE = 0
    VALUES = 1
    """They may have other values."""
    ROWS = 2
    """There may be other rows."""


@dataclass(slots=True)
class Effects:
    """What an ALTER TABLE does to its table; ``others`` are tables whose rows change with it."""

    effect: Effect = Effect.NONE
    renamed: Name | None = None
    others: list[Name] = field(default_factory=list)


_FILLING = {
    *("DEFAULT", "NOT", "AS", "GENERATED", "AUTO_INCREMENT", "PRIMARY", "SERIAL", "TIMESTAMP"),
    *("PERIOD", "SYSTEM", "VERSIONING"),
}
"""Words with which a column that is added may have a value in older rows."""

_NO_COLUMN = {
    *("INDEX", "KEY", "UNIQUE", "FULLTEXT", "SPATIAL", "CONSTRAINT", "FOREIGN", "CHECK"),
    *("PRIMARY", "PARTITION"),
}
"""What ADD can name besides a column. All are reserved words, but for VECTOR of an index."""
_OPTIONS = {
    *("ENGINE", "COMMENT", "AUTO_INCREMENT", "ROW_FORMAT", "ALGORITHM", "LOCK", "DEFAULT"),
    *("CHARACTER", "CHARSET", "COLLATE", "ENABLE", "DISABLE", "FORCE", "ORDER", "ANALYZE"),
    *("CHECK", "OPTIMIZE", "REBUILD", "STATS_PERSISTENT", "STATS_AUTO_RECALC", "AVG_ROW_LENGTH"),
    *("STATS_SAMPLE_PAGES", "KEY_BLOCK_SIZE", "MAX_ROWS", "MIN_ROWS", "PACK_KEYS", "CHECKSUM"),
    *("PAGE_CHECKSUM", "PAGE_COMPRESSED", "PAGE_COMPRESSION_LEVEL", "DELAY_KEY_WRITE"),
    *("ENCRYPTED", "ENCRYPTION", "ENCRYPTION_KEY_ID", "COMPRESSION", "TABLESPACE", "REMOVE"),
    *("PARTITION", "WITHOUT", "WITH", "TRANSACTIONAL", "AUTOEXTEND_SIZE", "SECONDARY_ENGINE"),
    *("REORGANIZE", "COALESCE"),
}
"""First words of actions, and of what follows them, that leave every value as it is."""

_PARTITIONS = {"DROP", "TRUNCATE", "EXCHANGE", "CONVERT", "REPAIR", "IMPORT", "DISCARD"}
"""First words of actions that change the rows of partitions; others move them."""

_KEEPING = {
    *("innodb", "myisam", "aria", "maria", "memory", "heap", "archive", "csv", "rocksdb", "tokudb"),
    *("ndb", "ndbcluster"),
}
"""Engines that a table's rows are taken along to. Another one may let go of them."""


def effects(reader: Reader, database: str) -> Effects:
    """Return what the actions behind the table's name do; ``database`` is the session's."""
    if not reader.take("NOWAIT") and reader.take("WAIT"):
        reader.skip()
    found = Effects()
    for action in _actions(reader.rest):
        found.effect = max(found.effect, _effect(Reader(action), database, found))
    return found


def _actions(rest: Sequence[Token]) -> Iterator[list[Token]]:
    """Divide actions at the commas that are not in parentheses, nor in a list of names.

    What is done to partitions stands alone, and ORDER BY can have more columns than one.
    """
    action: list[Token] = []
    depth = 0
    for at, token in enumerate(rest):
        if token.upper == "," and depth == 0 and not _goes_on(action, rest[at + 1 :]):
            yield action
            action = []
            continue
        depth += (token.upper == "(") - (token.upper == ")")
        action.append(token)
    if action:
        yield action


def _goes_on(action: Sequence[Token], rest: Sequence[Token]) -> bool:
    """True if the action before a comma goes on behind it."""
    first, second = [*(token.upper for token in action[:2]), "", ""][:2]
    if second == "PARTITION":
        return True
    if first != "ORDER":
        return False
    behind = Reader(rest)
    try:
        behind.name("")
        if behind.take("."):
            behind.part()
    except UnknownForm:
        return False
    behind.take_any({"ASC", "DESC"})
    ends = not behind.rest or behind.next == ","
    return ends and rest[0].upper not in _OPTIONS


def _effect(action: Reader, database: str, found: Effects) -> Effect:
    first = action.next
    words = [token.upper for token in action.rest]
    if first == "RENAME":
        return _rename(action, database, found)
    if first in _PARTITIONS and "PARTITION" in words[1:2]:
        _note_other(action, database, found)
        return Effect.ROWS
    if first == "CONVERT" and "TABLE" in words[1:2]:
        _note_other(action, database, found)
        return Effect.ROWS
    if first in ("IMPORT", "DISCARD"):
        return Effect.ROWS
    if first == "ADD":
        return _add(action)
    if first == "ALTER":
        return Effect.NONE  # A default, an index, a check.
    if first == "DROP":
        column = words[1] if len(words) > 1 else ""
        harmless = column in {"INDEX", "KEY", "CONSTRAINT", "PRIMARY", "FOREIGN", "CHECK"}
        return Effect.NONE if harmless else Effect.VALUES
    if first not in _OPTIONS:
        return Effect.VALUES
    return Effect.NONE if _keeps_rows(action) else Effect.ROWS


def _keeps_rows(options: Reader) -> bool:
    """True unless one of some options, without commas between them, names an engine of no rows."""
    while options.rest:
        if options.take("ENGINE"):
            options.take("=")
            if not options.rest or options.rest[0].text.lower() not in _KEEPING:
                return False
        options.skip()
    return True


def _rename(action: Reader, database: str, found: Effects) -> Effect:
    action.skip()
    if action.take_any({"INDEX", "KEY"}):
        return Effect.NONE
    if action.take("COLUMN"):
        return Effect.VALUES
    action.take_any({"TO", "AS", "="})
    found.renamed = action.name(database)
    return Effect.ROWS


def _add(action: Reader) -> Effect:
    action.skip()
    if action.next in _NO_COLUMN or action.take("VECTOR", "INDEX") or action.take("VECTOR", "KEY"):
        return Effect.NONE
    action.take("COLUMN")
    action.take_if_exists()
    if action.next not in ("(", "SYSTEM", "PERIOD"):
        action.skip()  # The column's name.
    return Effect.VALUES if _fills(action) else Effect.NONE


def _fills(definition: Reader) -> bool:
    """True if older rows may have a value in columns that are added so."""
    while definition.rest:
        if definition.take("CHECK"):
            _pass_parentheses(definition)
        elif definition.take("DEFAULT", "NULL"):
            pass
        elif definition.next in _FILLING:
            return True
        else:
            definition.skip()
    return False


def _pass_parentheses(reader: Reader) -> None:
    """Pass over what stands in parentheses, if they are next."""
    depth = 0
    while reader.rest:
        depth += (reader.next == "(") - (reader.next == ")")
        if depth == 0 and reader.next != ")":
            return
        reader.skip()
        if depth == 0:
            return


def _note_other(action: Reader, database: str, found: Effects) -> None:
    """Note the table that rows were exchanged with, or that a partition became."""
    while action.rest:
        if action.take("TABLE"):
            found.others.append(action.name(database))
            return
        action.skip()
