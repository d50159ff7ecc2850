"""Makes the plan of a panel from its query: one SELECT over one source.

Everything that a panel cannot do is rejected here with its place in the text, before anything runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from sqlglot import exp

from rowtide.dashboards.fold.adding import compile_adding
from rowtide.dashboards.fold.plan import (
    GroupKey,
    GroupWindow,
    OrderTerm,
    PanelOutput,
    PanelPlan,
)
from rowtide.dashboards.sql.aggregates import Aggregates, is_aggregate
from rowtide.dashboards.sql.compiling import compile_condition, compile_node
from rowtide.dashboards.sql.expressions import Expression
from rowtide.dashboards.sql.intervals import bucket_ends, parse_interval
from rowtide.dashboards.sql.parsing import SESSION, parse_query
from rowtide.dashboards.sql.rejection import NodeRejected, offset_of, reject_at
from rowtide.dashboards.sql.scopes import GroupScope, RowScope, window_of
from rowtide.dashboards.sql.source_table import CHANGE_COLUMNS, SourceTable
from rowtide.dashboards.values.kinds import SqlType
from rowtide.dashboards.values.row_code import compile_row

__all__ = ["group_nodes", "plan_query", "select_items"]

KEYS_MAX = 16
OUTPUTS_MAX = 64
LIMIT_MAX = 100_000
HOPS_MAX = 1000
"""Windows that one row may be in, and panes of one window."""

_CLAUSES = {
    "joins": "a join",
    "with_": "WITH",
    "distinct": "SELECT DISTINCT",
    "qualify": "QUALIFY",
    "windows": "WINDOW",
    "offset": "OFFSET",
    "laterals": "a lateral join",
    "sample": "a sample",
    "into": "INTO",
    "hint": "a hint",
    "locks": "FOR UPDATE",
    "fetch": "FETCH",
    "prewhere": "PREWHERE",
    "distribute": "DISTRIBUTE BY",
    "sort": "SORT BY",
    "cluster": "CLUSTER BY",
    "connect": "CONNECT BY",
    "match": "MATCH_RECOGNIZE",
    "pivots": "PIVOT",
}
_SHAPE = "a panel is one SELECT with GROUP BY over one table"
_KNOWN = {"expressions", "from_", "where", "group", "having", "order", "limit", "kind"}


class _Item(NamedTuple):
    """An item of SELECT: its expression, and its name in the answer."""

    node: exp.Expr
    name: str


def plan_query(text: str, table: SourceTable) -> PanelPlan:
    """Return the plan of a query. Raises ``QueryRejected``."""
    select = parse_query(text)
    try:
        return _plan_select(select, table)
    except NodeRejected as error:
        raise reject_at(text, offset_of(error.node), error.reason) from error
    except RecursionError as error:
        raise reject_at(text, 0, "the query is nested too deeply") from error


def _plan_select(select: exp.Select, table: SourceTable) -> PanelPlan:
    _reject_clauses(select)
    source, qualifiers = _find_source(select, table)
    types = dict(table.types) | (CHANGE_COLUMNS if source == "changes" else {})
    rows = RowScope(types, qualifiers)
    items = select_items(select, rows)
    where = select.args.get("where")
    condition = compile_condition(where.this, rows) if where is not None else None
    key_nodes = group_nodes(select, items)
    keys = [(node, _group_key(node, rows)) for node in key_nodes]
    if sum(key.window is not None for _, key in keys) > 1:
        raise NodeRejected(select, "a panel has at most one hop or session")
    aggregates = Aggregates(rows)
    scope = GroupScope(keys, aggregates)
    outputs: list[PanelOutput] = []
    aliases: dict[str, Expression] = {}
    for item in items:
        output, found = _output(item, scope)
        outputs.append(output)
        aliases[item.name.lower()] = Expression(found.kind, found.code)
    scope.aliases |= aliases
    if not keys and not aggregates.results:
        raise NodeRejected(select, "a panel aggregates: the query has no aggregate, no GROUP BY")
    having = select.args.get("having")
    having_condition = None
    if having is not None:
        having_condition = compile_row(compile_condition(having.this, scope))
    order = _order_terms(select, items, scope)
    key_specs = [key for _, key in keys]
    return PanelPlan(
        source,
        compile_adding(condition, key_specs, aggregates.states),
        tuple(rows.used),
        tuple(key_specs),
        tuple(aggregates.states),
        tuple(aggregates.results),
        tuple(outputs),
        having_condition,
        tuple(order),
        _limit(select),
    )


def _reject_clauses(select: exp.Select) -> None:
    for name, value in select.args.items():
        if value and name not in _KNOWN:
            place = value[0] if isinstance(value, list) else value
            place = place if isinstance(place, exp.Expr) else select
            raise NodeRejected(place, f"{_CLAUSES.get(name, name)} is not supported: {_SHAPE}")
    if select.args.get("kind"):
        raise NodeRejected(select, "SELECT AS STRUCT or VALUE is not supported")
    for node in select.walk():
        if node is not select and isinstance(node, exp.Query):
            raise NodeRejected(node, "a subquery is not supported: a panel is one SELECT")
        if isinstance(node, exp.Window):
            raise NodeRejected(node, "a window function is not supported")
        if isinstance(node, exp.Placeholder | exp.Parameter):
            raise NodeRejected(node, "a parameter is not supported")


def _find_source(
    select: exp.Select, table: SourceTable
) -> tuple[Literal["rows", "changes"], list[str]]:
    """Return what FROM names: rows or changes, and the names that may qualify columns."""
    clause = select.args.get("from_")
    if clause is None:
        raise NodeRejected(select, f"FROM is missing: write FROM {table.name}")
    source = clause.this
    if not isinstance(source, exp.Table):
        raise NodeRejected(clause, "FROM must name one table, or changes('TABLE')")
    for name in ("db", "catalog", "joins", "pivots", "sample", "laterals", "when", "ordinality"):
        if source.args.get(name):
            what = _CLAUSES.get(name, "a name with dots or more than one table in FROM")
            raise NodeRejected(source, f"{what} is not supported: {_SHAPE}")
    alias = source.args.get("alias")
    qualifiers = [source.alias.lower()] if alias is not None else [table.name.lower()]
    called = source.this
    if isinstance(called, exp.Anonymous):
        return "changes", _check_changes(called, table, qualifiers)
    if not isinstance(called, exp.Identifier) or called.name != table.name:
        named = source.sql(dialect="duckdb")
        raise NodeRejected(source, f"unknown table {named}: the dashboard's is {table.name}")
    return "rows", qualifiers


def _check_changes(called: exp.Anonymous, table: SourceTable, qualifiers: list[str]) -> list[str]:
    arguments = called.expressions
    if called.name.lower() != "changes":
        raise NodeRejected(called, f"{called.name} is no source: write changes('{table.name}')")
    named = arguments[0] if len(arguments) == 1 else None
    if not (isinstance(named, exp.Literal) and named.is_string and named.this == table.name):
        raise NodeRejected(called, f"changes takes the dashboard's table: changes('{table.name}')")
    return qualifiers


def select_items(select: exp.Select, rows: RowScope) -> list[_Item]:
    """Return the items of SELECT. Raises ``NodeRejected``."""
    items: list[_Item] = []
    if len(select.expressions) > OUTPUTS_MAX:
        raise NodeRejected(select.expressions[OUTPUTS_MAX], f"at most {OUTPUTS_MAX} columns fit")
    for node in select.expressions:
        if isinstance(node, exp.Star) or (
            isinstance(node, exp.Column) and isinstance(node.this, exp.Star)
        ):
            raise NodeRejected(node, "* is not supported: name the columns")
        inner = node.unalias()
        if isinstance(node, exp.Alias):
            _check_alias(node, inner, rows)
        name = node.alias_or_name or _text_of(inner)
        if name.lower() in (item.name.lower() for item in items):
            raise NodeRejected(node, f"two columns are named {name}: give one another name by AS")
        items.append(_Item(inner, name))
    return items


def _text_of(node: exp.Expr) -> str:
    return node.sql(dialect="duckdb").replace(SESSION.upper(), "session")


def _check_alias(node: exp.Alias, inner: exp.Expr, rows: RowScope) -> None:
    """Reject an alias that hides a column: clauses would not agree on which one it means."""
    hidden = rows.find_declared(node.alias)
    is_own = isinstance(inner, exp.Column) and rows.name_of(inner) == hidden
    if hidden is not None and not is_own:
        raise NodeRejected(node.args["alias"], f"the alias hides the column {hidden}: rename it")


def group_nodes(select: exp.Select, items: Sequence[_Item]) -> list[exp.Expr]:
    """Return the expressions of GROUP BY, without repetitions."""
    group = select.args.get("group")
    if group is None:
        return []
    for name in ("grouping_sets", "cube", "rollup", "totals"):
        if group.args.get(name):
            raise NodeRejected(group, f"GROUP BY {name} is not supported")
    if group.args.get("all"):
        nodes = [item.node for item in items if not _has_aggregate(item.node)]
    else:
        nodes = [_resolve_item(node, items, "GROUP BY") for node in group.expressions]
    found: list[exp.Expr] = []
    for node in nodes:
        if _has_aggregate(node):
            raise NodeRejected(node, "GROUP BY cannot have an aggregate")
        if node not in found:
            found.append(node)
    if len(found) > KEYS_MAX:
        raise NodeRejected(found[KEYS_MAX], f"GROUP BY has more than {KEYS_MAX} expressions")
    return found


def _has_aggregate(node: exp.Expr) -> bool:
    return any(is_aggregate(inner) for inner in node.walk())


def _resolve_item(node: exp.Expr, items: Sequence[_Item], clause: str) -> exp.Expr:
    """Return the item of SELECT that a number or an alias names, otherwise the node."""
    if isinstance(node, exp.Literal) and not node.is_string:
        text = str(node.this)
        if not text.isdigit() or not 1 <= int(text) <= len(items):
            raise NodeRejected(node, f"{clause} {text}: SELECT has {len(items)} columns")
        return items[int(text) - 1].node
    if isinstance(node, exp.Column) and not node.table:
        for item in items:
            if item.name.lower() == node.name.lower():
                return item.node
    return node


def _group_key(node: exp.Expr, rows: RowScope) -> GroupKey:
    if (form := window_of(node)) is not None:
        return _window_key(node, form, rows)
    found = compile_node(node, rows)
    if found.kind in (SqlType.NULL, SqlType.DECIMAL):
        raise NodeRejected(node, f"GROUP BY a constant of {found.kind.value} is not supported")
    find_end = bucket_ends(parse_interval(node.this)) if isinstance(node, exp.DateBin) else None
    return GroupKey(found.kind, found.code, find_end=find_end, text=_text_of(node))


def _window_key(node: exp.Expr, form: Literal["hop", "session"], rows: RowScope) -> GroupKey:
    wanted = "hop(column, size, step)" if form == "hop" else "session(column, gap)"
    arguments = node.expressions
    if len(arguments) != (3 if form == "hop" else 2):
        raise NodeRejected(node, f"{form} is written {wanted}")
    found = compile_node(arguments[0], rows)
    if found.kind is not SqlType.TIMESTAMP:
        raise NodeRejected(arguments[0], f"{form} is of a TIMESTAMP, not {found.kind.value}")
    intervals = [parse_interval(argument) for argument in arguments[1:]]
    for argument, interval in zip(arguments[1:], intervals, strict=True):
        if interval.months:
            raise NodeRejected(argument, f"{form} takes intervals of days and less")
    size_us, step_us = intervals[0].microseconds, intervals[-1].microseconds
    window = GroupWindow(form, size_us, step_us)
    if form == "session":
        return GroupKey(found.kind, found.code, window, text=_text_of(node))
    if not step_us <= size_us <= HOPS_MAX * window.pane_us:
        raise NodeRejected(
            node, f"a hop's size must be 1 to {HOPS_MAX:,} times its step, or their common divisor"
        )
    text = _text_of(node)
    return GroupKey(found.kind, found.code, window, lambda start: start + size_us, text)


def _output(item: _Item, scope: GroupScope) -> tuple[PanelOutput, Expression]:
    scope.uses_aggregate = scope.uses_approximation = False
    found = compile_node(item.node, scope)
    if found.kind is SqlType.DECIMAL:
        raise NodeRejected(item.node, "a decimal in SELECT: write a double, such as 1.5e0")
    output = PanelOutput(
        item.name,
        found.kind,
        compile_row(found.code),
        is_approximate=scope.uses_approximation,
        is_group=not scope.uses_aggregate,
    )
    return output, found


def _order_terms(select: exp.Select, items: Sequence[_Item], scope: GroupScope) -> list[OrderTerm]:
    order = select.args.get("order")
    terms: list[OrderTerm] = []
    for ordered in order.expressions if order is not None else ():
        node = _resolve_item(ordered.this, items, "ORDER BY")
        found = compile_node(node, scope)
        nulls_first = bool(ordered.args.get("nulls_first"))
        terms.append(
            OrderTerm(compile_row(found.code), bool(ordered.args.get("desc")), nulls_first)
        )
    return terms


def _limit(select: exp.Select) -> int | None:
    limit = select.args.get("limit")
    if limit is None:
        return None
    node = limit.expression
    text = str(node.this) if isinstance(node, exp.Literal) and not node.is_string else ""
    if not text.isdigit() or int(text) > LIMIT_MAX:
        raise NodeRejected(node or limit, f"LIMIT must be a number up to {LIMIT_MAX:,}")
    return int(text)
