"""What a file may declare, and what it would change to declare it."""

from __future__ import annotations

import json

import pytest

from rowtide.connectors.fields import SettingsRefused
from rowtide.connectors.runtime.declaration import begin_of, judge, parse_document, parse_file
from rowtide.connectors.runtime.declarations import DeclaredConnector
from rowtide.connectors.runtime.planning import plan_changes

FILE = """
connectors:
  orders-search:
    table: orders
    sink: {kind: tests.connectors.sqlite_sink, path: "${PLACE}"}
    begin: 2026-01-31T12:00:00
    columns: {only: [status], rename: {status: state}}
    filter: "status = 'open'"
  lines:
    source: {kind: tests.connectors.lines_source, path: lines, table: t}
    max_versions: 3
"""


def test_a_file_declares_sinks_and_sources() -> None:
    search, lines = parse_file(FILE, "file")
    assert (search.table, search.kind) == ("orders", "tests.connectors.sqlite_sink")
    assert begin_of(search.begin, "begin") == 1_769_860_800_000_000
    assert (lines.sink, lines.max_versions, lines.described) == (
        {},
        3,
        "tests.connectors.lines_source to tables",
    )


def test_variables_stay_as_they_are_written() -> None:
    search, _ = parse_file(FILE, "file")
    assert "${PLACE}" in search.text
    assert "PLACE" in judge(search, {})[0]
    assert judge(search, {"PLACE": "here"}) == []


REFUSED = """
connectors: {}
connectors: {A: {table: t, sink: {kind: duckdb}}}
connectors: {a: {table: t}}
connectors: {a: {table: t, sink: {}}}
connectors: {a: {sink: {kind: duckdb}}}
connectors: {a: {table: t, sink: {kind: duckdb}, begin: never}}
connectors: {a: {table: t, sink: {kind: duckdb}, batch_rows: 0}}
connectors: {a: {table: t, sink: {kind: duckdb}, bacth_rows: 10}}
connectors: {a: {table: t, sink: {kind: duckdb}, source: {kind: mysql}}}
connectors: {a: {source: {kind: mysql}, filter: "a = 1"}}
connectors: {a: {table: t, sink: {kind: duckdb}}, a: {table: u, sink: {kind: duckdb}}}
connectors: {? [a] : {table: t, sink: {kind: duckdb}}}
connectors: {a: {table: "", sink: {kind: duckdb}}}
connectors: {a: {table: "no name!", sink: {kind: duckdb}}}
connectors: [
other: {}
"""


@pytest.mark.parametrize("text", [line for line in REFUSED.splitlines() if line])
def test_what_a_file_may_not_say(text: str) -> None:
    with pytest.raises(SettingsRefused):
        parse_file(text, "file")


def test_a_fault_tells_the_file_and_the_line() -> None:
    for text in ("connectors:\n  a: 1\n  a: 2\n", "connectors:\n  a: [\n"):
        with pytest.raises(SettingsRefused, match='in "file", line 3'):
            parse_file(text, "file")


@pytest.mark.parametrize(
    "sink",
    [
        {"kind": "nothing"},
        {"kind": "no.such.module"},
        {"kind": "os.path"},
        {"kind": "tests.connectors.sqlite_sink"},
        {"kind": "tests.connectors.sqlite_sink", "path": "p", "more": 1},
    ],
)
def test_the_settings_of_a_sink_are_its_kinds_to_judge(sink: dict[str, object]) -> None:
    with pytest.raises(SettingsRefused):
        judge(parse_document("a", {"table": "t", "sink": sink}), {})


def test_a_plan_tells_what_differs_and_shows_no_secrets() -> None:
    wanted = parse_file(
        """
connectors:
  same: {table: t, sink: {kind: duckdb}}
  changed: {table: t, sink: {kind: mysql, host: new, password: two, token: "${T}"}}
  made: {table: t, sink: {kind: duckdb}}
""",
        "file",
    )
    old = parse_document("changed", {"table": "t", "sink": {"kind": "mysql", "password": "one"}})
    kept = {"same": wanted[0], "changed": old, "other": parse_document("other", old.document)}
    declared = {
        name: DeclaredConnector(name, one, one.text, paused=False, asked=0)
        for name, one in kept.items()
    }
    plan = plan_changes(wanted, declared, prune=False)
    assert [one.name for one in plan.made] == ["made"]
    assert [tuple(change) for change in plan.changed[0][1]] == [
        ("sink.host", None, '"new"'),
        ("sink.password", "(not shown)", "(not shown)"),
        ("sink.token", None, '"${T}"'),
    ]
    assert (plan.same, plan.deleted, plan.others) == (["same"], [], ["other"])
    assert plan.to_send_again == ["changed"]
    assert plan_changes(wanted, declared, prune=True).deleted == ["other"]


def test_a_plan_shows_no_secret_of_settings_that_come_or_go_as_a_whole() -> None:
    """Of a mapping that was not there before, all was shown, the password too."""
    inner = {"password": "one", "hosts": [{"api_key": "two", "port": 1}], "token": "${T}"}
    with_it = parse_document("a", {"source": {"kind": "k", "server": inner}})
    without = parse_document("a", {"source": {"kind": "k"}})
    shown = (
        '{"password": "(not shown)", "hosts": [{"api_key": "(not shown)", "port": 1}],'
        ' "token": "${T}"}'
    )
    for old, new, place in ((without, with_it, 2), (with_it, without, 1)):
        kept = {"a": DeclaredConnector("a", old, old.text, paused=False, asked=0)}
        [change] = plan_changes([new], kept, prune=False).changed[0][1]
        assert json.loads(change[place] or "") == json.loads(shown)
