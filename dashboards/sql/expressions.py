"""Compiles scalar expressions of a parsed query into code of a row.

A row is a tuple of values, and a scope knows which place of the row a node means. Types are
checked here, once, so that a running panel never meets a type that it cannot calculate with.
Everything means what it means in DuckDB: NULL, overflow, comparison of doubles.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple, Protocol

from sqlglot import exp

from rowtide.dashboards.sql.intervals import parse_timestamp
from rowtide.dashboards.sql.rejection import NodeRejected
from rowtide.dashboards.values.arithmetic import check_integer
from rowtide.dashboards.values.kinds import SqlType, Value, join_kinds
from rowtide.dashboards.values.row_code import RowCode, constant_code, join

__all__ = [
    "Expression",
    "Scope",
    "at_place",
    "constant",
    "convert",
    "explain_function",
    "join_expressions",
    "literal",
]

_CHANGING = (
    *(exp.Rand, exp.Randn, exp.CurrentTimestamp, exp.CurrentDate, exp.CurrentTime),
    *(exp.CurrentDatetime, exp.Uuid),
)
_CHANGING_NAMES = ("now", "today", "random", "setseed", "transaction_timestamp", "uuidv7")


class Expression(NamedTuple):
    """A compiled expression. ``literal`` is the value of a decimal or text literal."""

    kind: SqlType
    code: RowCode
    literal: Fraction | str | None = None


class Scope(Protocol):
    """What names mean in one part of a query."""

    def find(self, node: exp.Expr) -> Expression | None:
        """Return what the row has of this node; None if its parts have to be compiled.

        Raises ``NodeRejected`` for a column that does not exist here.
        """
        ...


def at_place(place: int, kind: SqlType) -> Expression:
    """Return the expression for a place of the row."""
    return Expression(kind, RowCode(f"row[{place}]"))


def constant(kind: SqlType, value: Value) -> Expression:
    """Return an expression that is the same in every row."""
    return Expression(kind, constant_code(value))


def literal(node: exp.Literal) -> Expression:
    """Return a number or a text. Raises ``NodeRejected`` for numbers past 128 bits."""
    text = str(node.this)
    if node.is_string:
        return Expression(SqlType.TEXT, constant_code(text), text)
    if text.isdigit():
        value = int(text)
        for kind in (SqlType.INTEGER, SqlType.BIGINT, SqlType.HUGEINT):
            try:
                return constant(kind, check_integer(value, kind))
            except ArithmeticError:
                continue
        raise NodeRejected(node, f"{text} has more than 128 bits")
    try:
        if "e" in text.lower():
            return constant(SqlType.DOUBLE, float(text))
        return Expression(SqlType.DECIMAL, constant_code(None), Fraction(text))
    except ValueError as error:
        raise NodeRejected(node, f"{text} is no number") from error


def convert(node: exp.Expr, found: Expression, kind: SqlType) -> Expression:
    """Return an expression in another type, as DuckDB converts by itself in comparisons.

    Raises ``NodeRejected`` if the types do not meet.
    """
    if found.kind is kind:
        return found
    if found.kind is SqlType.NULL:
        return constant(kind, None)
    if kind is SqlType.DOUBLE and isinstance(found.literal, Fraction):
        return constant(kind, float(found.literal))
    if kind is SqlType.DOUBLE and found.kind.is_integer:
        text = "None if ({t} := {0}) is None else {f}({t})"
        return Expression(kind, join(text, found.code, f=float))
    if kind.is_integer and found.kind.is_integer:
        return Expression(kind, found.code)
    if (
        kind is SqlType.TIMESTAMP
        and isinstance(found.literal, str)
        and isinstance(node, exp.Literal)
    ):
        return constant(kind, parse_timestamp(node))
    raise NodeRejected(node, f"{found.kind.value} and {kind.value} cannot be combined")


def join_expressions(
    nodes: Sequence[exp.Expr], found: Sequence[Expression]
) -> tuple[SqlType, list[Expression]]:
    """Return the type in which all expressions meet, and them in this type.

    Raises ``NodeRejected``.
    """
    kind = SqlType.NULL
    for node, expression in zip(nodes, found, strict=True):
        joined = join_kinds(kind, expression.kind)
        if {kind, expression.kind} == {SqlType.TEXT, SqlType.TIMESTAMP}:
            joined = SqlType.TIMESTAMP  # Only a literal converts, which is checked below.
        if joined is None:
            pair = f"{kind.value} and {expression.kind.value}"
            advice = ": write a double, such as 1.5e0" if SqlType.DECIMAL.value in pair else ""
            raise NodeRejected(node, f"{pair} cannot be combined{advice}")
        kind = joined
    return kind, [convert(n, e, kind) for n, e in zip(nodes, found, strict=True)]


def explain_function(node: exp.Expr) -> str:
    """Return why a function or an operator is not supported."""
    name = (node.name if isinstance(node, exp.Anonymous) else node.key).lower()
    if isinstance(node, _CHANGING) or name in _CHANGING_NAMES:
        shown = node.sql(dialect="duckdb").lower().removesuffix("()")
        return f"{shown}() has another value each time, so no number of the panel could be checked"
    return (
        f"{name} is not supported; supported are + - * / // %, comparisons, AND, OR, NOT, IN, "
        "BETWEEN, LIKE, IS NULL, CASE, CAST, coalesce, nullif, abs and time_bucket"
    )
