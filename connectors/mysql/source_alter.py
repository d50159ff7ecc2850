"""What the actions of an ALTER TABLE do to the rows that are there.

An action that is not proven to leave all values alone may change them. A column that is added has a
value in older rows unless the action has no default and lets it be NULL. The schema of now can't
tell: the default may be gone by then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from rowtide.connectors.mysql.source_words import Name, Reader, Token

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
}
"""First words of actions, and of what follows them, that leave every value as it is."""

_PARTITIONS = {"DROP", "TRUNCATE", "EXCHANGE", "CONVERT", "REORGANIZE", "COALESCE", "REPAIR"}


def effects(reader: Reader, database: str) -> Effects:
    """Return what the actions behind the table's name do; ``database`` is the table's own."""
    if not reader.take("NOWAIT") and reader.take("WAIT"):
        reader.skip()
    found = Effects()
    for action in _actions(reader.rest):
        found.effect = max(found.effect, _effect(Reader(action), database, found))
    return found


def _actions(rest: Sequence[Token]) -> Iterator[list[Token]]:
    """Divide actions at the commas that are not in parentheses."""
    action: list[Token] = []
    depth = 0
    for token in rest:
        if token.upper == "," and depth == 0:
            yield action
            action = []
            continue
        depth += (token.upper == "(") - (token.upper == ")")
        action.append(token)
    if action:
        yield action


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
    return Effect.NONE if first in _OPTIONS else Effect.VALUES


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
    words = {token.upper for token in action.rest}
    return Effect.VALUES if words & _FILLING else Effect.NONE


def _note_other(action: Reader, database: str, found: Effects) -> None:
    """Note the table that rows were exchanged with, or that a partition became."""
    while action.rest:
        if action.take("TABLE"):
            found.others.append(action.name(database))
            return
        action.skip()
