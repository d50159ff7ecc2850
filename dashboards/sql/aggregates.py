"""Which states and results the aggregates of a query need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

from sqlglot import exp

from rowtide.dashboards.fold import results
from rowtide.dashboards.fold.plan import ResultSpec, StateSpec
from rowtide.dashboards.sql.compiling import compile_condition, compile_node
from rowtide.dashboards.sql.expressions import Expression, Scope
from rowtide.dashboards.sql.rejection import NodeRejected
from rowtide.dashboards.values.kinds import SqlType

__all__ = ["AGGREGATES", "Aggregates", "is_aggregate"]

AGGREGATES = (
    *(exp.Count, exp.Sum, exp.Avg, exp.Min, exp.Max),
    *(exp.PercentileDisc, exp.ApproxQuantile),
)

_ARGUMENTS = ("this", "big_int", "expression", "quantile")


def is_aggregate(node: exp.Expr) -> bool:
    """True for an aggregate that a panel can have, also with FILTER."""
    return isinstance(node, (*AGGREGATES, exp.Filter))


class _Needs(NamedTuple):
    """What an aggregate needs: a state, its argument, and the result's type and function."""

    state: str
    argument: exp.Expr | None
    compiled: Expression | None
    kind: SqlType
    finish: results.Finish
    is_approximate: bool = False


@dataclass(slots=True)
class Aggregates:
    """The aggregates that were met so far. Equal ones, and those of equal states, share."""

    rows: Scope
    states: list[StateSpec] = field(default_factory=list)
    results: list[ResultSpec] = field(default_factory=list)
    _places: dict[tuple[str, str, str], int] = field(default_factory=dict)
    _met: dict[str, int] = field(default_factory=dict)

    def place_of(self, node: exp.Expr) -> int:
        """Return the place of an aggregate's result. Raises ``NodeRejected``."""
        text = node.sql(dialect="duckdb")
        if text not in self._met:
            self._met[text] = self._add(node)
        return self._met[text]

    def _add(self, node: exp.Expr) -> int:
        condition_node: exp.Expr | None = None
        call = node
        if isinstance(node, exp.Filter):
            call, condition_node = node.this, node.expression.this
        if not isinstance(call, AGGREGATES):
            raise NodeRejected(call, "FILTER is supported after an aggregate only")
        _reject_nested(call)
        needs = self._needs(call)
        condition = None
        if condition_node is not None:
            condition = compile_condition(condition_node, self.rows)
        key = (needs.state, _text(needs.argument), _text(condition_node))
        if key not in self._places:
            self._places[key] = len(self.states)
            argument = needs.compiled.code if needs.compiled else None
            self.states.append(StateSpec(needs.state, argument, condition))
        place = self._places[key]
        result = ResultSpec(needs.kind, place, needs.finish, needs.is_approximate, _text(node))
        self.results.append(result)
        return len(self.results) - 1

    def _needs(self, call: exp.Expr) -> _Needs:
        if isinstance(call, exp.Count):
            return self._count_needs(call)
        argument = call.this
        if isinstance(argument, exp.Distinct):
            raise NodeRejected(call, f"DISTINCT is supported in count only, not in {call.key}")
        _reject_surplus(call)
        found = compile_node(argument, self.rows)
        if isinstance(call, exp.Sum | exp.Avg):
            state = "doubles" if _number(argument, found) is SqlType.DOUBLE else "integers"
            if isinstance(call, exp.Avg):
                return _Needs(state, argument, found, SqlType.DOUBLE, results.average)
            kind = SqlType.DOUBLE if state == "doubles" else SqlType.HUGEINT
            return _Needs(state, argument, found, kind, results.total)
        if isinstance(call, exp.ApproxQuantile):
            _number(argument, found)
            quantile = float(_quantile(call.args["quantile"]))
            finish = results.quantile_approximately(quantile)
            return _Needs("sketch", argument, found, SqlType.DOUBLE, finish, True)
        _require_typed(argument, found)
        if isinstance(call, exp.PercentileDisc):
            finish = results.quantile_exactly(_quantile(call.expression))
        else:
            finish = results.lowest if isinstance(call, exp.Min) else results.highest
        return _Needs("values", argument, found, found.kind, finish)

    def _count_needs(self, call: exp.Count) -> _Needs:
        argument = call.this
        _reject_surplus(call)
        if argument is None or isinstance(argument, exp.Star):
            return _Needs("count", None, None, SqlType.BIGINT, results.count)
        if not isinstance(argument, exp.Distinct):
            found = compile_node(argument, self.rows)
            return _Needs("count", argument, found, SqlType.BIGINT, results.count)
        counted: Sequence[exp.Expr] = argument.expressions
        if len(counted) != 1 or argument.args.get("on"):
            raise NodeRejected(call, "count(DISTINCT) takes one expression")
        found = compile_node(counted[0], self.rows)
        _require_typed(counted[0], found)
        return _Needs("values", counted[0], found, SqlType.BIGINT, results.distinct_count)


def _text(node: exp.Expr | None) -> str:
    return "" if node is None else node.sql(dialect="duckdb")


def _reject_nested(call: exp.Expr) -> None:
    for inner in call.walk():
        if inner is not call and is_aggregate(inner):
            raise NodeRejected(inner, "an aggregate cannot be within another one")


def _reject_surplus(call: exp.Expr) -> None:
    """Reject arguments that the aggregate does not have here, such as max(x, 3)."""
    surplus = [n for n, v in call.args.items() if v and n not in _ARGUMENTS]
    if surplus:
        raise NodeRejected(call, f"{call.key} takes one expression here")
    if isinstance(call.this, exp.Order):
        raise NodeRejected(call, "ORDER BY within an aggregate is not supported")


def _number(node: exp.Expr, found: Expression) -> SqlType:
    if not found.kind.is_number:
        raise NodeRejected(node, f"{found.kind.value} is no number to aggregate")
    return found.kind


def _require_typed(node: exp.Expr, found: Expression) -> None:
    if found.kind in (SqlType.NULL, SqlType.DECIMAL):
        raise NodeRejected(node, f"an aggregate of {found.kind.value} is not supported")


def _quantile(node: exp.Expr) -> Fraction | float:
    """Return a quantile: exact if it is written as a decimal, as in DuckDB."""
    text = str(node.this) if isinstance(node, exp.Literal) and not node.is_string else ""
    try:
        found = float(text) if "e" in text.lower() else Fraction(text)
    except ValueError:
        found = -1.0
    if not 0 <= found <= 1:
        raise NodeRejected(node, "a quantile must be a number from 0 to 1, such as 0.99")
    return found
