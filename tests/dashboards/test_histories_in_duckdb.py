"""The fold of a random history equals the same text run in DuckDB, at every position.

Rows are put, updated and deleted in several shards. Each shard has its own partial, which forgets
nothing of a key that moves to another one: a child takes back what its parent added.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rowtide.dashboards.fold.answer import answer
from rowtide.dashboards.fold.partial import PanelBounds, PanelPartial
from rowtide.dashboards.fold.partial_codec import decode_partial, encode_partial
from rowtide.dashboards.fold.plan import PanelPlan
from rowtide.dashboards.sql.planner import plan_query
from tests.dashboards.panel_queries import QUERIES, PanelQuery
from tests.dashboards.panel_rows import ROWS, TABLE, DuckRows, Row, same_rows
from tests.support.searches import examples

SHARDS = 3
CHANGES = st.lists(
    st.tuples(st.integers(0, SHARDS - 1), st.integers(0, 5), st.none() | ROWS, st.booleans()),
    min_size=1,
    max_size=12,
)
"""Each: the shard, the key, the row's new columns or a delete, and whether they are merged."""
Changes = list[tuple[int, int, Row | None, bool]]


@pytest.fixture(scope="module")
def duck() -> Iterator[DuckRows]:
    rows = DuckRows()
    yield rows
    rows.close()


def check_history(duck: DuckRows, query: PanelQuery, changes: Changes) -> None:
    plan = plan_query(query.text, TABLE)
    partials = [PanelPartial(plan) for _ in range(SHARDS)]
    rows: dict[int, Row] = {}
    for shard, key, columns, is_update in changes:
        before = rows.pop(key, None)
        if before is not None:
            partials[shard].add(before, -1)
        if columns is not None:
            rows[key] = {**(before or {}), **columns} if is_update else columns
            partials[shard].add(rows[key])
        check_position(duck, query, plan, partials, rows)
        partials[shard] = restart(plan, partials[shard])
    for key in [*rows]:
        partials[0].add(rows.pop(key), -1)
    whole = PanelPartial(plan)
    for partial in partials:
        whole.merge(partial)
    assert not whole.groups
    assert not whole.mistyped
    assert not whole.failures


def check_position(
    duck: DuckRows,
    query: PanelQuery,
    plan: PanelPlan,
    partials: list[PanelPartial],
    rows: dict[int, Row],
) -> None:
    duck.replace(rows.values())
    expected = duck.query(query.text)
    found = answer(plan, partials)
    if expected is None or found.fault:
        # DuckDB may leave out an expression that overflows; a panel never shows a number then.
        assert found.fault == "out of range", query.text
        return
    assert same_rows(found.rows, expected, ordered=query.ordered), (found.rows, expected)


def restart(plan: PanelPlan, partial: PanelPartial) -> PanelPartial:
    """Return the partial that a process reads from the bytes of another one."""
    summary, groups = encode_partial(partial)
    read = decode_partial(plan, PanelBounds(), summary, groups)
    assert encode_partial(read) == (summary, groups)
    return read


def test_an_integer_divided_by_zero_is_null(duck: DuckRows) -> None:
    text = "SELECT count(small // small) AS n, count(small % small) AS m, count(*) AS r FROM t"
    plan = plan_query(text, TABLE)
    partial = PanelPartial(plan)
    rows: list[Row] = [{"small": 0}, {"small": 2}]
    for row in rows:
        partial.add(row)
    duck.replace(rows)
    assert answer(plan, [partial]).rows == duck.query(text) == [(1, 1, 2)]


@settings(max_examples=examples(75, 150))
@given(query=QUERIES, changes=CHANGES)
def test_every_position_of_a_history_has_the_numbers_of_duckdb(
    duck: DuckRows, query: PanelQuery, changes: Changes
) -> None:
    check_history(duck, query, changes)
