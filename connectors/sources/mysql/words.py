"""The words of a statement, as the server's own lexer separates them.

Two bits of the session's ``sql_mode`` change the language. With ANSI_QUOTES a text in
double quotes is a name. With NO_BACKSLASH_ESCAPES a backslash is an ordinary character.
MariaDB's mode MSSQL adds names in brackets. A comment that the server executes is a part
of the statement.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

__all__ = [
    *("NAME", "NO_BACKSLASH_ESCAPES", "SYMBOL", "TEXT", "WORD"),
    *("Name", "Reader", "Token", "UnknownForm", "tokens"),
]

ANSI_QUOTES, MSSQL, NO_BACKSLASH_ESCAPES = 1 << 2, 1 << 10, 1 << 20
"""Bits of ``sql_mode``."""

WORD, NAME, TEXT, SYMBOL = "word", "name", "text", "symbol"
"""Kinds: without quotes, a name in quotes, a text in quotes, one other character."""


class Token(NamedTuple):
    """A part of a statement. ``text`` has no quotes."""

    kind: str
    text: str

    @property
    def upper(self) -> str:
        """A word or a symbol in capitals for comparison, empty for quoted text."""
        return self.text.upper() if self.kind in (WORD, SYMBOL) else ""


class Name(NamedTuple):
    """A table's name with its database."""

    database: str
    table: str


@lru_cache(8)
def _lexer(mode: int) -> re.Pattern[str]:
    escape = "" if mode & NO_BACKSLASH_ESCAPES else r"|\\."
    plain = "" if mode & NO_BACKSLASH_ESCAPES else r"\\"
    double = rf'"(?:[^"{plain}]|""{escape})*"'
    if mode & ANSI_QUOTES:
        double = r'"(?:[^"]|"")*"'
    brackets = r"|(?P<bracket>\[[^\]]+\])" if mode & MSSQL else ""
    return re.compile(
        r"(?P<gap>\s+|--(?=[\s\x00-\x1f]|\Z)[^\n]*|\#[^\n]*"
        # The start and end of an executed comment are only a gap.
        r"|/\*M?!(?:\d{5,6})?|\*/|/\*.*?(?:\*/|\Z))"
        rf"|(?P<single>'(?:[^'{plain}]|''{escape})*')|(?P<double>{double})"
        rf"|(?P<ticked>`(?:[^`]|``)*`){brackets}"
        r"|(?P<word>[\w$\x80-\U0010ffff]+)|(?P<symbol>.)",
        re.S,
    )


def tokens(statement: str, mode: int = 0) -> list[Token]:
    """Return the parts of a statement of a session with these bits of ``sql_mode``."""
    found = []
    for match in _lexer(mode & (ANSI_QUOTES | MSSQL | NO_BACKSLASH_ESCAPES)).finditer(statement):
        kind, text = match.lastgroup, match[0]
        if kind == "word":
            found.append(Token(WORD, text))
        elif kind == "symbol":
            found.append(Token(SYMBOL, text))
        elif kind == "single" or (kind == "double" and not mode & ANSI_QUOTES):
            found.append(Token(TEXT, text[1:-1]))
        elif kind == "bracket":
            found.append(Token(NAME, text[1:-1]))
        elif kind in ("double", "ticked"):
            quote = text[0]
            found.append(Token(NAME, text[1:-1].replace(quote * 2, quote)))
    return found


class UnknownForm(Exception):
    """A statement has an unknown form."""


class Reader:
    """Reads tokens in order. Raises UnknownForm if a name is missing."""

    def __init__(self, found: Sequence[Token]) -> None:
        self._tokens = found
        self._at = 0

    @property
    def rest(self) -> Sequence[Token]:
        """The tokens that were not read."""
        return self._tokens[self._at :]

    @property
    def next(self) -> str:
        """The next word or symbol in capitals, empty at the end and for quotes."""
        return self._tokens[self._at].upper if self._at < len(self._tokens) else ""

    def skip(self) -> None:
        """Skip one token."""
        self._at += 1

    def take(self, *words: str) -> bool:
        """Skip these words if they are next. True if they were."""
        end = self._at + len(words)
        if [token.upper for token in self._tokens[self._at : end]] != list(words):
            return False
        self._at = end
        return True

    def take_any(self, words: set[str]) -> str:
        """Skip one of these words and return it, empty if none is next."""
        found = self.next
        if not found or found not in words:
            return ""
        self._at += 1
        return found

    def take_if_exists(self) -> bool:
        """Skip IF EXISTS or IF NOT EXISTS. True if one was next."""
        return self.take("IF", "EXISTS") or self.take("IF", "NOT", "EXISTS")

    def part(self) -> str:
        """Read one part of a name."""
        if not self.rest or self.rest[0].kind not in (WORD, NAME):
            raise UnknownForm
        if "\ufffd" in self.rest[0].text:
            raise UnknownForm  # It was not in the session's charset.
        self._at += 1
        return self._tokens[self._at - 1].text

    def name(self, database: str) -> Name:
        """Read a table's name."""
        self.take(".")
        first = self.part()
        return Name(first, self.part()) if self.take(".") else Name(database, first)
