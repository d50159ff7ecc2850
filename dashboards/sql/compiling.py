"""Compiles each kind of scalar node; ``compile_node`` is the entry."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import cast

from sqlglot import exp

from rowtide.dashboards.sql.expressions import (
    Expression,
    Scope,
    constant,
    convert,
    explain_function,
    join_expressions,
    literal,
)
from rowtide.dashboards.sql.intervals import (
    BUCKET_ORIGIN_US,
    bucket_starts,
    parse_interval,
    parse_timestamp,
)
from rowtide.dashboards.sql.rejection import NodeRejected
from rowtide.dashboards.values.arithmetic import (
    check_integer,
    comparison,
    divide,
    divide_whole,
    like_pattern,
    remainder,
)
from rowtide.dashboards.values.kinds import SqlType, Value, join_kinds
from rowtide.dashboards.values.row_code import RowCode, constant_code, join

__all__ = ["compile_condition", "compile_node"]

_COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.GT: ">",
    exp.LTE: "<=",
    exp.GTE: ">=",
}


def compile_node(node: exp.Expr, scope: Scope) -> Expression:
    """Return the compiled expression of a node. Raises ``NodeRejected``."""
    found = scope.find(node)
    if found is not None:
        return found
    if type(node) in _COMPARISONS:
        return _compile_comparison(node, scope)
    compile_kind = _COMPILERS.get(type(node))
    if compile_kind is None:
        raise NodeRejected(node, explain_function(node))
    return compile_kind(node, scope)


def compile_condition(node: exp.Expr, scope: Scope) -> RowCode:
    """Return the code of a condition: true, false or NULL. Raises ``NodeRejected``."""
    found = compile_node(node, scope)
    if found.kind not in (SqlType.BOOLEAN, SqlType.NULL):
        raise NodeRejected(node, f"a condition must be BOOLEAN, but is {found.kind.value}")
    return found.code


def _null_if_any(template: str, *parts: RowCode, **named: object) -> RowCode:
    """Return the code of a template, which is NULL if any of its one or two parts is."""
    tests: list[str] = []
    for place, (part, name) in enumerate(zip(parts, ("{t}", "{u}"), strict=False)):
        if part.value is None:
            template = template.replace(f"{{{place}}}", name)
            tests.append(f"({name} := {{{place}}}) is None")
    if tests:
        template = f"None if {' or '.join(tests)} else {template}"
    return join(template, *parts, **named)


def _call(function: Callable[..., Value], *parts: RowCode) -> RowCode:
    """Return the code that calls a function of values, NULL if any value is."""
    arguments = ", ".join(f"{{{place}}}" for place in range(len(parts)))
    return _null_if_any(f"{{f}}({arguments})", *parts, f=function)


def _check_range(text: str, kind: SqlType, *parts: RowCode) -> RowCode:
    """Return the code of an integer that raises ``OutOfRange`` if its type cannot have it."""
    return _null_if_any(f"{{f}}({text})", *parts, f=lambda value: check_integer(value, kind))


def _compile_literal(node: exp.Expr, scope: Scope) -> Expression:
    return literal(cast(exp.Literal, node))


def _compile_boolean(node: exp.Expr, scope: Scope) -> Expression:
    return constant(SqlType.BOOLEAN, bool(node.this))


def _compile_null(node: exp.Expr, scope: Scope) -> Expression:
    return constant(SqlType.NULL, None)


def _compile_paren(node: exp.Expr, scope: Scope) -> Expression:
    return compile_node(node.this, scope)


def _compile_negation(node: exp.Expr, scope: Scope) -> Expression:
    found = compile_node(node.this, scope)
    if isinstance(found.literal, Fraction):
        return found._replace(literal=-found.literal)
    kind = found.kind
    if isinstance(node.this, exp.Literal) and kind.is_integer:
        # As in DuckDB, the sign belongs to the number: the lowest BIGINT can be written.
        value = -int(str(node.this.this))
        kind = SqlType.BIGINT if kind is SqlType.HUGEINT and value >= -(2**63) else kind
        return constant(kind, value)
    if kind is SqlType.DOUBLE:
        return Expression(kind, _null_if_any("-{0}", found.code))
    _require_number(node.this, found)
    return Expression(kind, _check_range("-{0}", kind, found.code))


def _compile_abs(node: exp.Expr, scope: Scope) -> Expression:
    found = compile_node(node.this, scope)
    _require_number(node.this, found)
    kind = found.kind
    if kind is SqlType.DOUBLE:
        return Expression(kind, _call(abs, found.code))
    return Expression(kind, _check_range("abs({0})", kind, found.code))


def _require_number(node: exp.Expr, found: Expression) -> None:
    if not found.kind.is_number:
        advice = ": write a double, such as 1.5e0" if found.kind is SqlType.DECIMAL else ""
        raise NodeRejected(node, f"{found.kind.value} is no number to calculate with{advice}")


_SIGNS: dict[type[exp.Expr], str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*"}
_WHOLE: dict[type[exp.Expr], Callable[[int, int], int | None]] = {
    exp.IntDiv: divide_whole,
    exp.Mod: remainder,
}


def _compile_arithmetic(node: exp.Expr, scope: Scope) -> Expression:
    nodes = [node.this, node.expression]
    if isinstance(node, exp.Add | exp.Sub) and isinstance(node.expression, exp.Interval):
        return _compile_shift(node, scope)
    found = [compile_node(part, scope) for part in nodes]
    if isinstance(node, exp.Div):
        parts = [_as_double(n, f) for n, f in zip(nodes, found, strict=True)]
        return Expression(SqlType.DOUBLE, _call(divide, *(part.code for part in parts)))
    kind, parts = join_expressions(nodes, found)
    if kind is SqlType.NULL:
        kind, parts = SqlType.INTEGER, [constant(SqlType.INTEGER, None)] * 2
    for part_node, part in zip(nodes, parts, strict=True):
        _require_number(part_node, part)
    codes = [part.code for part in parts]
    sign, function = _SIGNS.get(type(node)), _WHOLE.get(type(node))
    if sign is not None:
        text = f"{{0}} {sign} {{1}}"
        is_double = kind is SqlType.DOUBLE
        return Expression(
            kind, _null_if_any(text, *codes) if is_double else _check_range(text, kind, *codes)
        )
    if function is None or kind is SqlType.DOUBLE:
        raise NodeRejected(node, f"{node.key} is supported for integers only")
    whole = function

    def check(left: int, right: int) -> Value:
        result = whole(left, right)
        return None if result is None else check_integer(result, kind)

    return Expression(kind, _call(check, *codes))


def _as_double(node: exp.Expr, found: Expression) -> Expression:
    """Return an operand of a division, which is always of doubles."""
    if found.kind is not SqlType.DECIMAL and found.kind is not SqlType.NULL:
        _require_number(node, found)
    return convert(node, found, SqlType.DOUBLE)


def _compile_shift(node: exp.Expr, scope: Scope) -> Expression:
    found = compile_node(node.this, scope)
    if found.kind is not SqlType.TIMESTAMP:
        raise NodeRejected(node.this, f"an interval needs a TIMESTAMP, not {found.kind.value}")
    interval = parse_interval(node.expression)
    if interval.months:
        raise NodeRejected(node.expression, "only days and less can be added to a timestamp")
    shift_us = interval.microseconds if isinstance(node, exp.Add) else -interval.microseconds
    text = "{0} + {f}"
    return Expression(SqlType.TIMESTAMP, _null_if_any(text, found.code, f=shift_us))


def _compile_bucket(node: exp.Expr, scope: Scope) -> Expression:
    if node.args.get("origin") is not None or node.args.get("zone") is not None:
        raise NodeRejected(node, "time_bucket takes an interval and a column only")
    width = parse_interval(node.this)
    found = compile_node(node.expression, scope)
    if found.kind is not SqlType.TIMESTAMP:
        raise NodeRejected(
            node.expression, f"time_bucket is of a TIMESTAMP, not {found.kind.value}"
        )
    if width.microseconds:
        text = f"{{0}} - ({{0}} - {BUCKET_ORIGIN_US}) % {width.microseconds}"
        return Expression(SqlType.TIMESTAMP, _null_if_any(text, found.code))
    return Expression(SqlType.TIMESTAMP, _call(bucket_starts(width), found.code))


def _compile_comparison(node: exp.Expr, scope: Scope) -> Expression:
    nodes = [node.this, node.expression]
    kind, parts = join_expressions(nodes, [compile_node(part, scope) for part in nodes])
    symbol, codes = _COMPARISONS[type(node)], [part.code for part in parts]
    if _comparable(node, kind) is SqlType.DOUBLE:
        return Expression(SqlType.BOOLEAN, _call(comparison(symbol, kind), *codes))
    operator = {"=": "==", "<>": "!="}.get(symbol, symbol)
    return Expression(SqlType.BOOLEAN, _null_if_any(f"{{0}} {operator} {{1}}", *codes))


def _comparable(node: exp.Expr, kind: SqlType) -> SqlType:
    if kind is SqlType.DECIMAL:
        raise NodeRejected(node, "two decimals: write doubles, such as 1.5e0")
    return kind


def _compile_distinct(node: exp.Expr, scope: Scope) -> Expression:
    nodes = [node.this, node.expression]
    kind, parts = join_expressions(nodes, [compile_node(part, scope) for part in nodes])
    equal = comparison("=", _comparable(node, kind))
    wanted = isinstance(node, exp.NullSafeEQ)

    def same(first: Value, second: Value) -> Value:
        if first is None or second is None:
            return (first is second) is wanted
        return equal(first, second) is wanted

    codes = [part.code for part in parts]
    return Expression(SqlType.BOOLEAN, join("{f}({0}, {1})", *codes, f=same))


def _compile_and(node: exp.Expr, scope: Scope) -> Expression:
    return _compile_logic(node, scope, decides=False)


def _compile_or(node: exp.Expr, scope: Scope) -> Expression:
    return _compile_logic(node, scope, decides=True)


def _compile_logic(node: exp.Expr, scope: Scope, *, decides: bool) -> Expression:
    """Return AND, which false decides, or OR, which true decides."""
    left = compile_condition(node.this, scope)
    right = compile_condition(node.expression, scope)

    text = (
        f"{decides} if ({{t}} := {{0}}) is {decides} "
        f"else {decides} if ({{u}} := {{1}}) is {decides} "
        f"else None if {{t}} is None or {{u}} is None else {not decides}"
    )
    return Expression(SqlType.BOOLEAN, join(text, left, right))


def _compile_not(node: exp.Expr, scope: Scope) -> Expression:
    inner = compile_condition(node.this, scope)
    return Expression(SqlType.BOOLEAN, _null_if_any("not {0}", inner))


def _compile_is(node: exp.Expr, scope: Scope) -> Expression:
    wanted = node.expression
    if isinstance(wanted, exp.Null):
        inner = compile_node(node.this, scope).code
        return Expression(SqlType.BOOLEAN, join("({t} := {0}) is None", inner))
    if isinstance(wanted, exp.Boolean):
        truth, tested = bool(wanted.this), compile_condition(node.this, scope)
        return Expression(SqlType.BOOLEAN, join(f"{{0}} is {truth}", tested))
    raise NodeRejected(node, "IS is supported before NULL, TRUE and FALSE")


def _compile_in(node: exp.Expr, scope: Scope) -> Expression:
    nodes = [node.this, *node.expressions]
    if len(nodes) == 1:
        raise NodeRejected(node, "IN needs a list of values")
    kind, parts = join_expressions(nodes, [compile_node(part, scope) for part in nodes])
    equal = comparison("=", _comparable(node, kind))

    def find(value: Value, choices: Sequence[Value]) -> Value:
        if any(choice is not None and equal(value, choice) for choice in choices):
            return True
        return None if None in choices else False

    wanted, *choices = [part.code for part in parts]
    listed = ", ".join(f"{{{place}}}" for place in range(1, len(parts)))
    text = f"None if ({{t}} := {{0}}) is None else {{f}}({{t}}, ({listed},))"
    return Expression(SqlType.BOOLEAN, join(text, wanted, *choices, f=find))


def _compile_between(node: exp.Expr, scope: Scope) -> Expression:
    value, low, high = node.this, node.args["low"], node.args["high"]
    above, below = exp.GTE(this=value, expression=low), exp.LTE(this=value, expression=high)
    return _compile_and(exp.And(this=above, expression=below), scope)


def _compile_like(node: exp.Expr, scope: Scope) -> Expression:
    found = compile_node(node.this, scope)
    pattern = node.expression
    if found.kind is not SqlType.TEXT or not (
        isinstance(pattern, exp.Literal) and pattern.is_string
    ):
        raise NodeRejected(node, "LIKE compares a text with a literal pattern")
    matches = like_pattern(str(pattern.this)).fullmatch
    text = "{f}({0}) is not None"
    return Expression(SqlType.BOOLEAN, _null_if_any(text, found.code, f=matches))


def _compile_case(node: exp.Expr, scope: Scope) -> Expression:
    tested, branches = node.args.get("this"), node.args["ifs"]
    conditions = [
        compile_condition(
            b.this if tested is None else exp.EQ(this=tested, expression=b.this), scope
        )
        for b in branches
    ]
    nodes = [*(b.args["true"] for b in branches), node.args.get("default") or exp.Null()]
    kind, parts = join_expressions(nodes, [compile_node(part, scope) for part in nodes])
    *values, code = [part.code for part in parts]
    for condition, value in zip(reversed(conditions), reversed(values), strict=True):
        code = join("{1} if {0} is True else {2}", condition, value, code)
    return Expression(_comparable(node, kind), code)


def _compile_coalesce(node: exp.Expr, scope: Scope) -> Expression:
    nodes = [node.this, *node.expressions]
    kind, parts = join_expressions(nodes, [compile_node(part, scope) for part in nodes])
    code = constant_code(None)
    for part in reversed(parts):
        code = join("{t} if ({t} := {0}) is not None else {1}", part.code, code)
    return Expression(_comparable(node, kind), code)


def _compile_nullif(node: exp.Expr, scope: Scope) -> Expression:
    first = compile_node(node.this, scope)
    equal = compile_node(exp.EQ(this=node.this, expression=node.expression), scope).code
    return first._replace(code=join("None if {0} is True else {1}", equal, first.code))


def _compile_cast(node: exp.Expr, scope: Scope) -> Expression:
    target = _CASTS.get(node.args["to"].this)
    if target is None or isinstance(node, exp.TryCast):
        raise NodeRejected(node, "CAST is supported to BIGINT, DOUBLE and TIMESTAMP only")
    if target is SqlType.TIMESTAMP and isinstance(node.this, exp.Literal):
        return constant(target, parse_timestamp(node.this))
    found = compile_node(node.this, scope)
    if target is SqlType.DOUBLE and found.kind is not SqlType.TEXT:
        return convert(node.this, found, target)
    if target is SqlType.BIGINT and found.kind.is_integer:
        return Expression(target, _check_range("{0}", target, found.code))
    if join_kinds(found.kind, target) is not target:
        raise NodeRejected(node, f"{found.kind.value} cannot be cast to {target.value} here")
    return convert(node.this, found, target)


_CASTS = {
    exp.DType.BIGINT: SqlType.BIGINT,
    exp.DType.DOUBLE: SqlType.DOUBLE,
    exp.DType.TIMESTAMP: SqlType.TIMESTAMP,
    exp.DType.TIMESTAMPNTZ: SqlType.TIMESTAMP,
}

_COMPILERS: dict[type[exp.Expr], Callable[[exp.Expr, Scope], Expression]] = {
    exp.Literal: _compile_literal,
    exp.Boolean: _compile_boolean,
    exp.Null: _compile_null,
    exp.Paren: _compile_paren,
    exp.Neg: _compile_negation,
    exp.Abs: _compile_abs,
    **dict.fromkeys((exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod), _compile_arithmetic),
    **dict.fromkeys((exp.NullSafeEQ, exp.NullSafeNEQ), _compile_distinct),
    exp.And: _compile_and,
    exp.Or: _compile_or,
    exp.Not: _compile_not,
    exp.Is: _compile_is,
    exp.In: _compile_in,
    exp.Between: _compile_between,
    exp.Like: _compile_like,
    exp.Case: _compile_case,
    exp.Coalesce: _compile_coalesce,
    exp.Nullif: _compile_nullif,
    **dict.fromkeys((exp.Cast, exp.TryCast), _compile_cast),
    exp.DateBin: _compile_bucket,
}
