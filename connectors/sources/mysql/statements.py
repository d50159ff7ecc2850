"""The meaning of the binlog's statements for followed tables.

A statement that was logged instead of its rows is *trusted* to write only its table, if
that table has no trigger and the statement reads no view. This is looked up in the
current schema, but a trigger may have been dropped since the statement ran. Such a DROP
is in the binlog between the statement and the binlog's end after the look. So each look
is recorded, by its table and that end, until the binlog is read up to there. If a
statement before the end may have changed what the look saw, everything is unclear.
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
"""Unless its engine changes, the table keeps its triggers."""


class Statements:
    """Interprets statements in the order of the binlog, with queries to ``server``.

    ``looks`` is the binlog's end after each look at a table, by full name. A reader that
    continues for another needs the other's looks. The mapping is replaced, never changed.
    """

    def __init__(self, server: MySqlServer, looks: Mapping[str, Place]) -> None:
        self._server = server
        self.looks = looks

    def meanings(self, tokens: Sequence[Token], query: Query, place: Place) -> list[Meaning]:
        """Return what a statement at a place means for followed tables.

        Return only UNCLEAR if it, or one before it, may have changed any table.
        """
        self.looks = {name: end for name, end in self.looks.items() if end > place}
        if self._is_elsewhere(tokens, query):
            return []
        if _is_ambiguous(tokens, query):
            return self._all_unclear()
        found: list[Meaning] = []
        looked: set[str] = set()
        for meaning in map(self._fold_names, meanings_of(tokens, query.database)):
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
        self.looks = {}  # Every table is copied as of a later place.
        return [UNCLEAR]

    def _is_elsewhere(self, tokens: Sequence[Token], query: Query) -> bool:
        """True if a statement changed rows only in databases without followed tables."""
        changes = bool(tokens) and tokens[0].upper in _CHANGES_ROWS
        if not changes or query.databases is None:
            return False
        return not any(map(self._server.settings.wants_some_of, query.databases))

    def _fold_names(self, meaning: Meaning) -> Meaning:
        """Return a meaning with names as the server stores them."""
        if not self._server.lowers_names:
            return meaning
        return Meaning(meaning.what, meaning.database.lower(), meaning.table.lower())

    def _is_alone(self, meaning: Meaning) -> bool:
        looks_up = reads_itself_alone if meaning.what is What.READ else writes_itself_alone
        return looks_up(self._server, meaning.database, meaning.table)

    def _is_of_a_look(self, meaning: Meaning, tokens: Sequence[Token]) -> bool:
        """True if a statement may have changed what a later look at a table saw."""
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
    """True if the end of a text in a LOAD DATA is unclear.

    The server rewrites its clauses with backslashes, even if the session has none.
    """
    loads = bool(tokens) and tokens[0].upper == "LOAD"
    without = bool(query.mode & NO_BACKSLASH_ESCAPES)
    return loads and without and bool(_ESCAPED_QUOTE.search(query.text))


def _as_seen(meaning: Meaning, query: Query) -> Meaning:
    """Return a meaning reduced to what is certain: unknown rows are copied again."""
    unsure = query.temporary or meaning.what is What.WRITTEN
    return meaning._replace(what=What.REPLACED) if unsure else meaning
