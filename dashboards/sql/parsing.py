"""Parses the text of a panel's query, within bounds, into one SELECT.

The bounds are checked on the tokens, before anything recurses into the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from rowtide.dashboards.sql.rejection import QueryRejected, offset_of, reject_at
from rowtide.dashboards.sql.reserved_words import RESERVED

__all__ = ["SESSION", "parse_query"]

SESSION = "sessio_"
"""The name that the macro ``session`` has in a parsed query."""

DIALECT = "duckdb"
QUERY_CHARS_MAX = 16_384
TOKENS_MAX = 2_000
NESTING_MAX = 20
"""Brackets within brackets. The parser calls itself some 20 times for each."""

_OPEN = (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE, TokenType.CASE)
_CLOSE = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE, TokenType.END)


def parse_query(text: str) -> exp.Select:
    """Return the parsed SELECT. Raises ``QueryRejected``."""
    if len(text) > QUERY_CHARS_MAX:
        reason = f"the query has {len(text):,} characters; at most {QUERY_CHARS_MAX:,} are allowed"
        raise reject_at(text, QUERY_CHARS_MAX, reason)
    tokens = _check_tokens(text)
    try:
        parsed = sqlglot.parse(_rename_session(text, tokens), read=DIALECT)
    except ParseError as error:
        raise _syntax_error(text, error) from error
    except RecursionError as error:
        raise reject_at(text, 0, "the query is nested too deeply") from error
    _check_brackets(text, tokens)
    statements = [statement for statement in parsed if statement is not None]
    if len(statements) != 1 or not isinstance(statements[0], exp.Select):
        raise reject_at(text, 0, "a panel's query must be one SELECT")
    _check_names(text, statements[0])
    return statements[0]


def _check_names(text: str, select: exp.Select) -> None:
    """Raise ``QueryRejected`` for a name that DuckDB does not take, though the parser does."""
    for node in select.find_all(exp.Column, exp.Table):
        name = node.this
        if isinstance(name, exp.Identifier) and not name.quoted and name.name.lower() in RESERVED:
            reason = f'{name.name} is a word of SQL: write "{name.name}"'
            raise reject_at(text, offset_of(name), reason)


def _check_tokens(text: str) -> list[Token]:
    """Return the tokens of a text that is within the bounds. Raises ``QueryRejected``."""
    try:
        tokens = sqlglot.tokenize(text, read=DIALECT)
    except TokenError as error:
        raise reject_at(text, 0, "a text or a comment in the query is not ended") from error
    depth = 0
    for token in tokens:
        depth += _depth_change(token)
        if depth > NESTING_MAX:
            reason = f"brackets are nested more than {NESTING_MAX} deep"
            raise reject_at(text, token.start, reason)
    if len(tokens) > TOKENS_MAX:
        reason = f"the query has {len(tokens):,} words and signs; at most {TOKENS_MAX:,} fit"
        raise reject_at(text, tokens[TOKENS_MAX].start, reason)
    return tokens


def _check_brackets(text: str, tokens: Sequence[Token]) -> None:
    """Raise ``QueryRejected`` for an open bracket, which the parser sometimes overlooks."""
    opened: list[Token] = []
    for token in tokens:
        change = _depth_change(token)
        if change > 0:
            opened.append(token)
        elif change < 0 and opened:
            opened.pop()
        elif change < 0:
            raise reject_at(text, token.start, f"{token.text} closes nothing")
    if opened:
        raise reject_at(text, opened[-1].start, f"{opened[-1].text} is not closed")


def _rename_session(text: str, tokens: Sequence[Token]) -> str:
    """Return the text with another name for the macro session, as long, so that places stay.

    The parser takes ``session`` for the beginning of a setting's name.
    """
    for token, following in pairwise(tokens):
        if token.text.lower() == "session" and following.token_type is TokenType.L_PAREN:
            text = text[: token.start] + SESSION + text[token.end + 1 :]
    return text


def _depth_change(token: Token) -> int:
    if token.token_type in _OPEN:
        return 1
    return -1 if token.token_type in _CLOSE else 0


def _syntax_error(text: str, error: ParseError) -> QueryRejected:
    """Return the parser's first error with its place."""
    first = error.errors[0] if error.errors else {}
    reason = str(first.get("description") or "the query is not SQL").rstrip(".")
    line, end = first.get("line"), first.get("col")
    if not isinstance(line, int) or not isinstance(end, int):
        return reject_at(text, 0, reason)
    # The parser names the last character of the word that it did not expect.
    return QueryRejected(reason, line, max(1, end - len(str(first.get("highlight", ""))) + 1))
