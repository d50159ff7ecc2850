"""What a search finds, by looking at each row: slow, and written without the index's code."""

from __future__ import annotations

import json
import math
import unicodedata
from collections.abc import Callable, Mapping
from typing import Any

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
    SearchRequest,
)
from rowtide.core.values.variant import Scalar

__all__ = ["expected"]

Row = Mapping[str, Scalar]
SCRIPTS = ("CJK UNIFIED", "HIRAGANA", "KATAKANA", "HANGUL")


def expected(rows: Mapping[bytes, Row], request: SearchRequest) -> tuple[int, list[Row]]:
    """Return how many rows match, and the page of a request; ``rows`` are by their keys."""
    found = sorted((key, row) for key, row in rows.items() if holds(request.query, row))
    for sort in reversed(request.sort):
        having = [pair for pair in found if sort.field in pair[1]]
        lacking = [pair for pair in found if sort.field not in pair[1]]
        # Python's sort keeps the order of equal values, reversed too.
        having.sort(key=lambda pair: rank(pair[1][sort.field]), reverse=sort.descending)
        found = having + lacking
    page = found[request.offset : request.offset + request.limit]
    return len(found), [row for _, row in page]


def rank(value: Scalar) -> tuple[int, Any]:
    if isinstance(value, bool):
        return 1, value
    if isinstance(value, float) and math.isnan(value):
        return 5, 0
    if isinstance(value, int | float):
        return 2, value
    return (3, value) if isinstance(value, str) else (4, value)


def holds(query: SearchQuery, row: Row) -> bool:
    """True if a row matches."""
    match query:
        case Everything():
            return True
        case And():
            return all(holds(test, row) for test in query.tests)
        case Or():
            return any(holds(test, row) for test in query.tests)
        case Not():
            return not holds(query.test, row)
        case Exists():
            return query.field in row
        case Match():
            return in_texts(row, query.field, lambda text: has_words(text, query))
        case Phrase():
            return in_texts(row, query.field, lambda text: has_phrase(text, query.text))
        case Equals():
            return any(same(value, query.value) for value in values_of(row, query.field))
        case In():
            found = values_of(row, query.field)
            return any(same(value, wanted) for value in found for wanted in query.values)
        case Prefix():
            return any(begins(value, query.value) for value in values_of(row, query.field))
        case Range():
            return any(between(value, query) for value in values_of(row, query.field))
    raise AssertionError(query)


def values_of(row: Row, field: str) -> list[Scalar]:
    if field not in row:
        return []
    value = row[field]
    return [value, *(elements(value) if isinstance(value, str) else ())]


def elements(text: str) -> list[str]:
    try:
        found = json.loads(text)
    except ValueError:
        return []
    is_list = isinstance(found, list) and all(isinstance(one, str) for one in found)
    return found if is_list else []


def family(value: Scalar) -> type:
    if isinstance(value, bool):
        return bool
    return float if isinstance(value, int | float) else type(value)


def same(value: Scalar, wanted: Scalar) -> bool:
    return family(value) is family(wanted) and value == wanted


def begins(value: Scalar, prefix: str | bytes) -> bool:
    if isinstance(value, str) and isinstance(prefix, str):
        return value.startswith(prefix)
    return isinstance(value, bytes) and isinstance(prefix, bytes) and value.startswith(prefix)


def between(value: Any, query: Range) -> bool:
    low: Any = query.from_
    high: Any = query.to
    for bound in (low, high):
        if bound is not None and family(value) is not family(bound):
            return False
    above = low is None or value > low or (query.include_from and value == low)
    below = high is None or value < high or (query.include_to and value == high)
    return bool(above and below)


# Words.


def in_texts(row: Row, field: str | None, test: Callable[[str], bool]) -> bool:
    """True if the test holds for one text of the field, or of a list's texts together."""
    for name, value in row.items():
        # A mark between the texts of a list that belongs to no word.
        texts = elements(value) or [value] if isinstance(value, str) else []
        if field in (None, name) and texts and test("\n\x00\n".join(texts)):
            return True
    return False


def atoms(text: str) -> list[str]:
    """Return words, and runs of letters of scripts without spaces."""
    plain = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    found: list[str] = []
    last = ""
    for letter in plain:
        kind = "cut" if is_cut(letter) else "word" if letter.isalnum() else ""
        if letter == "\x00":
            found.append("\x00")
        elif kind and kind == last:
            found[-1] += letter
        elif kind:
            found.append(letter)
        last = kind
    return found


def is_cut(letter: str) -> bool:
    return letter.isalnum() and unicodedata.name(letter, "").startswith(SCRIPTS)


def has_words(text: str, query: Match) -> bool:
    stored = atoms(text)
    answers: list[bool] = []
    for atom in atoms(query.text):
        if not is_cut(atom[0]):
            answers.append(atom in stored)
        elif len(atom) == 1:
            answers.append(any(atom in run for run in stored))
        else:
            pairs = [atom[at : at + 2] for at in range(len(atom) - 1)]
            answers += [any(pair in run for run in stored) for pair in pairs]
    return all(answers) if query.every_word else any(answers)


def has_phrase(text: str, phrase: str) -> bool:
    wanted = atoms(phrase)
    before = "" if is_cut(wanted[0][0]) else " "
    after = "" if is_cut(wanted[-1][0]) else " "
    return f"{before}{' '.join(wanted)}{after}" in f" {' '.join(atoms(text))} "
