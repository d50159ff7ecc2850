"""What a search asks for: tests of a row, the order of the rows that it finds, and the answer.

    Match("text", "hello world") & Range("size", from_=3) & ~Equals("kind", "bot")

A test is false for a row without the field. A field that stores a list of texts has the value of
each of its texts. Integers and doubles are compared as numbers, texts as their UTF-8 bytes. Values
of other types are never equal and have no order.

A bad query is rejected when it is made. The error names the field and the limit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from rowtide.client.search.pieces import cut_query
from rowtide.core.values.errors import invalid
from rowtide.core.values.limits import INT64_MAX
from rowtide.core.values.variant import Scalar

__all__ = [
    "SEARCH_WAIT_S",
    "And",
    "Equals",
    "Everything",
    "Exists",
    "In",
    "Match",
    "Not",
    "Or",
    "Phrase",
    "Prefix",
    "Range",
    "SearchPage",
    "SearchQuery",
    "SearchRequest",
    "Sort",
]

Hit = TypeVar("Hit")

PIECES_MAX = 512
"""Words of one ``Match`` or ``Phrase``, where each pair of Chinese characters is a word."""

VALUES_MAX = 1024
"""Values of one ``In``."""

TESTS_MAX = 256
DEPTH_MAX = 16
"""Tests of a query, and how deep they may be nested: SQLite's parser has such limits."""

SEARCH_WAIT_S = 30.0
"""How long a search waits for the index by default."""

LIMIT_MAX = 1000
OFFSET_MAX = 1_000_000
SORTS_MAX = 4


class SearchQuery:
    """A test of a row. Combine several with ``&``, ``|`` and ``~``."""

    __slots__ = ()

    def __and__(self, other: SearchQuery) -> And:
        return And((self, other))

    def __or__(self, other: SearchQuery) -> Or:
        return Or((self, other))

    def __invert__(self) -> Not:
        return Not(self)


@dataclass(frozen=True, slots=True)
class Everything(SearchQuery):
    """Every row."""


@dataclass(frozen=True, slots=True)
class Match(SearchQuery):
    """The field has a word of ``text``, or with ``every_word`` all of them, in any order.

    ``field`` None searches each field: one of them must match. Letter case does not count.
    """

    field: str | None
    text: str
    every_word: bool = False

    def __post_init__(self) -> None:
        _check_words("Match", self.field, self.text)


@dataclass(frozen=True, slots=True)
class Phrase(SearchQuery):
    """The field has the words of ``text`` one after another. ``field`` None searches each field."""

    field: str | None
    text: str

    def __post_init__(self) -> None:
        _check_words("Phrase", self.field, self.text)


@dataclass(frozen=True, slots=True)
class Equals(SearchQuery):
    """The field is exactly this value."""

    field: str
    value: Scalar

    def __post_init__(self) -> None:
        _check_field("Equals", self.field)
        _check_value("Equals", self.field, self.value)


@dataclass(frozen=True, slots=True)
class In(SearchQuery):
    """The field is one of the values."""

    field: str
    values: Sequence[Scalar]

    def __post_init__(self) -> None:
        _check_field("In", self.field)
        if isinstance(self.values, str | bytes):
            raise invalid(f"In on '{self.field}' takes a list of values, not one.")
        if not 1 <= len(self.values) <= VALUES_MAX:
            raise invalid(
                f"In on '{self.field}' takes 1 to {VALUES_MAX} values, not {len(self.values)}."
            )
        for value in self.values:
            _check_value("In", self.field, value)


@dataclass(frozen=True, slots=True)
class Range(SearchQuery):
    """The field is between two values: ``from_`` <= field < ``to``, unless said otherwise.

    A bound of None is open. Both bounds are numbers, texts or bytes.
    """

    field: str
    from_: Scalar | None = None
    to: Scalar | None = None
    include_from: bool = True
    include_to: bool = False

    def __post_init__(self) -> None:
        _check_field("Range", self.field)
        bounds = [bound for bound in (self.from_, self.to) if bound is not None]
        if not bounds:
            raise invalid(f"Range on '{self.field}' has no bound: use Exists for any value.")
        for bound in bounds:
            _check_value("Range", self.field, bound)
            if isinstance(bound, bool):
                raise invalid(f"Range on '{self.field}': a boolean has no order.")
        if len({_family(bound) for bound in bounds}) > 1:
            kinds = " and ".join(type(bound).__name__ for bound in bounds)
            raise invalid(f"Range on '{self.field}' has bounds of different types: {kinds}.")


@dataclass(frozen=True, slots=True)
class Prefix(SearchQuery):
    """The field begins with a text, or with bytes. Letter case counts."""

    field: str
    value: str | bytes

    def __post_init__(self) -> None:
        _check_field("Prefix", self.field)
        if not isinstance(self.value, str | bytes):
            raise invalid(
                f"Prefix on '{self.field}' takes a text or bytes, not {type(self.value).__name__}."
            )
        _check_value("Prefix", self.field, self.value)
        if not self.value:
            raise invalid(f"Prefix on '{self.field}' is empty: use Exists for any value.")


@dataclass(frozen=True, slots=True)
class Exists(SearchQuery):
    """The row has the field."""

    field: str

    def __post_init__(self) -> None:
        _check_field("Exists", self.field)


@dataclass(frozen=True, slots=True)
class And(SearchQuery):
    """All of the tests are true."""

    tests: Sequence[SearchQuery]

    def __post_init__(self) -> None:
        _check_tests("And", self.tests)


@dataclass(frozen=True, slots=True)
class Or(SearchQuery):
    """One of the tests is true, or several."""

    tests: Sequence[SearchQuery]

    def __post_init__(self) -> None:
        _check_tests("Or", self.tests)


@dataclass(frozen=True, slots=True)
class Not(SearchQuery):
    """The test is false."""

    test: SearchQuery

    def __post_init__(self) -> None:
        _check_tests("Not", [self.test])


@dataclass(frozen=True, slots=True)
class Sort:
    """Order by a field. Rows without it come last.

    Booleans come before numbers, then texts, then bytes. The key decides between equal values.
    """

    field: str
    descending: bool = False

    def __post_init__(self) -> None:
        _check_field("Sort", self.field)


@dataclass(frozen=True, slots=True)
class SearchPage(Generic[Hit]):
    """Some of the rows that match, and the exact number of all of them."""

    total: int
    hits: list[Hit]


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """A query with the part of its rows to return, in which order."""

    query: SearchQuery
    sort: Sequence[Sort] = ()
    offset: int = 0
    limit: int = 10

    def __post_init__(self) -> None:
        if not isinstance(self.query, SearchQuery):
            raise invalid(f"A query is a test such as Match(...), not {self.query!r}.")
        if not all(isinstance(sort, Sort) for sort in self.sort):
            raise invalid(f"'sort' is a list of Sort(...), not {self.sort!r}.")
        if len(self.sort) > SORTS_MAX:
            raise invalid(f"A search sorts by up to {SORTS_MAX} fields, not {len(self.sort)}.")
        _check_number("limit", self.limit, LIMIT_MAX)
        _check_number("offset", self.offset, OFFSET_MAX)
        count, depth = _measure(self.query)
        if count > TESTS_MAX:
            raise invalid(f"A query has up to {TESTS_MAX} tests, not {count}.")
        if depth > DEPTH_MAX:
            raise invalid(f"A query is nested up to {DEPTH_MAX} levels, not {depth}.")


def _check_number(name: str, value: object, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise invalid(f"The {name} of a search is an integer of 0 to {most}, not {value!r}.")


def _measure(query: SearchQuery) -> tuple[int, int]:
    """Return how many tests a query has, and how deep they are nested."""
    if isinstance(query, Not):
        parts: Sequence[SearchQuery] = [query.test]
    elif isinstance(query, And | Or):
        parts = query.tests
    else:
        return 1, 1
    measured = [_measure(part) for part in parts]
    return 1 + sum(count for count, _ in measured), 1 + max(depth for _, depth in measured)


def _check_tests(kind: str, tests: object) -> None:
    if not isinstance(tests, list | tuple) or not tests:
        raise invalid(f"{kind} takes a list of tests with one at least, not {tests!r}.")
    for test in tests:
        if not isinstance(test, SearchQuery):
            raise invalid(f"{kind} takes tests such as Match(...), not {test!r}.")


def _check_words(kind: str, field: object, text: object) -> None:
    if field is not None:
        _check_field(kind, field)
    where = f"{kind} on '{field}'" if field is not None else f"{kind} on any field"
    if not isinstance(text, str):
        raise invalid(f"{where} takes a text, not {type(text).__name__}.")
    count = sum(len(run) for run in cut_query(text))
    if not count:
        raise invalid(f"{where}: {text!r} has no letter and no digit to search for.")
    if count > PIECES_MAX:
        raise invalid(f"{where} takes up to {PIECES_MAX} words, not {count}.")
    _check_utf8(where, text)


def _check_field(kind: str, field: object) -> None:
    if not isinstance(field, str) or not field:
        raise invalid(f"{kind} needs the name of a field, not {field!r}.")
    _check_utf8(f"{kind}: the name of a field", field)


def _check_value(kind: str, field: str, value: object) -> None:
    where = f"{kind} on '{field}'"
    if not isinstance(value, int | float | str | bytes):
        raise invalid(f"{where} takes int, float, bool, str or bytes, not {type(value).__name__}.")
    if isinstance(value, float) and math.isnan(value):
        raise invalid(f"{where}: NaN is equal to nothing and has no order.")
    if isinstance(value, int) and not -INT64_MAX - 1 <= value <= INT64_MAX:
        raise invalid(f"{where}: {value} does not fit 64 bits.")
    if isinstance(value, str):
        _check_utf8(where, value)


def _check_utf8(where: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise invalid(f"{where} is not UTF-8: {error.reason}.") from error


def _family(value: Scalar) -> str:
    """Return which values have an order with this one."""
    return "number" if isinstance(value, int | float) else type(value).__name__
