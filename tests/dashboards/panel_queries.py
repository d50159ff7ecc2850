"""Random queries over ``panel_rows.TABLE`` that a panel accepts."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import strategies as st

__all__ = ["QUERIES", "PanelQuery"]

KEYS = [
    "word",
    "small",
    "flag",
    "wild",
    "time_bucket(INTERVAL '1 hour', seen)",
    "time_bucket(INTERVAL '90 minutes', seen)",
    "time_bucket(INTERVAL '7 days', seen)",
    "time_bucket(INTERVAL '1 month', seen)",
    "small // 2",
    "CASE WHEN ratio > 0 THEN 'up' WHEN ratio <= 0 THEN 'down' END",
    "coalesce(word, 'none')",
]
CONDITIONS = [
    "small > 1",
    "ratio <= 2.5",
    "wild > 1.0",
    "NOT flag",
    "flag OR small = 2",
    "flag AND ratio > 0",
    "word IN ('a', 'z')",
    "small IN (1, 2, NULL)",
    "small NOT IN (1, 2)",
    "small BETWEEN -1 AND 2",
    "word LIKE 'a%'",
    "word IS NOT NULL",
    "flag IS NOT TRUE",
    "small IS DISTINCT FROM 1",
    "seen >= TIMESTAMP '2020-01-01 01:00:00'",
    "seen + INTERVAL '1 hour' > '2020-01-01 02:00:00'",
    "wild = wild",
    "nullif(small, 1) < 3",
    "word > 'a'",
    "small % 2 = 1",
    "small / 2 > 0.5",
]
NUMBERS = [
    "small",
    "ratio",
    "wild",
    "large",
    "small * 2",
    "-ratio",
    "abs(small)",
    "ratio / 2",
    "ratio + small",
    "large + 1",
    "small * small - 1",
    "CASE WHEN flag THEN ratio ELSE 0 END",
    "CASE WHEN flag THEN 1 ELSE 0 END",
    "small % 3",
    "small // small",
    "wild / small",
    "CAST(small AS DOUBLE)",
]
VALUES = [*NUMBERS, "word", "seen", "flag"]
RESULTS = [
    "count(*)",
    "sum({n})",
    "avg({n})",
    "count({v})",
    "min({v})",
    "max({v})",
    "count(DISTINCT {v})",
    "quantile_disc({v}, {q})",
]


class PanelQuery(NamedTuple):
    """A query. ``ordered`` says that ORDER BY leaves no two rows of the answer equal."""

    text: str
    ordered: bool


@st.composite
def _aggregates(draw: st.DrawFn) -> str:
    text = draw(st.sampled_from(RESULTS)).format(
        n=draw(st.sampled_from(NUMBERS)),
        v=draw(st.sampled_from(VALUES)),
        q=draw(st.sampled_from(["0", "0.5", "0.25", "0.99", "1", "9e-1"])),
    )
    if draw(st.booleans()):
        text += f" FILTER (WHERE {draw(st.sampled_from(CONDITIONS))})"
    return text


@st.composite
def _queries(draw: st.DrawFn) -> PanelQuery:
    keys = draw(st.lists(st.sampled_from(KEYS), max_size=2, unique=True))
    results = draw(st.lists(_aggregates(), min_size=1, max_size=4, unique=True))
    if draw(st.booleans()):
        results.append(f"sum(ratio) / {results[0]}" if results[0] == "count(*)" else "1 + count(*)")
    items = [f"{key} AS k{n}" for n, key in enumerate(keys)]
    items += [f"{result} AS r{n}" for n, result in enumerate(results)]
    text = f"SELECT {', '.join(items)} FROM t"
    conditions = draw(st.lists(st.sampled_from(CONDITIONS), max_size=2, unique=True))
    if conditions:
        text += f" WHERE {draw(st.sampled_from([' AND ', ' OR '])).join(conditions)}"
    if keys:
        by_name = ", ".join(f"k{n}" for n in range(len(keys)))
        text += f" GROUP BY {draw(st.sampled_from(['ALL', by_name]))}"
    if draw(st.booleans()):
        text += f" HAVING {draw(st.sampled_from(['count(*) > 1', 'max(small) >= 1', 'r0 > r0']))}"
    if not draw(st.booleans()):
        return PanelQuery(text, ordered=False)
    terms = [f"r0 {draw(st.sampled_from(['ASC', 'DESC', 'DESC NULLS FIRST', '']))}"]
    terms += [f"k{n} {draw(st.sampled_from(['', 'DESC']))}" for n in range(len(keys))]
    limit = draw(st.sampled_from(["", " LIMIT 2", " LIMIT 0"]))
    return PanelQuery(f"{text} ORDER BY {', '.join(terms)}{limit}", ordered=True)


QUERIES: st.SearchStrategy[PanelQuery] = _queries()
