"""The syntax of a timeline search: words, or one JSON object.

    hello world                        all of the words, in one field
    {"match": {"text": "hello bob"}}   one of the words; "match_every": all of them
    {"phrase": {"text": "good day"}}   words one after another
    {"equals": {"size": 3}}            {"in": {"size": [3, 4]}}   {"prefix": {"name": "gr"}}
    {"range": {"size": {"gte": 3, "lt": 10}}}                     {"exists": "size"}
    {"and": [...]}  {"or": [...]}  {"not": {...}}  {"all": true}

Several members of an object must all be true. Instead of {"FIELD": "TEXT"}, a text alone searches
each field. A value is written as a column's is: {"base64": "..."} for binary.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NoReturn

import click

from rowtide.cli.value_syntax import SyntaxRefused, from_json
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
    Sort,
)
from rowtide.core.values.errors import Rejected
from rowtide.core.values.variant import Scalar

__all__ = ["parse_search", "parse_sort"]

DEPTH_MAX = 32
"""Beyond that a query is refused anyway; Python's recursion ends much later."""


def parse_search(text: str) -> SearchQuery:
    """Return the query that an argument gives. Raises ``UsageError``."""
    try:
        if not text.lstrip().startswith("{"):
            return Match(None, text, every_word=True)
        try:
            found = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise click.UsageError(f"The query is not JSON: {error}.") from error
        return _query(found, 1)
    except SyntaxRefused as error:
        raise click.UsageError(f"{error}.") from error
    except Rejected as error:
        raise click.UsageError(error.message) from error


def parse_sort(text: str) -> Sort:
    """Return the order that an option gives: NAME, or -NAME for the largest first."""
    try:
        return Sort(text.removeprefix("-"), descending=text.startswith("-"))
    except Rejected as error:
        raise click.UsageError(error.message) from error


def _query(found: Any, depth: int) -> SearchQuery:
    if not isinstance(found, dict) or not found:
        _refuse(found, 'is no test: write an object such as {"match": {"FIELD": "TEXT"}}')
    if depth > DEPTH_MAX:
        raise click.UsageError(f"The query is nested deeper than {DEPTH_MAX} levels.")
    return _all(_test(name, member, depth) for name, member in found.items())


def _test(name: str, member: Any, depth: int) -> SearchQuery:
    match name:
        case "and" | "or":
            if not isinstance(member, list):
                _refuse(member, f'is no list: "{name}" takes a list of tests')
            tests = [_query(part, depth + 1) for part in member]
            return And(tests) if name == "and" else Or(tests)
        case "not":
            return Not(_query(member, depth + 1))
        case "all":
            return Everything()
        case "exists":
            return Exists(member)
        case "match" | "match_every" | "phrase" if isinstance(member, str):
            return _of_field(name, None, member)
    if name not in _FIELD_TESTS:
        known = ", ".join([*_FIELD_TESTS, "exists", "and", "or", "not", "all"])
        raise click.UsageError(f"There is no test '{name}': write one of {known}.")
    if not isinstance(member, dict) or not member:
        _refuse(member, f'names no field: write {{"{name}": {{"FIELD": ...}}}}')
    return _all(_of_field(name, field, value) for field, value in member.items())


def _of_field(name: str, field: str | None, value: Any) -> SearchQuery:
    return _FIELD_TESTS[name](field, value)


def _all(tests: Any) -> SearchQuery:
    found = list(tests)
    return found[0] if len(found) == 1 else And(found)


def _in(field: Any, values: Any) -> SearchQuery:
    if not isinstance(values, list):
        _refuse(values, f'is no list: "in" on {field} takes a list of values')
    return In(field, [from_json(field, value) for value in values])


_BOUNDS = {"gt", "gte", "lt", "lte"}


def _range(field: Any, bounds: Any) -> SearchQuery:
    if not isinstance(bounds, dict) or not bounds or set(bounds) - _BOUNDS:
        _refuse(bounds, f"has no bounds for {field}: write gt or gte, lt or lte, or one of each")
    if {"gt", "gte"} <= set(bounds) or {"lt", "lte"} <= set(bounds):
        _refuse(bounds, f"has two bounds on one side for {field}")

    def read_bound(*names: str) -> Scalar | None:
        given = [bounds[name] for name in names if name in bounds]
        return from_json(field, given[0]) if given else None

    return Range(
        field,
        read_bound("gt", "gte"),
        read_bound("lt", "lte"),
        include_from="gt" not in bounds,
        include_to="lte" in bounds,
    )


_FIELD_TESTS: dict[str, Callable[[Any, Any], SearchQuery]] = {
    "match": Match,
    "match_every": lambda field, text: Match(field, text, every_word=True),
    "phrase": Phrase,
    "equals": lambda field, value: Equals(field, from_json(field, value)),
    "in": _in,
    "range": _range,
    "prefix": lambda field, value: Prefix(field, from_json(field, value)),  # type: ignore[arg-type]
}


def _refuse(found: Any, why: str) -> NoReturn:
    raise click.UsageError(f"{json.dumps(found, ensure_ascii=False)[:200]} {why}.")
