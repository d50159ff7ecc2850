"""What statements of the binlog mean for the tables that are followed.

A statement that was logged instead of its rows is *trusted* to write its table alone where that
table has no trigger, and it reads no view. This is looked up in the schema of now, but a trigger
may have been dropped since the statement ran. Such a DROP stands in the binlog between the
statement and where the binlog ended after the look. So each look is remembered, by its table and
that end, until the binlog is read up to there. A statement before the end that may have changed
what the look saw makes everything unclear.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from rowtide.connectors.sources.mysql.ddl import UNCLEAR, Meaning, What, meanings_of
from rowtide.connectors.sources.mysql.position import Place, place_of
from rowtide.connectors.sources.mysql.query import Query
from rowtide.connectors.sources.mysql.server import MySqlServer
from rowtide.connectors.sources.mysql.tables import (
    SYSTEM,
    reads_itself_alone,
    writes_itself_alone,
)
from rowtide.connectors.sources.mysql.words import NO_BACKSLASH_ESCAPES, Token

__all__ = ["Statements"]

_CHANGES_ROWS = {"INSERT", "REPLACE", "UPDATE", "DELETE", "LOAD", "WITH", "SELECT", "CALL", "DO"}
_ESCAPED_QUOTE = re.compile(rb"(?<!\\)(?:\\\\)*\\'")
_KEEP_HOOKS = {What.EMPTIED, What.ALTERED, What.RESHAPED}
"""Without another engine, the table still has the triggers that it had."""


class Statements:
    """Reads statements in the order of the binlog, and asks ``server`` about their tables.

    ``looks`` is where the binlog ended after each table was looked at, by full name. A reader that
    goes on where another one stopped needs that one's. It is never changed, but replaced.
    """

    def __init__(self, server: MySqlServer, looks: Mapping[str, Place]) -> None:
        self._server = server
        self.looks = looks

    def meanings(self, tokens: Sequence[Token], query: Query, place: Place) -> list[Meaning]:
        """Return what a statement at a place means for tables that are followed.

        Only UNCLEAR where it, or one before it, may have changed any table.
        """
        self.looks = {name: end for name, end in self.looks.items() if end > place}
        if self._is_elsewhere(tokens, query):
            return []
        if _is_ambiguous(tokens, query):
            return self._all_unclear()
        found: list[Meaning] = []
        looked: set[str] = set()
        for meaning in map(self._named, meanings_of(tokens, query.database)):
            if meaning.what in (What.WRITTEN, What.READ):
                if not self._is_alone(meaning):
                    return self._all_unclear()
                if meaning.what is What.READ or meaning.database.lower() not in SYSTEM:
                    looked.add(f"{meaning.database}.{meaning.table}")
            elif meaning == UNCLEAR or self._is_of_a_look(meaning, tokens):
                return self._all_unclear()
            if meaning.what is not What.READ and self._is_wanted(meaning):
                found.append(meaning)
        if looked:
            end = place_of(*self._server.log.end())[1]
            self.looks = {**self.looks, **dict.fromkeys(looked, end)}
        return [_as_seen(meaning, query) for meaning in found]

    def _all_unclear(self) -> list[Meaning]:
        self.looks = {}  # Every table is copied, as of later.
        return [UNCLEAR]

    def _is_elsewhere(self, tokens: Sequence[Token], query: Query) -> bool:
        """True if a statement changed rows, and the server says that no followed table has them."""
        changes = bool(tokens) and tokens[0].upper in _CHANGES_ROWS
        if not changes or query.databases is None:
            return False
        return not any(map(self._server.settings.wants_some_of, query.databases))

    def _named(self, meaning: Meaning) -> Meaning:
        """Return a meaning with names as the server keeps them."""
        if not self._server.lowers_names:
            return meaning
        return Meaning(meaning.what, meaning.database.lower(), meaning.table.lower())

    def _is_alone(self, meaning: Meaning) -> bool:
        looks_up = reads_itself_alone if meaning.what is What.READ else writes_itself_alone
        return looks_up(self._server, meaning.database, meaning.table)

    def _is_of_a_look(self, meaning: Meaning, tokens: Sequence[Token]) -> bool:
        """True if a statement may have changed what a look at a table saw after it."""
        if meaning.what is What.UNHOOKED:
            return bool(self.looks)
        if meaning.what in _KEEP_HOOKS and all(token.upper != "ENGINE" for token in tokens):
            return False
        if not meaning.table:
            return any(name.startswith(f"{meaning.database}.") for name in self.looks)
        return f"{meaning.database}.{meaning.table}" in self.looks

    def _is_wanted(self, meaning: Meaning) -> bool:
        if meaning.what is What.UNHOOKED:
            return False
        return not meaning.table or self._server.settings.wants(meaning.database, meaning.table)


def _is_ambiguous(tokens: Sequence[Token], query: Query) -> bool:
    """True if it can't be told where a text of a LOAD DATA ends.

    The server writes its clauses anew, with backslashes also where the session has none.
    """
    loads = bool(tokens) and tokens[0].upper == "LOAD"
    without = bool(query.mode & NO_BACKSLASH_ESCAPES)
    return loads and without and bool(_ESCAPED_QUOTE.search(query.text))


def _as_seen(meaning: Meaning, query: Query) -> Meaning:
    """Return what is certain of a meaning: a table is copied again where its rows are not known."""
    unsure = query.temporary or meaning.what is What.WRITTEN
    return meaning._replace(what=What.REPLACED) if unsure else meaning
