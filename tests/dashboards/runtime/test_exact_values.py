"""Rows without any kept column, older versions and deleted versions are counted as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from rowtide.cli.client import ProtocolClient, Write
from rowtide.client.wire_row import Put
from tests.connectors.processes import ConnectorProcesses
from tests.dashboards.conftest import Run
from tests.dashboards.flights import Flights, declare_flights, flight
from tests.dashboards.runtime.test_dashboard_run import wait_until_shown
from tests.support.waiting import until

pytestmark = pytest.mark.system


def test_rows_without_a_kept_column_count(
    rows: ProtocolClient, rowtide: Run, processes: ConnectorProcesses, tmp_path: Path
) -> None:
    flights = Flights(rows)
    flights.put({f"f{n}": flight(n) for n in range(20)})
    flights.put({"bare": {"gate": "A1"}})
    rowtide("dashboard", "apply", declare_flights(tmp_path, flights.table, "bare"))
    processes.start()
    wait_until_shown(rowtide, "bare", flights)
    flights.update("bare", {"gate": "A2"})
    flights.update("bare", {"delay": 2.5})
    flights.put({"bare": {"gate": "A3"}})
    # An older version changes nothing that is visible.
    old = Write("UPDATE", [("id", "f3")], [Put("delay", 99.0, 1_000)])
    rows.batch_write_row({flights.table: [old]})
    flights.delete("f4")
    wait_until_shown(rowtide, "bare", flights)
    assert ": equal" in rowtide("verify", "dashboard", "bare")
    flights.delete("bare")
    wait_until_shown(rowtide, "bare", flights)
    assert ": equal" in rowtide("verify", "dashboard", "bare")


COUNTED = """
dashboards:
  counted:
    table: {table}
    types: {{origin: text}}
    lease_ms: 1000
    panels: {{all: {{query: "SELECT count(*) AS n FROM {table}"}}}}
"""


def test_rows_are_counted_where_no_panel_reads_a_column(
    rows: ProtocolClient, rowtide: Run, processes: ConnectorProcesses, tmp_path: Path
) -> None:
    flights = Flights(rows)
    flights.put({f"f{n}": flight(n) for n in range(20)})
    flights.put({"bare": {}})
    file = tmp_path / "counted.yaml"
    file.write_text(COUNTED.format(table=flights.table), encoding="utf-8")
    rowtide("dashboard", "apply", file)
    processes.start()

    def wait_until_counted() -> None:
        def shown() -> object:
            panels = rowtide("dashboard", "show", "counted", "-o", "json")["panels"]
            return panels["all"]["rows"]

        until(lambda: shown() == [[len(flights.rows)]], shown, not_yet=(AssertionError,))

    wait_until_counted()
    flights.put({"bare-2": {}, "f3": {}, "f40": flight(40)})
    flights.update("f41", {"gate": "A1"})
    flights.delete("bare", "f4", "f5", "absent")
    wait_until_counted()
    assert ": equal" in rowtide("verify", "dashboard", "counted")
    flights.delete(*flights.rows)
    wait_until_counted()
    assert ": equal" in rowtide("verify", "dashboard", "counted")


def test_columns_that_are_narrowed_by_another_client_come_back(
    rows: ProtocolClient, rowtide: Run, processes: ConnectorProcesses, tmp_path: Path
) -> None:
    flights = Flights(rows)
    flights.put({f"f{n}": flight(n) for n in range(20)})
    rowtide("dashboard", "apply", declare_flights(tmp_path, flights.table, "narrow"))
    processes.start()
    wait_until_shown(rowtide, "narrow", flights)
    first = rowtide("dashboard", "show", "narrow", "-o", "json")["build"]
    rowtide("table", "update", flights.table, "--stream", "24", "--stream-column", "origin")
    flights.update("f1", {"delay": 70.25})
    wait_until_shown(rowtide, "narrow", flights)
    assert rowtide("dashboard", "show", "narrow", "-o", "json")["build"] != first
    flights.update("f1", {"delay": 71.25})
    wait_until_shown(rowtide, "narrow", flights)
    assert ": equal" in rowtide("verify", "dashboard", "narrow")
