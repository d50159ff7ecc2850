"""Hops and sessions equal a query in DuckDB that spells out what each macro means."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rowtide.core.values.variant import Scalar
from rowtide.dashboards.fold.answer import answer
from rowtide.dashboards.fold.partial import PanelPartial
from rowtide.dashboards.sql.duckdb_text import duckdb_text
from rowtide.dashboards.sql.planner import plan_query
from rowtide.dashboards.sql.source_table import SourceTable
from rowtide.dashboards.values.kinds import Value
from tests.dashboards.panel_rows import DuckRows, same_rows
from tests.support.searches import examples

TYPES = {"word": "text", "seen": "timestamp_us", "n": "bigint"}
TABLE = SourceTable("t", TYPES)
MINUTE_US = 60_000_000
ROWS = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "word": st.sampled_from(["a", "b"]),
            # Mostly multiples of 5 minutes: times that are exactly a gap or a step apart.
            "seen": st.one_of(
                st.integers(-18, 18).map(lambda fives: 5 * fives), st.integers(-90, 90)
            ).map(lambda minutes: minutes * MINUTE_US + 946_857_600_000_000),
            "n": st.integers(0, 9),
        },
    ),
    max_size=12,
)
HOP = "SELECT hop(seen, INTERVAL '20 minutes', INTERVAL '5 minutes') AS w, {} FROM t GROUP BY ALL"
HOP_IN_DUCKDB = """
SELECT CASE WHEN start IS NOT NULL THEN time_bucket(INTERVAL '5 minutes', seen) -
  INTERVAL '5 minutes' * start END AS w, {} FROM
(SELECT *, unnest(CASE WHEN seen IS NULL THEN [NULL] ELSE [0, 1, 2, 3] END) AS start FROM t)
GROUP BY ALL
"""
SESSION = "SELECT word, session(seen, INTERVAL '10 minutes') AS w, {} FROM t GROUP BY ALL"
SESSION_IN_DUCKDB = """
SELECT word, CASE WHEN seen IS NOT NULL THEN min(seen) END AS w, {} FROM (
  SELECT *, sum(starts) OVER (PARTITION BY word ORDER BY seen RANGE UNBOUNDED PRECEDING) AS number
  FROM (SELECT *, CASE WHEN seen - lag(seen) OVER (PARTITION BY word ORDER BY seen)
    <= INTERVAL '10 minutes' THEN 0 ELSE 1 END AS starts FROM t WHERE seen IS NOT NULL)
) GROUP BY word, number, seen IS NOT NULL
UNION ALL
SELECT word, NULL, {} FROM t WHERE seen IS NULL GROUP BY word
"""
RESULTS = "count(*) AS c, sum(n) AS s, max(n) AS m, count(DISTINCT n) AS d"


@pytest.fixture(scope="module")
def duck() -> Iterator[DuckRows]:
    rows = DuckRows(TYPES)
    yield rows
    rows.close()


@pytest.mark.parametrize(
    ("text", "in_duckdb"),
    [
        (HOP.format(RESULTS), HOP_IN_DUCKDB.format(RESULTS)),
        (
            SESSION.format(RESULTS),
            SESSION_IN_DUCKDB.format(RESULTS, RESULTS)
            .replace("CASE WHEN seen IS NOT NULL THEN min(seen) END", "min(seen)")
            .replace(", seen IS NOT NULL\n", "\n"),
        ),
    ],
    ids=["hop", "session"],
)
@settings(max_examples=examples(30, 60))
@given(rows=ROWS, removed=ROWS)
def test_a_window_has_the_rows_that_duckdb_finds_for_it(
    duck: DuckRows,
    text: str,
    in_duckdb: str,
    rows: list[dict[str, Scalar]],
    removed: list[dict[str, Scalar]],
) -> None:
    plan = plan_query(text, TABLE)
    partials = [PanelPartial(plan), PanelPartial(plan)]
    for number, row in enumerate([*removed, *rows]):
        partials[number % 2].add(row)
    for row in removed:
        partials[0].add(row, -1)
    duck.replace(rows)
    expected = duck.query(in_duckdb)
    assert expected is not None
    found = answer(plan, partials).rows
    assert same_rows(found, expected, ordered=False), (found, expected)
    rewritten = duck.query(duckdb_text(text, TABLE))
    assert rewritten is not None
    assert same_rows(found, rewritten, ordered=False), (found, rewritten)


def test_times_a_gap_apart_are_one_session_and_a_hop_has_no_row_at_its_end() -> None:
    start = 946_857_600_000_000
    rows: list[dict[str, Scalar]] = [
        {"word": "a", "seen": start},
        {"word": "a", "seen": start + 10 * MINUTE_US},
        {"word": "a", "seen": start + 20 * MINUTE_US + 1},
    ]
    sessions, hops = (answer_over(text.format("count(*)"), rows) for text in (SESSION, HOP))
    assert sessions == [("a", start, 2), ("a", start + 20 * MINUTE_US + 1, 1)]
    assert (start, 2) in hops
    assert hops[0] == (start - 15 * MINUTE_US, 1)


def test_rows_of_one_time_are_in_one_session_in_duckdb(duck: DuckRows) -> None:
    """Many rows of two times that are far apart: no sort of equal times may mix them."""
    start = 946_857_600_000_000
    rows: list[dict[str, Scalar]] = [
        {"word": "a", "seen": start + number % 2 * 60 * MINUTE_US, "n": number}
        for number in range(5000)
    ]
    duck.replace(rows)
    text = SESSION.format("count(*) AS c")
    found = duck.query(duckdb_text(text, TABLE))
    assert found is not None
    assert same_rows(answer_over(text, rows), found, ordered=False), found


def answer_over(text: str, rows: list[dict[str, Scalar]]) -> list[tuple[Value, ...]]:
    """Return the answer over some rows."""
    plan = plan_query(text, TABLE)
    partial = PanelPartial(plan)
    for row in rows:
        partial.add(row)
    return list(answer(plan, [partial]).rows)
