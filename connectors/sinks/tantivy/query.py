"""A user's query as tantivy's query: words, and columns by their names.

    running shoes                  either word, in any text of a row; rows with both come first
    carrier:UA AND dep_delay:>60   columns, by value and by range; AND, OR, NOT, ( )
    title:"run shoes"~2            words close together, with at most two others between them
    day:[2013-01-05 TO 2013-02-01} a range, ] and } with and without its end
    tail:* -tail:N14228            rows that have a column, without those of a value
    carrier:IN [UA AA]             any of these

Syntax and parser are tantivy's. Its tree is rewritten, because a column is a path within
one field of ours, which users need not know.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import tantivy

__all__ = ["COLUMNS", "KEY", "STAMP", "TEXT", "QueryRefused", "build_query"]

KEY, STAMP, TEXT, COLUMNS = "_key", "_stamp", "_text", "_columns"
"""The fields of a document."""

_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_OCCURS = {
    "must": tantivy.Occur.Must,
    "must_not": tantivy.Occur.MustNot,
    "should": tantivy.Occur.Should,
    None: tantivy.Occur.Should,
}
_HINT = "Values with other characters than letters and digits are written in double quotes."


class QueryRefused(ValueError):
    """A query that can't be parsed or run. The text says why."""


def build_query(query: str, index: Any) -> Any:
    """Return a query for ``index``. Raises ``QueryRefused``."""
    try:
        tree = tantivy.parse_query(query)
    except ValueError as error:
        raise QueryRefused(f"The query {query!r} can't be read. {_HINT}") from error
    try:
        return _build(tree, index)
    except ValueError as error:
        reason = str(error).rstrip(".")
        raise QueryRefused(f"The query {query!r} can't be read: {reason}. {_HINT}") from error


def _build(tree: Mapping[str, Any], index: Any) -> Any:
    match tree["type"]:
        case "bool":
            return _every(tree["clauses"], index)
        case "boost":
            return tantivy.Query.boost_query(_build(tree["underlying"], index), tree["boost"])
        case "all":
            return tantivy.Query.all_query()
        case "range":
            return _range(tree, index)
        case "set":
            any_of = [("should", _literal(tree["field"], text)) for text in tree["elements"]]
            return _every(any_of, index)
        case kind:
            return index.parse_query(_leaf(kind, tree), [TEXT], allow_regexes=True)


def _every(clauses: Iterable[tuple[str | None, Mapping[str, Any]]], index: Any) -> Any:
    built = [(_OCCURS[occurs], _build(tree, index)) for occurs, tree in clauses]
    if not built:
        return tantivy.Query.empty_query()
    if all(occurs == tantivy.Occur.MustNot for occurs, _ in built):
        # Exclusions alone find nothing. They are meant to exclude from all rows.
        built.append((tantivy.Occur.Must, tantivy.Query.all_query()))
    return tantivy.Query.boolean_query(built)


def _literal(column: str | None, text: str) -> Mapping[str, Any]:
    """Return a part of a tree for a text. Its words are analysed like those of rows."""
    return {"type": "literal", "field_name": column, "phrase": text, "slop": 0, "prefix": False}


def _leaf(kind: str, tree: Mapping[str, Any]) -> str:
    """Return the text of a part of a query, with the column's path for its name."""
    match kind:
        case "literal":
            return _path(tree["field_name"]) + _quote(tree)
        case "exists":
            return f"{_path(tree['field'])}*"
        case "regex":
            return f"{_path(tree['field'])}/{tree['pattern']}/"
    raise ValueError(f"{kind} is not known")


def _path(column: str | None) -> str:
    if column is None:
        return ""
    # The parser's tree has plain names, except for escaped points.
    name = column.replace("\\.", ".")
    return f"{COLUMNS}." + re.sub(r"([^\w.])", r"\\\1", name) + ":"


def _quote(tree: Mapping[str, Any]) -> str:
    slop = f"~{tree['slop']}" if tree["slop"] else ""
    return _in_quotes(tree["phrase"]) + ("*" if tree["prefix"] else slop)


def _in_quotes(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _range(tree: Mapping[str, Any], index: Any) -> Any:
    """Return a range. A range of days also matches times, because such texts are indexed
    as times.
    """
    bounds = [_read_end(tree, "lower"), _read_end(tree, "upper")]
    texts = {_range_text(tree, *bounds), _range_text(tree, *map(_midnight, bounds))}
    built = [(tantivy.Occur.Should, index.parse_query(text, [TEXT])) for text in sorted(texts)]
    return built[0][1] if len(built) == 1 else tantivy.Query.boolean_query(built)


def _read_end(tree: Mapping[str, Any], side: str) -> str:
    """Return an end of a range as it was written. The parser removed its quotes."""
    return str(tree[side].get("value", "*"))


def _midnight(bound: str) -> str:
    return f"{bound}T00:00:00Z" if _DAY.fullmatch(bound) else bound


def _range_text(tree: Mapping[str, Any], low: str, high: str) -> str:
    opening = "[" if tree["lower"]["type"] == "inclusive" else "{"
    closing = "]" if tree["upper"]["type"] == "inclusive" else "}"
    return f"{_path(tree['field'])}{opening}{low} TO {high}{closing}"
