"""Queries that cannot be panels are rejected with line, column and reason."""

from __future__ import annotations

import pytest

from rowtide.dashboards.sql.planner import plan_query
from rowtide.dashboards.sql.rejection import QueryRejected
from rowtide.dashboards.sql.reserved_words import RESERVED
from rowtide.dashboards.sql.source_table import SourceTable
from tests.dashboards.panel_rows import TABLE, DuckRows

REJECTED = {
    "a join": ("SELECT count(*) FROM t JOIN b ON a = b", 1, 29, "a join"),
    "two tables": ("SELECT count(*) FROM t, b", 1, 25, "a join"),
    "a subquery in FROM": ("SELECT count(*)\nFROM (SELECT 1)", 2, 14, "a subquery"),
    "a subquery in IN": ("SELECT count(*) FROM t WHERE small IN (SELECT 1)", 1, 47, "a subquery"),
    "WITH": ("WITH a AS (SELECT 1) SELECT count(*) FROM t", 1, 6, "WITH is not supported"),
    "now()": ("SELECT count(*) FROM t\nWHERE seen > now()", 2, 14, "now() has another value"),
    "random()": ("SELECT count(*), random() FROM t", 1, 18, "random() has another value"),
    "an unknown column": ("SELECT count(*) FROM t WHERE nope = 1", 1, 30, "unknown column nope"),
    "an unknown table": ("SELECT count(*) FROM other", 1, 22, "unknown table other"),
    "a file": ("SELECT count(*) FROM read_csv('/a')", 1, 22, "unknown table"),
    "100 KB of SQL": ("x" * 100_000, 1, 16385, "the query has 100,000 characters"),
    "deep brackets": ("SELECT " + "(" * 8000, 1, 28, "brackets are nested more than 20 deep"),
    "10,000 brackets": ("(" * 10_000, 1, 21, "brackets are nested more than 20 deep"),
    "many signs": ("SELECT " + "- " * 900 + "1", 1, 1, "the query is nested too deeply"),
    "many words": ("SELECT 1" + "+1" * 1500, 1, 2007, "the query has 3,002 words"),
    "wrong SQL": ("SELECT count(* FROM t", 1, 16, "Expecting )"),
    "an open text": ("SELECT 'abc", 1, 1, "is not ended"),
    "no SELECT": ("DROP TABLE t", 1, 1, "must be one SELECT"),
    "two statements": ("SELECT 1; SELECT 2", 1, 1, "must be one SELECT"),
    "nothing": ("", 1, 1, "must be one SELECT"),
    "no aggregate": ("SELECT word FROM t", 1, 8, "word must be in GROUP BY"),
    "a column beside": ("SELECT word, count(*) FROM t", 1, 8, "word must be in GROUP BY"),
    "an aggregate in WHERE": ("SELECT sum(small) FROM t WHERE count(*) > 1", 1, 32, "not allowed"),
    "nested aggregates": ("SELECT sum(sum(small)) FROM t", 1, 12, "within another one"),
    "max of several": ("SELECT max(small, 3) FROM t", 1, 12, "takes one expression"),
    "sum(DISTINCT)": ("SELECT sum(DISTINCT small) FROM t", 1, 8, "DISTINCT is supported in count"),
    "a window function": ("SELECT max(small) OVER () FROM t", 1, 12, "a window function"),
    "a text and a number": ("SELECT count(*) FROM t WHERE word = 5", 1, 37, "cannot be combined"),
    "a decimal": ("SELECT count(*) FROM t WHERE small > 1.5", 1, 38, "write a double"),
    "sum of a text": ("SELECT sum(word) FROM t", 1, 12, "VARCHAR is no number"),
    "a hiding alias": ("SELECT count(*) AS small FROM t", 1, 20, "hides the column small"),
    "two equal names": ("SELECT sum(small) AS x, max(small) AS x FROM t", 1, 29, "named x"),
    "an alias of itself": ("SELECT x + 1 AS x, count(*) FROM t GROUP BY word", 1, 8, "unknown"),
    "a wrong position": ("SELECT count(*) FROM t ORDER BY 3", 1, 33, "SELECT has 1 columns"),
    "other changes": ("SELECT count(*) FROM changes('x')", 1, 22, "changes('t')"),
    "a star": ("SELECT * FROM t", 1, 8, "* is not supported"),
    "a parameter": ("SELECT count(*) FROM t WHERE small = ?", 1, 30, "a parameter"),
    "a sample": ("SELECT count(*) FROM t TABLESAMPLE 10%", 1, 22, "a sample"),
    "a quantile above 1": ("SELECT quantile_disc(small, 2) FROM t", 1, 29, "from 0 to 1"),
    "an unknown function": ("SELECT count(*) FROM t WHERE f(small)", 1, 30, "f is not supported"),
    "a hop that skips": (
        "SELECT hop(seen, INTERVAL '1 hour', INTERVAL '2 hours') AS h, count(*) FROM t GROUP BY h",
        *(1, 8, "a hop's size must be"),
    ),
    "an open bracket": ("SELECT max(small AS m FROM t", 1, 11, "( is not closed"),
    "a word of SQL": ("SELECT count(at) FROM t", 1, 14, 'at is a word of SQL: write "at"'),
    "a wrong time": ("SELECT count(*) FROM t WHERE seen > 'noon'", 1, 37, "'noon' is no timestamp"),
}


@pytest.mark.parametrize(
    ("text", "line", "column", "reason"), REJECTED.values(), ids=REJECTED.keys()
)
def test_a_query_is_rejected_at_its_place(text: str, line: int, column: int, reason: str) -> None:
    with pytest.raises(QueryRejected) as caught:
        plan_query(text, TABLE)
    assert reason in caught.value.reason
    assert (caught.value.line, caught.value.column) == (line, column), caught.value


def test_words_of_sql_are_those_of_duckdb() -> None:
    duck = DuckRows()
    try:
        found = duck.query(
            "SELECT keyword_name FROM duckdb_keywords() "
            "WHERE keyword_category IN ('reserved', 'type_function')"
        )
    finally:
        duck.close()
    # Another version may have other words: all of those that it has must be known.
    assert {str(word) for (word,) in found or ()} <= RESERVED


def test_the_columns_of_an_answer_have_the_types_of_duckdb() -> None:
    text = (
        "SELECT word, time_bucket(INTERVAL '1 hour', seen) AS hour, small // 2 AS half, "
        "CASE WHEN flag THEN 1 ELSE 0 END AS one, count(*) AS n, sum(small) AS s, "
        "sum(ratio) AS r, avg(small) AS a, min(seen) AS m, quantile_disc(ratio, 0.5) AS q, "
        "sum(small) + 1 AS more, count(*) / 2 AS d, max(small) > 1 AS b, "
        "-9223372036854775808 AS low FROM t GROUP BY ALL"
    )
    duck = DuckRows()
    try:
        plan = plan_query(text, TABLE)
        assert [output.kind.value for output in plan.outputs] == duck.types_of(text)
    finally:
        duck.close()


def test_a_plan_reads_only_the_columns_that_it_needs() -> None:
    plan = plan_query("SELECT word, sum(small) FROM t GROUP BY ALL", TABLE)
    assert {column.name for column in plan.columns} == {"word", "small"}


def test_changes_have_their_kind_and_stamp() -> None:
    text = "SELECT change_kind, count(*), max(change_stamp) FROM changes('t') GROUP BY ALL"
    assert plan_query(text, TABLE).source == "changes"


def test_an_approximate_number_is_marked() -> None:
    text = "SELECT count(*), approx_quantile(ratio, 0.9) + 1 FROM t"
    assert [o.is_approximate for o in plan_query(text, TABLE).outputs] == [False, True]


def test_names_of_tables_are_those_of_the_dashboard() -> None:
    table = SourceTable("flights", {"delay": "double"})
    plan = plan_query("SELECT sum(f.DELAY) AS total FROM flights AS f", table)
    assert [column.name for column in plan.columns] == ["delay"]
