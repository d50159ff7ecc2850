"""Each table of a source has a state: a report has them all, and one that failed stops no other."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from rowtide.cli.client import ProtocolClient
from rowtide.client.endpoint import Endpoint
from rowtide.connectors.runtime.declaration import parse_document
from rowtide.connectors.runtime.place import ProcessContext
from rowtide.connectors.runtime.source_run import SourceRun
from rowtide.connectors.runtime.status_board import STATUS_TABLE, StatusBoard, report_of
from rowtide.connectors.runtime.table_states import fit_states
from rowtide.connectors.sources.source import TableState
from rowtide.deploy.up import Ready
from tests.connectors import folder_source
from tests.connectors.processes import ConnectorProcesses, declare, yaml_of
from tests.connectors.runtime.conftest import Run
from tests.support.waiting import until

CELL_BYTES_MAX = 2 * 1024 * 1024


def make_failed_state(name: str, reason: str = "", remedy: str = "") -> TableState:
    return TableState(name, name, "failed", reason=reason, remedy=remedy)


def following(name: str) -> TableState:
    return TableState(name, name, "following")


@pytest.mark.parametrize(
    ("states", "tables", "failures", "omitted"),
    [
        ([], [], 0, 0),
        ([following("b"), make_failed_state("a")], ["a", "b"], 1, 0),
        # A text of any length becomes one line of at most 1,000 characters.
        ([make_failed_state("a", "x" * 5000, "y\n" * 5000)], ["a"], 1, 0),
        # The tables that do not fit need no action.
        (
            [following(f"f{n:06}") for n in range(30_000)] + [make_failed_state("z", "r")],
            None,
            1,
            None,
        ),
        # A character outside the first 65,536 has 12 bytes in JSON.
        (
            [make_failed_state(f"t{n:04}", "\U0001f600" * 1000) for n in range(1000)],
            None,
            1000,
            None,
        ),
    ],
)
def test_states_of_any_size_fit_into_a_report(
    states: list[TableState], tables: list[str] | None, failures: int, omitted: int | None
) -> None:
    found = fit_states(states)
    names = [state.table for state in found.tables]
    assert names == sorted(names)
    assert found.failed == failures
    assert len(names) + found.omitted == len(states)
    if tables is None:
        assert 0 < found.omitted < len(states)
        assert any(state.state == "failed" for state in found.tables)
    else:
        assert (names, found.omitted) == (tables, omitted)
    assert all(len(s.reason) <= 1000 and "\n" not in s.remedy for s in found.tables)
    assert len(json.dumps([asdict(state) for state in found.tables])) < CELL_BYTES_MAX - 100_000


class Reporting:
    """A source with given states."""

    def __init__(self, states: list[TableState] | None) -> None:
        self._states = states

    async def run(self, target: object) -> None:
        raise AssertionError("nobody runs it")

    def stop(self) -> None:
        raise AssertionError("nobody runs it")

    def table_states(self) -> list[TableState]:
        if self._states is None:
            raise KeyError("code")
        return self._states


def run_of(endpoint: Endpoint, states: list[TableState] | None) -> SourceRun:
    source = {"kind": folder_source.KIND, "path": "nowhere"}
    run = SourceRun(parse_document("lines", {"source": source}), ProcessContext(endpoint, {}, ""))
    run._running = Reporting(states)
    return run


@pytest.mark.system
async def test_reports_of_any_size_and_of_earlier_versions_are_read(server: Ready) -> None:
    large = [make_failed_state(f"t{n:04}", "\U0001f600" * 1000) for n in range(1000)]
    async with Endpoint(**server._asdict()) as endpoint:
        board = StatusBoard(endpoint)
        await board.report("large", report_of(run_of(endpoint, large), "here", 1))
        [report] = (await board.all())["large"]
        assert report.tables_failed == 1000
        assert len(report.tables) + report.tables_omitted == 1000
        # What a source raises ends neither the report nor the process.
        report = report_of(run_of(endpoint, None), "here", 1)
        assert report.tables == []
        await board.withdraw("large", "here")
        fields = {n: value for n, value in asdict(report).items() if not n.startswith("tables")}
        for document in (fields, fields | {"later": 1}):
            await board._rows.put(("old", "here"), {"report": json.dumps(document)})
            assert (await board.all())["old"] == [report], STATUS_TABLE
        await board.withdraw("old", "here")


def lines(*rows: object) -> str:
    return "".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows)


@pytest.mark.system
def test_status_shows_each_table_and_why_one_failed(
    server: Ready,
    rows: ProtocolClient,
    processes: ConnectorProcesses,
    connector: Run,
    tmp_path: Path,
) -> None:
    folder = tmp_path / "tables"
    folder.mkdir()
    (folder / "st_done.jsonl").write_text(lines({"id": "a", "n": 1}, "---"))
    (folder / "st_copy.jsonl").write_text(lines("# 50", {"id": "a"}, {"id": "b"}))
    (folder / "st_bad.jsonl").write_text(lines("no JSON"))
    document = {"source": {"kind": folder_source.KIND, "path": str(folder)}, "lease_ms": 1000}
    declare(server, yaml_of("tables", document))
    metrics = tmp_path / "metrics"
    processes.start("tables", "--metrics-file", str(metrics))

    def standing() -> dict[str, object]:
        found: dict[str, object] = connector("status", "tables", "--output", "json")[0]
        return found

    until(lambda: standing()["tables_failed"] == 1, message=processes.said)
    found = standing()
    assert (found["state"], found["tables_omitted"]) == ("running", 0)
    assert found["tables"] == [
        asdict(state)
        for state in (
            TableState("folder.st_bad", "st_bad", "failed", reason=REASON, remedy=REMEDY),
            TableState("folder.st_copy", "st_copy", "copying", 2, 50),
            TableState("folder.st_done", "st_done", "following"),
        )
    ]
    assert isinstance(found["processes"], list)
    assert "tables" not in found["processes"][0]
    trouble = f"table folder.st_bad failed: {REASON}. Remedy: {REMEDY}"
    assert found["troubles"] == [trouble]
    printed = connector("status", "tables", "--tables")
    assert "running, 1 table failed" in printed
    assert f"tables: {trouble}" in printed
    said = printed.splitlines()
    at = next(at for at, line in enumerate(said) if "rows copied" in line)
    assert [line.split() for line in said[at : at + 4]] == [
        ["name", "table", "in", "rowtide", "state", "rows", "copied", "of", "about"],
        ["tables", "folder.st_bad", "st_bad", "failed"],
        ["tables", "folder.st_copy", "st_copy", "copying", "2", "50"],
        ["tables", "folder.st_done", "st_done", "following"],
    ]
    gauge = 'rowtide_connector_tables_failed{connector="tables"} 1.0'
    until(lambda: metrics.exists() and gauge in metrics.read_text(), message=processes.said)
    (folder / "st_bad.jsonl").write_text(lines({"id": "a"}, "---"))
    until(lambda: standing()["tables_failed"] == 0, message=processes.said)
    assert standing()["troubles"] == []
    processes.stop_all()
    connector("delete", "tables", "--yes")
    for table in ("st_done", "st_copy", "st_bad"):
        rows.delete_table(table)


REASON = "a line is no JSON: Expecting value: line 1 column 1 (char 0)"
REMEDY = "write JSON into st_bad.jsonl"
