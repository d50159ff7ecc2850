"""A query as SQL on the tables of ``search_file.py``.

Each test has two forms. Its *source* yields the ids of rows for which it is true, from an index;
some tests have none, such as ``Not``. Its *check* is a condition on one row's id. An ``And`` takes
the source of its rarest test, and checks the others. So a search costs about as much as its rarest
test finds.

Tests of words that are joined by ``And`` or ``Or`` are one expression of FTS5.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rowtide.client.search.pieces import Piece, cut_phrase, cut_query
from rowtide.client.search.query import (
    And,
    Equals,
    Everything,
    Exists,
    In,
    Match,
    Not,
    Or,
    Phrase,
    Prefix,
    Range,
    SearchQuery,
)
from rowtide.client.search.search_file import (
    BOOLEAN,
    BYTES,
    ELEMENT,
    NUMBER,
    TEXT,
    field_piece,
)
from rowtide.core.values.variant import Scalar

__all__ = ["Clause", "Sql", "compile_query"]


class Sql(NamedTuple):
    """A piece of a statement and the values of its parameters."""

    text: str
    values: tuple[Scalar, ...] = ()


Check = Callable[[str, bool], Sql]
"""Returns the condition on the row whose id an expression has.

The second argument is True if the condition will be tested for few rows.
"""

Estimate = Callable[[Sql], int]
"""Returns about how many rows a source yields; a large number may be cut."""


@dataclass(frozen=True, slots=True)
class Clause:
    """A test. ``count`` is an estimate of the rows of its source."""

    check: Check
    source: Sql | None = None
    count: int = 0


def compile_query(query: SearchQuery, fields: Mapping[str, int], estimate: Estimate) -> Clause:
    """Return the clause of a query. ``fields`` are the numbers of the index's fields."""
    return _Compiler(fields, estimate).clause(query)


class _Compiler:
    def __init__(self, fields: Mapping[str, int], estimate: Estimate) -> None:
        self._fields = fields
        self._estimate = estimate

    def clause(self, query: SearchQuery) -> Clause:
        words = self._words(query)
        if words is not None:
            return self._words_clause(words)
        match query:
            case And():
                return self._and(query.tests)
            case Or():
                return _or([self.clause(test) for test in query.tests])
            case Not():
                return _not(self.clause(query.test))
            case Everything():
                return Clause(lambda row, few: Sql("1"))
        return self._values_clause(query)

    def _and(self, tests: Sequence[SearchQuery]) -> Clause:
        words: list[str] = []
        clauses: list[Clause] = []
        for test in _flatten(tests):
            expression = self._words(test)
            if expression is None:
                clauses.append(self.clause(test))
            else:
                words.append(expression)
        if words:
            clauses.append(self._words_clause(_join(words, " AND ")))
        return _and_clauses(clauses)

    # ---- Words ----

    def _words(self, query: SearchQuery) -> str | None:
        """Return the expression of FTS5 for a query, None if it has other tests than words.

        An empty expression finds nothing.
        """
        match query:
            case Match():
                return self._each_field(query.field, lambda number: _match(number, query))
            case Phrase():
                pieces = cut_phrase(query.text)
                return self._each_field(query.field, lambda number: _quote(number, pieces))
            case And() | Or():
                parts = [self._words(test) for test in query.tests]
                known = [part for part in parts if part is not None]
                if len(known) == len(parts):
                    return _join(known, " AND " if isinstance(query, And) else " OR ")
        return None

    def _each_field(self, field: str | None, build: Callable[[int], str]) -> str:
        if field is None:
            return _join([build(number) for number in self._fields.values()], " OR ")
        number = self._fields.get(field)
        return "" if number is None else build(number)

    def _words_clause(self, expression: str) -> Clause:
        if not expression:
            return _nothing()
        source = Sql("SELECT rowid AS row FROM pieces WHERE pieces MATCH ?", (expression,))

        def check(row: str, few: bool) -> Sql:
            if few:
                # FTS5 seeks one row.
                return Sql(
                    f"EXISTS (SELECT 1 FROM pieces WHERE pieces MATCH ? AND rowid = {row})",
                    source.values,
                )
            return Sql(f"{row} IN ({source.text})", source.values)

        return Clause(check, source, self._estimate(source))

    # ---- Values ----

    def _values_clause(self, query: SearchQuery) -> Clause:
        assert isinstance(query, Equals | In | Range | Prefix | Exists), query
        number = self._fields.get(query.field)
        if number is None:
            return _nothing()
        wanted = _condition(query)
        # A list may match with several of its texts. A sort of half a table is spared if it can't.
        is_once = isinstance(query, Equals | Exists) or _TEXTS not in wanted.text
        distinct = "" if is_once else "DISTINCT "
        source = Sql(
            f"SELECT {distinct}row FROM cells WHERE field = ? AND {wanted.text}",
            (number, *wanted.values),
        )

        def check(row: str, few: bool) -> Sql:
            return Sql(
                f"EXISTS (SELECT 1 FROM cells INDEXED BY cells_by_row"
                f" WHERE row = {row} AND field = ? AND {wanted.text})",
                (number, *wanted.values),
            )

        return Clause(check, source, self._estimate(source))


def _flatten(tests: Sequence[SearchQuery]) -> Sequence[SearchQuery]:
    found: list[SearchQuery] = []
    for test in tests:
        found += _flatten(test.tests) if isinstance(test, And) else [test]
    return found


def _nothing() -> Clause:
    return Clause(lambda row, few: Sql("0"), Sql("SELECT id AS row FROM rows WHERE 0"), 0)


def _and_clauses(clauses: Sequence[Clause]) -> Clause:
    def check(row: str, few: bool) -> Sql:
        return _join_parts([clause.check(row, few) for clause in clauses], " AND ")

    with_source = [clause for clause in clauses if clause.source is not None]
    if not with_source:
        return Clause(check)
    rarest = min(with_source, key=lambda clause: clause.count)
    others = [clause for clause in clauses if clause is not rarest]
    assert rarest.source is not None, "it has a source"
    if not others:
        return rarest
    few = rarest.count <= FEW
    checks = _join_parts([clause.check("found.row", few) for clause in others], " AND ")
    source = Sql(
        f"SELECT found.row AS row FROM ({rarest.source.text}) AS found WHERE {checks.text}",
        rarest.source.values + checks.values,
    )
    return Clause(check, source, rarest.count)


def _or(clauses: Sequence[Clause]) -> Clause:
    def check(row: str, few: bool) -> Sql:
        return _join_parts([clause.check(row, few) for clause in clauses], " OR ")

    sources = [clause.source for clause in clauses if clause.source is not None]
    if len(sources) < len(clauses):
        return Clause(check)
    united = " UNION ".join(f"SELECT row FROM ({source.text})" for source in sources)
    values = tuple(value for source in sources for value in source.values)
    return Clause(check, Sql(united, values), sum(clause.count for clause in clauses))


def _not(clause: Clause) -> Clause:
    def check(row: str, few: bool) -> Sql:
        inner = clause.check(row, few)
        return Sql(f"NOT ({inner.text})", inner.values)

    return Clause(check)


def _join_parts(parts: Sequence[Sql], word: str) -> Sql:
    text = word.join(f"({part.text})" for part in parts)
    return Sql(f"({text})", tuple(value for part in parts for value in part.values))


FEW = 200
"""For so many rows, FTS5 is better asked for each row than once for all of its rows."""


# ---- Words in the syntax of FTS5 ----


def _match(number: int, query: Match) -> str:
    pieces = [_quote(number, [piece]) for run in cut_query(query.text) for piece in run]
    return _join(list(dict.fromkeys(pieces)), " AND " if query.every_word else " OR ")


def _quote(number: int, pieces: Sequence[Piece]) -> str:
    """Return pieces that must follow one another. No piece has a quote in it."""
    text = " ".join(field_piece(number, piece.text) for piece in pieces)
    return f'"{text}" *' if pieces[-1].is_begin else f'"{text}"'


def _join(expressions: Sequence[str], word: str) -> str:
    """Return expressions joined by a word; an empty one finds nothing."""
    if word == " AND " and "" in expressions:
        return ""
    known = [expression for expression in expressions if expression]
    if len(known) < 2:
        return "".join(known)
    return word.join(f"({expression})" for expression in known)


# ---- Values ----

_TEXTS = f"({TEXT}, {ELEMENT})"


def _condition(query: Equals | In | Range | Prefix | Exists) -> Sql:
    """Return the condition on a field's cell."""
    match query:
        case Exists():
            return Sql(f"kind <> {ELEMENT}")
        case Equals():
            return Sql(f"kind IN {_kinds(query.value)} AND value = ?", (query.value,))
        case In():
            return _in(query.values)
        case Prefix():
            end = _end_of_prefix(query.value)
            upper = Sql("") if end is None else Sql(" AND value < ?", (end,))
            return Sql(
                f"kind IN {_kinds(query.value)} AND value >= ?{upper.text}",
                (query.value, *upper.values),
            )
    return _range(query)


def _range(query: Range) -> Sql:
    bounds = [
        (query.from_, ">=" if query.include_from else ">"),
        (query.to, "<=" if query.include_to else "<"),
    ]
    given = [(bound, sign) for bound, sign in bounds if bound is not None]
    tests = " AND ".join(f"value {sign} ?" for _, sign in given)
    values = tuple(bound for bound, _ in given)
    return Sql(f"kind IN {_kinds(values[0])} AND {tests}", values)


def _in(values: Sequence[Scalar]) -> Sql:
    by_kind: dict[str, list[Scalar]] = {}
    for value in values:
        by_kind.setdefault(_kinds(value), []).append(value)
    parts = [
        Sql(f"kind IN {kinds} AND value IN ({', '.join('?' * len(some))})", tuple(some))
        for kinds, some in by_kind.items()
    ]
    return _join_parts(parts, " OR ")


def _kinds(value: Scalar) -> str:
    if isinstance(value, bool):
        return f"({BOOLEAN})"
    if isinstance(value, int | float):
        return f"({NUMBER})"
    return f"({BYTES})" if isinstance(value, bytes) else _TEXTS


def _end_of_prefix(prefix: str | bytes) -> str | bytes | None:
    """Return the first value after all that begin with a prefix; None if there is none."""
    if isinstance(prefix, bytes):
        kept = prefix.rstrip(b"\xff")
        return kept[:-1] + bytes([kept[-1] + 1]) if kept else None
    text = prefix.rstrip("\U0010ffff")
    if not text:
        return None
    following = ord(text[-1]) + 1
    if following == 0xD800:
        following = 0xE000  # No text has half of a surrogate pair.
    return text[:-1] + chr(following)
