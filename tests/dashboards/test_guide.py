"""The guide docs/guides/dashboards.md: its file is valid, and its commands answer as it shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rowtide.cli.client import ProtocolClient, ServerError, Write
from rowtide.client.wire_row import Put
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.values.schema import STRING, KeyColumn
from tests.connectors.processes import ConnectorProcesses
from tests.dashboards.conftest import Run
from tests.support.page_commands import list_commands, pattern_of
from tests.support.waiting import until

pytestmark = pytest.mark.system

PAGE = Path(__file__).resolve().parents[2] / "docs/guides/dashboards.md"
NEW_YEAR_US = 1_704_067_200_000_000
FLIGHTS = {"a": ("JFK", 0.0), "b": ("JFK", 5.0), "c": ("LGA", 30.0)}


def write_flights(rows: ProtocolClient) -> None:
    stream = pb.StreamSpecification(enable_stream=True, expiration_time=24)
    rows.create_table("flights", (KeyColumn("id", STRING),), stream=stream)
    for key, (origin, delay) in FLIGHTS.items():
        puts = [Put("origin", origin), Put("dep_delay", delay), Put("time_hour", NEW_YEAR_US)]
        assert rows.batch_write_row({"flights": [Write("PUT", [("id", key)], puts)]}) == [None]


def test_the_commands_of_the_guide_answer_as_it_shows(
    rows: ProtocolClient,
    rowtide: Run,
    processes: ConnectorProcesses,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = PAGE.read_text(encoding="utf-8")
    # The second block is of Prometheus.
    declared = re.findall(r"^```yaml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)[0]
    (tmp_path / "departures.yaml").write_text(declared, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    write_flights(rows)
    for command, printed in list_commands(text):
        if " show " in command:
            processes.start()
            until(
                lambda: rowtide("dashboard", "show", "departures"),
                not_yet=(AssertionError, ServerError),
            )
        found = rowtide(*command.split()[1:])
        assert pattern_of(printed.strip()).fullmatch(found.strip()), found
    rowtide("dashboard", "delete", "departures", "--yes")
