"""The filter of a connector: which rows its sink gets.

    status = 'open' and (amount >= 10.5 or urgent = true) and not country in ('de', 'fr')
    note is null

    test       column = | != | <> | < | <= | > | >= value
               column in (value, ...), column is null, column is not null
    joined by  and, or, not, brackets; `not` binds closest, then `and`
    column     a name of letters, digits and _, or any name in "double quotes"
    value      'text' ('' is a quote), 5, 1.5, true, false

Key columns and other columns are tested alike. A comparison with an absent column, or
with one of another type, is false, also for `!=`. Integers and doubles can be compared
with each other. There is no third truth value: `not` of a false comparison is true.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rowtide.connectors.fields import SettingsRefused
from rowtide.core.values.variant import Scalar

__all__ = ["RowTest", "parse_test"]

Row = Mapping[str, Scalar]
Test = Callable[[Row], bool]

_TOKEN = re.compile(
    r"""\s*(?:(?P<text>'(?:[^']|'')*')|(?P<quoted>"[^"]+")
    |(?P<number>[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)|(?P<name>[^\W\d]\w*)
    |(?P<sign><=|>=|!=|<>|[=<>(),]))""",
    re.VERBOSE,
)
_COMPARE: Mapping[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_WORDS = frozenset(("and", "or", "not", "in", "is", "null", "true", "false"))
DEPTH_MAX = 50
SHOWN_CHARS_MAX = 500
NUMBER_CHARS_MAX = 400
"""A double has at most 309 digits before its point. Python refuses to read 4,300 or more."""


@dataclass(frozen=True, slots=True)
class RowTest:
    """A filter: its text, the columns that it reads, and the test. Equal texts are equal."""

    text: str
    columns: frozenset[str]
    holds: Test = field(compare=False)


def parse_test(text: str, where: str) -> RowTest:
    """Return the filter of a text. Raises ``SettingsRefused``."""
    parser = _Parser(text, where)
    test = parser.whole()
    return RowTest(text, frozenset(parser.columns), test)


class _Parser:
    """Reads a text from start to end, one word ahead."""

    def __init__(self, text: str, where: str) -> None:
        self._text = text
        self._where = where
        self._at = 0
        self._depth = 0
        self.columns: set[str] = set()
        self._kind, self._word = "", ""
        self._next()

    def whole(self) -> Test:
        """Return the test of the whole text."""
        test = self._either()
        if self._kind:
            raise self._make_error("the end")
        return test

    def _either(self) -> Test:
        self._descend()
        tests = [self._both()]
        while self._took("or"):
            tests.append(self._both())
        self._depth -= 1
        return tests[0] if len(tests) == 1 else lambda row: any(test(row) for test in tests)

    def _descend(self) -> None:
        """Go a level deeper. Each one is a call in the parser and in the test."""
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise SettingsRefused(f"{self._where} is nested deeper than {DEPTH_MAX}.")

    def _both(self) -> Test:
        tests = [self._one()]
        while self._took("and"):
            tests.append(self._one())
        return tests[0] if len(tests) == 1 else lambda row: all(test(row) for test in tests)

    def _one(self) -> Test:
        if self._took("not"):
            self._descend()
            test = self._one()
            self._depth -= 1
            return lambda row: not test(row)
        if self._took("("):
            test = self._either()
            self._require(")")
            return test
        return self._comparison(self._column())

    def _comparison(self, column: str) -> Test:
        if self._took("is"):
            there = self._took("not")
            self._require("null")
            return lambda row: (column in row) == there
        if self._took("in"):
            return self._among(column)
        compare = _COMPARE.get(self._word) if self._kind == "sign" else None
        if compare is None:
            raise self._make_error("=, !=, <, <=, >, >=, in or is")
        self._next()
        return _make_comparison(column, compare, self._value())

    def _among(self, column: str) -> Test:
        self._require("(")
        tests = [_make_comparison(column, operator.eq, self._value())]
        while self._took(","):
            tests.append(_make_comparison(column, operator.eq, self._value()))
        self._require(")")
        return lambda row: any(test(row) for test in tests)

    def _column(self) -> str:
        if self._kind == "name" and self._word.lower() not in _WORDS:
            name = self._word
        elif self._kind == "quoted":
            name = self._word[1:-1]
        else:
            raise self._make_error("a column")
        self._next()
        self.columns.add(name)
        return name

    def _value(self) -> Scalar:
        kind, word = self._kind, self._word
        value: Scalar
        if kind == "text":
            value = word[1:-1].replace("''", "'")
        elif kind == "number":
            if len(word) > NUMBER_CHARS_MAX:
                raise self._make_error(f"a number of at most {NUMBER_CHARS_MAX} characters")
            value = int(word) if word.lstrip("+-").isdigit() else float(word)
        elif kind == "name" and word.lower() in ("true", "false"):
            value = word.lower() == "true"
        else:
            raise self._make_error("a value: 'text', a number, true or false")
        self._next()
        return value

    # Words.

    def _took(self, word: str) -> bool:
        """Consume a word if it is the next one. True if it was."""
        if self._kind in ("name", "sign") and self._word.lower() == word:
            self._next()
            return True
        return False

    def _require(self, word: str) -> None:
        if not self._took(word):
            raise self._make_error(word)

    def _next(self) -> None:
        found = _TOKEN.match(self._text, self._at)
        if found is None:
            self._kind, self._word = "", ""
            if self._text[self._at :].strip():
                self._kind = "other"
                self._word = self._text[self._at :].strip()[:20]
            return
        self._at = found.end()
        self._kind = str(found.lastgroup)
        self._word = found[self._kind]

    def _make_error(self, wanted: str) -> SettingsRefused:
        found = self._word or "the end"
        text = self._text
        shown = text if len(text) <= SHOWN_CHARS_MAX else f"{text[:SHOWN_CHARS_MAX]}..."
        found = found if len(found) <= SHOWN_CHARS_MAX else f"{found[:SHOWN_CHARS_MAX]}..."
        return SettingsRefused(f"{self._where}: {shown!r} has {found!r} in place of {wanted}.")


def _make_comparison(column: str, compare: Callable[[Any, Any], Any], value: Scalar) -> Test:
    kinds = (int, float) if type(value) in (int, float) else (type(value),)

    def test(row: Row) -> bool:
        found = row.get(column)
        return type(found) in kinds and bool(compare(found, value))

    return test
