"""A file of dashboards is read strictly: each error has its line, its column and the value."""

from __future__ import annotations

import pytest

from rowtide.dashboards.declaring.declaration import parse_dashboards, parse_stored
from rowtide.dashboards.declaring.marked_values import DeclarationRejected
from rowtide.dashboards.runtime.stored_dashboards import fold_text

FILE = """\
dashboards:
  departures:
    table: flights
    types: {origin: text, delay: double, at: timestamp_us}
    keep: 48 hours
    panels:
      hourly: {title: Flights, query: "SELECT origin, count(*) AS n FROM flights GROUP BY ALL"}
      late:
        chart: table
        query: |
          SELECT avg(delay) AS mean,
            max(delay) AS worst
          FROM flights
"""

WRONG = {
    "no YAML": ("dashboards", "dashboards: [", 1, 14, "no YAML"),
    "no mapping": (FILE, "7", 1, 1, "the file must be a mapping, but is '7'"),
    "nothing": (FILE, "", 1, 1, "the file is empty"),
    "deep brackets": (FILE, "a: " + "[" * 10_000, 1, 1, "brackets are nested too deeply"),
    "another setting": ("dashboards:", "x: 1\ndashboards:", 1, 1, "has no setting 'x'"),
    "a wrong name": ("departures:", "Departures:", 2, 3, "not 'Departures'"),
    "a name given twice": ("late:", "hourly:", 8, 7, "'hourly' is given twice"),
    "no table": ("    table: flights\n", "", 3, 5, "dashboards.departures.table is missing"),
    "a wrong table": ("table: flights", "table: 1f", 3, 12, "no digit first, but is '1f'"),
    "a wrong type": ("delay: double", "delay: float", 4, 34, "timestamp_us, but is 'float'"),
    "columns that SQL mixes up": ("at: tim", "DELAY: text, at: tim", 4, 42, "cannot tell the co"),
    "a wrong length": ("48 hours", "48h", 5, 11, "such as '48 hours', but is '48h'"),
    "a long keep": ("48 hours", "9999 days", 5, 11, "at most 3,660 days"),
    "no panel": ("panels:", "panels: {}\n    x:", 6, 13, "must have 1 to 60 panels, not 0"),
    "a wrong chart": ("chart: table", "chart: pie", 9, 16, "bars, table, number, but is 'pie'"),
    "a wrong bound": ("chart: table", "groups_max: 0", 9, 21, "from 1 to 100,000, but is '0'"),
    "a misspelt setting": ("chart: table", "chrt: table", 9, 9, "has no setting 'chrt'"),
    "a wrong column in a line": ("origin, count", "orgn, count", 7, 47, "unknown column orgn"),
    "a wrong column in a block": ("max(delay)", "max(dely)", 12, 17, "unknown column dely"),
    "wrong SQL in a block": ("max(delay)", "max(delay", 12, 16, "( is not closed"),
    "now() in a block": ("max(delay)", "now()", 12, 13, "now() has another value each time"),
    "rows and changes": ("FROM flights\n", "FROM changes('flights')\n", 7, 7, "in two dashboards"),
    "a long file": ("dashboards:", "#" * 1_100_000, 1, 1, "at most 1,048,576 are allowed"),
}


@pytest.mark.parametrize(
    ("old", "new", "line", "column", "reason"), WRONG.values(), ids=WRONG.keys()
)
def test_an_error_names_its_place(old: str, new: str, line: int, column: int, reason: str) -> None:
    assert old in FILE
    with pytest.raises(DeclarationRejected) as caught:
        parse_dashboards(FILE.replace(old, new), "f.yaml")
    error = caught.value
    assert reason in error.reason, error
    assert (error.line, error.column) == (line, column), error
    assert str(error).startswith(f"f.yaml, line {line}, column {column}: ")


def test_a_stored_dashboard_is_the_declared_one() -> None:
    [found] = parse_dashboards(FILE, "f.yaml")
    assert found.columns == ["delay", "origin"]
    assert (found.keep_us, found.lease_ms) == (48 * 3_600_000_000, 5000)
    stored = parse_stored("departures", found.text)
    assert stored.text == found.text
    assert list(stored.panels) == ["hourly", "late"]
    assert stored.panels["late"].query == found.panels["late"].query


@pytest.mark.parametrize(
    ("old", "new", "is_same"),
    [
        ("title: Flights", "title: Departures", True),
        ("chart: table", "chart: bars", True),
        ("48 hours", "2 days", True),
        ("48 hours", "3 days", False),
        ("max(delay)", "min(delay)", False),
        ("origin: text", "origin: bigint", False),
        ("chart: table", "groups_max: 7", False),
    ],
)
def test_only_what_is_folded_needs_a_new_build(old: str, new: str, *, is_same: bool) -> None:
    [found] = parse_dashboards(FILE, "f.yaml")
    [changed] = parse_dashboards(FILE.replace(old, new), "f.yaml")
    assert changed.text != found.text or new == "2 days"
    assert (fold_text(changed) == fold_text(found)) is is_same


def test_rejected_panels_are_gathered_beside_the_others() -> None:
    rejected: list[DeclarationRejected] = []
    text = FILE.replace("count(*)", "random()")
    [found] = parse_dashboards(text, "f.yaml", rejected)
    assert list(found.panels) == ["late"]
    assert [error.line for error in rejected] == [7]
