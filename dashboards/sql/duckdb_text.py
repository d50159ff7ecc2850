"""A panel's query as a text that DuckDB itself runs: the batch answer that its numbers must equal.

The macros ``hop`` and ``session`` become a table that has each row once in each of its windows.
Three results differ by definition from those of DuckDB: sums and means of doubles, which are exact
and rounded once, and approximate quantiles. They become functions of lists that the caller defines.
Everything else stays, and a query without any of it is its own text.
"""

from __future__ import annotations

from sqlglot import exp

from rowtide.dashboards.sql.compiling import compile_node
from rowtide.dashboards.sql.parsing import DIALECT, parse_query
from rowtide.dashboards.sql.planner import group_nodes, select_items
from rowtide.dashboards.sql.scopes import RowScope, window_of
from rowtide.dashboards.sql.source_table import CHANGE_COLUMNS, SourceTable
from rowtide.dashboards.values.kinds import SqlType

__all__ = ["MEAN", "SKETCHED", "SUM", "duckdb_text"]

SUM, MEAN, SKETCHED = "rowtide_sum", "rowtide_mean", "rowtide_sketched"
"""Functions of a list of doubles: its exact sum, its exact mean, and, with a quantile as second
argument, the sketch's value of it.
"""

_WINDOW = "rowtide_window"
_NUMBER = "rowtide_number"
_STARTS = "rowtide_starts"


def duckdb_text(
    text: str, table: SourceTable, *, ended_us: int | None = None, limited: bool = True
) -> str:
    """Return the text for DuckDB of a query that has a plan, with its LIMIT if ``limited``.

    Groups whose time had ended by ``ended_us`` are left out.
    """
    select = parse_query(text)
    source = select.args["from_"].this
    is_of_changes = isinstance(source.this, exp.Anonymous)
    types = {**table.types, **(CHANGE_COLUMNS if is_of_changes else {})}
    rows = RowScope(types, [(source.alias or table.name).lower()])
    keys = group_nodes(select, select_items(select, rows))
    expiring = [key for key in keys if isinstance(key, exp.DateBin) or window_of(key) == "hop"]
    results = [(node, made) for node in select.walk() if (made := _exact_result(node, rows))]
    window = next((key for key in keys if window_of(key) is not None), None)
    is_cut = not limited and select.args.get("limit") is not None
    if window is None and not results and not is_cut and (ended_us is None or not expiring):
        return text
    if is_cut:
        select.set("limit", None)
    if ended_us is not None:
        for key in expiring:
            select.where(_is_open(key, ended_us), copy=False, dialect=DIALECT)
    for node, (function, more) in results:
        _replace_result(node, function, more)
    if window is not None:
        _replace_window(select, window, keys)
    return select.sql(dialect=DIALECT)


def _sql(node: exp.Expr) -> str:
    return node.sql(dialect=DIALECT)


def _is_open(key: exp.Expr, ended_us: int) -> str:
    """Return the condition that the time of a row's group has not ended."""
    length = key.expressions[1] if window_of(key) == "hop" else key.this
    start = _sql(key)
    return f"({start} IS NULL OR {start} + {_sql(length)} > make_timestamp({ended_us}))"


def _exact_result(node: exp.Expr, rows: RowScope) -> tuple[str, str] | None:
    """Return the function for an aggregate that is not DuckDB's, and its other arguments."""
    if isinstance(node, exp.ApproxQuantile):
        return SKETCHED, f", CAST({_sql(node.args['quantile'])} AS DOUBLE)"
    if not isinstance(node, exp.Sum | exp.Avg):
        return None
    if compile_node(node.this, rows).kind is not SqlType.DOUBLE:
        return None
    return (SUM if isinstance(node, exp.Sum) else MEAN), ""


def _replace_result(node: exp.Expr, function: str, more: str) -> None:
    argument = f"CAST({_sql(node.this)} AS DOUBLE)"
    place = node
    if isinstance(node.parent, exp.Filter):
        place = node.parent
        argument = f"CASE WHEN {_sql(place.expression.this)} THEN {argument} END"
    call = f"{function}(list({argument}) FILTER (WHERE {argument} IS NOT NULL){more})"
    place.replace(exp.maybe_parse(call, dialect=DIALECT))


def _replace_window(select: exp.Select, window: exp.Expr, keys: list[exp.Expr]) -> None:
    """Read a table that has the start of each row's window, in place of the macro."""
    source = select.args["from_"].this
    name = source.alias_or_name or "changes"
    time = _sql(window.expressions[0])
    if window_of(window) == "hop":
        rows = _hop_rows(source, time, *map(_sql, window.expressions[1:]))
    else:
        others = [_sql(key) for key in keys if key is not window]
        where = select.args.pop("where", None)
        condition = "" if where is None else f" WHERE {_sql(where.this)}"
        starts = _session_starts(time, _sql(window.expressions[1]), others)
        rows = f"SELECT *, {starts} AS {_STARTS} FROM {_sql(source)}{condition}"
        rows = _session_rows(rows, _quote(name), time, others)
    form = window_of(window)
    for call in list(select.find_all(exp.Anonymous)):
        if window_of(call) == form:
            call.replace(exp.column(_WINDOW))
    made: exp.Expr = exp.maybe_parse(f"SELECT 1 FROM ({rows}) AS {_quote(name)}", dialect=DIALECT)
    select.set("from_", made.args["from_"])


def _quote(name: str) -> str:
    return exp.to_identifier(name, quoted=True).sql(dialect=DIALECT)


def _hop_rows(source: exp.Expr, time: str, size: str, step: str) -> str:
    """Return the text of a table that has each row once for each window that it is in."""
    first = f"time_bucket({step}, {time} - {size}) + {step}"
    starts = f"generate_series({first}, time_bucket({step}, {time}), {step})"
    each = f"unnest(CASE WHEN {time} IS NULL THEN [CAST(NULL AS TIMESTAMP)] ELSE {starts} END)"
    return f"SELECT *, {each} AS {_WINDOW} FROM {_sql(source)}"


def _session_starts(time: str, gap: str, others: list[str]) -> str:
    """Return the expression that is 1 for the first row of each session, otherwise 0."""
    last = f"lag({time}) OVER ({_partition(others)} ORDER BY {time})"
    return f"CASE WHEN {time} - {last} <= {gap} THEN 0 ELSE 1 END"


def _session_rows(rows: str, name: str, time: str, others: list[str]) -> str:
    """Return the text of a table that has each row with the first time of its session.

    Rows of one time have one number: RANGE adds all of them, in whatever order they are sorted.
    """
    running = f"{_partition(others)} ORDER BY {time} RANGE UNBOUNDED PRECEDING"
    rows = f"SELECT *, sum({_STARTS}) OVER ({running}) AS {_NUMBER} FROM ({rows}) AS {name}"
    of_session = _partition([*others, _NUMBER])
    return f"SELECT *, min({time}) OVER ({of_session}) AS {_WINDOW} FROM ({rows}) AS {name}"


def _partition(keys: list[str]) -> str:
    return f"PARTITION BY {', '.join(keys)}" if keys else ""
