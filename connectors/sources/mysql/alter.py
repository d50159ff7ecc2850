"""What the actions of an ALTER TABLE do to existing rows.

An action that is not proven to leave all values alone may change them. An added column
has a value in older rows, unless the action has no default and allows NULL. The current
schema can't show this: the default may have been dropped since.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from rowtide.connectors.sources.mysql.words import Name, Reader, Token, UnknownForm

__all__ = ["Effect", "Effects", "effects"]


class Effect(IntEnum):
    """The effect on rows, the weakest first."""

    NONE = 0
    VALUES = 1
    """Rows may have other values."""
    ROWS = 2
    """The table may have other rows."""


@dataclass(slots=True)
class Effects:
    """What an ALTER TABLE does to its table. ``others`` are tables whose rows also change."""

    effect: Effect = Effect.NONE
    renamed: Name | None = None
    others: list[Name] = field(default_factory=list)


_FILLING = {
    *("DEFAULT", "NOT", "AS", "GENERATED", "AUTO_INCREMENT", "PRIMARY", "SERIAL", "TIMESTAMP"),
    *("PERIOD", "SYSTEM", "VERSIONING"),
}
"""Words of an added column that may give it a value in older rows."""

_NO_COLUMN = {
    *("INDEX", "KEY", "UNIQUE", "FULLTEXT", "SPATIAL", "CONSTRAINT", "FOREIGN", "CHECK"),
    *("PRIMARY", "PARTITION"),
}
"""What ADD can name besides a column. All are reserved words, except VECTOR of an index."""
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
"""First words of actions, and of their options, that leave every value as it is."""

_PARTITIONS = {"DROP", "TRUNCATE", "EXCHANGE", "CONVERT", "REPAIR", "IMPORT", "DISCARD"}
"""First words of actions that change the rows of partitions. Others only move rows."""

_KEEPING = {
    *("innodb", "myisam", "aria", "maria", "memory", "heap", "archive", "csv", "rocksdb", "tokudb"),
    *("ndb", "ndbcluster"),
}
"""Engines that keep a table's rows when it changes to them. Another engine may lose rows."""


def effects(reader: Reader, database: str) -> Effects:
    """Return what the actions after the table's name do. ``database`` is the session's."""
    if not reader.take("NOWAIT") and reader.take("WAIT"):
        reader.skip()
    found = Effects()
    for action in _actions(reader.rest):
        found.effect = max(found.effect, _effect(Reader(action), database, found))
    return found


def _actions(rest: Sequence[Token]) -> Iterator[list[Token]]:
    """Yield actions, divided at commas outside of parentheses and lists of names.

    An action on partitions is alone, and ORDER BY can have several columns.
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
    """True if the action before a comma continues after it."""
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
        return Effect.NONE  # A default, an index, or a check.
    if first == "DROP":
        column = words[1] if len(words) > 1 else ""
        harmless = column in {"INDEX", "KEY", "CONSTRAINT", "PRIMARY", "FOREIGN", "CHECK"}
        return Effect.NONE if harmless else Effect.VALUES
    if first not in _OPTIONS:
        return Effect.VALUES
    return Effect.NONE if _keeps_rows(action) else Effect.ROWS


def _keeps_rows(options: Reader) -> bool:
    """True unless one of some options, without commas, names an engine that loses rows."""
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
    """True if older rows may have a value in columns that this definition adds."""
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
    """Skip an expression in parentheses if it is next."""
    depth = 0
    while reader.rest:
        depth += (reader.next == "(") - (reader.next == ")")
        if depth == 0 and reader.next != ")":
            return
        reader.skip()
        if depth == 0:
            return


def _note_other(action: Reader, database: str, found: Effects) -> None:
    """Record the table that rows were exchanged with, or that a partition became."""
    while action.rest:
        if action.take("TABLE"):
            found.others.append(action.name(database))
            return
        action.skip()
