"""What statements of the binlog mean for tables, told by their first words and the names in them.

What a column list says is not read: after a change the server is asked for the table as it is. By
then it may be one after further statements, so what a statement does to values is told here too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

__all__ = ["Meaning", "What", "meanings"]


class What(Enum):
    """What became of a table."""

    CREATED = "created"
    ALTERED = "altered"
    RESHAPED = "reshaped"
    """Altered so that its rows may have other values in columns of the same names and types."""
    EMPTIED = "emptied"
    DROPPED = "dropped"
    REPLACED = "replaced"
    """It may have other rows now: it was renamed to this name, or partitions of it went."""
    UNCLEAR = "unclear"
    """Rows of any table may have changed: a statement was logged instead of its rows."""


class Meaning(NamedTuple):
    """A table that a statement is about; an empty table is every one of the database."""

    what: What
    database: str
    table: str


_TEXT = r"'(?:[^'\\]|\\.|'')*'"
_QUOTED = r"\"(?:[^\"\\]|\\.|\"\")*\""
"""A text, or with the mode ANSI_QUOTES a name."""
_TICKED = r"`(?:[^`]|``)+`"
_COMMENT = re.compile(
    rf"({_TEXT}|{_QUOTED}|{_TICKED})|/\*(?!M?!).*?\*/|--[ \t\n][^\n]*|#[^\n]*", re.S
)
_EXECUTED = re.compile(r"/\*M?!\d*(.*?)\*/", re.S)
_PART = rf"(?:{_TICKED}|\"(?:[^\"]|\"\")+\"|[\w$\u0080-\uffff]+)"
_NAME = rf"{_PART}(?:\s*\.\s*{_PART})?"
_IF = r"(?:IF\s+(?:NOT\s+)?EXISTS\s+)?"
_LIST = rf"({_NAME}(?:\s*,\s*{_NAME})*)"
_FLAGS = re.I | re.S

_CREATE = re.compile(rf"CREATE\s+(OR\s+REPLACE\s+)?(TEMPORARY\s+)?TABLE\s+{_IF}({_NAME})", _FLAGS)
_ALTER = re.compile(rf"ALTER\s+(?:ONLINE\s+)?(?:IGNORE\s+)?TABLE\s+{_IF}({_NAME})(.*)", _FLAGS)
_DROP = re.compile(rf"DROP\s+(TEMPORARY\s+)?TABLES?\s+{_IF}{_LIST}", _FLAGS)
_DROP_DATABASE = re.compile(rf"DROP\s+(?:DATABASE|SCHEMA)\s+{_IF}({_PART})", _FLAGS)
_TRUNCATE = re.compile(rf"TRUNCATE\s+(?:TABLE\s+)?({_NAME})", _FLAGS)
_RENAME = re.compile(r"RENAME\s+TABLES?\s+(.*)", _FLAGS)
_WAIT = r"(?:WAIT\s+\d+|NOWAIT)?"
_PAIR = re.compile(rf"{_IF}({_NAME})\s*{_WAIT}\s*TO\s+({_NAME})", _FLAGS)
_RENAMES = rf"(?:^|[\s,])RENAME\s+(?!(?:COLUMN|INDEX|KEY)\b)(?:TO\s+|AS\s+|=\s*)?({_NAME})"
_RENAMED = re.compile(_RENAMES, _FLAGS)
_SAID = re.compile(rf"(?P<kept>{_RENAMES}|{_TICKED})|{_TEXT}|{_QUOTED}", _FLAGS)
"""What is quoted: texts, and names, of which the new one of a table is known by what is before."""
_LOSES_ROWS = re.compile(
    r"\b(DROP|TRUNCATE|EXCHANGE|CONVERT|REORGANIZE)\s+PARTITION|\b(IMPORT|DISCARD)\s+TABLESPACE"
    r"|\bCONVERT\s+TABLE",
    _FLAGS,
)
_RESHAPES = re.compile(
    r"\b(?:CHANGE|MODIFY)\b|\bRENAME\s+COLUMN\b"
    r"|\bDROP\s+(?!(?:INDEX|KEY|CONSTRAINT|PRIMARY|FOREIGN|CHECK|DEFAULT|PERIOD|SYSTEM)\b)",
    _FLAGS,
)
_CHANGES_ROWS = re.compile(r"(INSERT|REPLACE|UPDATE|DELETE|LOAD\s+DATA|CALL)\b", _FLAGS)
_BACK_TO = re.compile(r"ROLLBACK\s+(?:WORK\s+)?TO\b", _FLAGS)


def meanings(statement: str, database: str) -> list[Meaning]:
    """Return what a statement, run in ``database``, means for tables, in its order."""
    text = _EXECUTED.sub(r" \1 ", statement)
    # What looks like a comment within quotes is none.
    text = _COMMENT.sub(lambda found: found[1] or " ", text).strip()
    return list(_meanings(text, database))


def _meanings(text: str, database: str) -> Iterator[Meaning]:
    if found := _CREATE.match(text):
        if not found[2]:
            yield _meaning(What.CREATED, found[3], database)
            if found[1]:
                yield _meaning(What.EMPTIED, found[3], database)
    elif found := _ALTER.match(text):
        yield from _alter(found[1], found[2], database)
    elif found := _DROP.match(text):
        if not found[1]:
            for name in re.findall(_NAME, found[2], _FLAGS):
                yield _meaning(What.DROPPED, name, database)
    elif found := _DROP_DATABASE.match(text):
        yield Meaning(What.DROPPED, _plain(found[1]), "")
    elif found := _TRUNCATE.match(text):
        yield _meaning(What.EMPTIED, found[1], database)
    elif found := _RENAME.match(text):
        for former, name in _PAIR.findall(found[1]):
            yield _meaning(What.DROPPED, former, database)
            yield _meaning(What.REPLACED, name, database)
    elif _CHANGES_ROWS.match(text) or _BACK_TO.match(text):
        yield Meaning(What.UNCLEAR, "", "")


def _alter(name: str, rest: str, database: str) -> Iterator[Meaning]:
    table = _meaning(What.ALTERED, name, database)
    # Names and texts in quotes may look like words of a statement.
    bare = _SAID.sub(lambda found: found["kept"] or "''", rest)
    renamed = _RENAMED.search(bare)
    if renamed:
        yield table._replace(what=What.DROPPED)
        yield _meaning(What.REPLACED, renamed[1], table.database)
        return
    bare = re.sub(_TICKED, "``", bare)
    if _LOSES_ROWS.search(bare):
        yield table._replace(what=What.REPLACED)
    elif _RESHAPES.search(bare):
        yield table._replace(what=What.RESHAPED)
    else:
        yield table


def _meaning(what: What, name: str, database: str) -> Meaning:
    parts = [_plain(part) for part in re.findall(_PART, name, _FLAGS)]
    return Meaning(what, parts[0] if len(parts) == 2 else database, parts[-1])


def _plain(name: str) -> str:
    quote = name[0]
    return name[1:-1].replace(quote * 2, quote) if quote in '`"' else name
