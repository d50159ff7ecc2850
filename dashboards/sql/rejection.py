"""Why a query cannot be a panel, and where in its text the reason is."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlglot import exp

__all__ = ["NodeRejected", "QueryRejected", "offset_of", "reject_at"]


class QueryRejected(ValueError):
    """A query that cannot be a panel. ``line`` and ``column`` count from 1."""

    def __init__(self, reason: str, line: int, column: int) -> None:
        super().__init__(f"line {line}, column {column}: {reason}")
        self.reason = reason
        self.line = line
        self.column = column


class NodeRejected(Exception):
    """A part of a parsed query that cannot be in a panel, before its place is known."""

    def __init__(self, node: exp.Expr, reason: str) -> None:
        super().__init__(reason)
        self.node = node
        self.reason = reason


def reject_at(text: str, offset: int, reason: str) -> QueryRejected:
    """Return the error for the character at ``offset`` of ``text``."""
    before = text[:offset]
    line_start = before.rfind("\n") + 1
    return QueryRejected(reason, before.count("\n") + 1, offset - line_start + 1)


def offset_of(node: exp.Expr) -> int:
    """Return where a node begins in its text.

    The parser notes places of names, literals and functions only. So a node begins at the first
    place within it, or within the nearest node around it that has one.
    """
    around: exp.Expr | None = node
    while around is not None:
        places = [int(inner.meta["start"]) for inner in around.walk() if "start" in inner.meta]
        if places:
            return min(places)
        around = around.parent
    return 0
