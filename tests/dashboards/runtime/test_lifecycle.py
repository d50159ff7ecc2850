"""What happens to a dashboard between apply and delete: splits, pauses, other queries, refusals."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rowtide.cli.client import ProtocolClient
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.values.schema import STRING, KeyColumn
from rowtide.dashboards.runtime.state_rows import STATE_TABLE
from tests.connectors.processes import ConnectorProcesses
from tests.dashboards.conftest import Run
from tests.dashboards.flights import Flights, declare_flights, flight
from tests.dashboards.runtime.test_dashboard_run import wait_until_shown
from tests.support.waiting import until

pytestmark = pytest.mark.system


def split(rowtide: Run, table: str, at: str) -> None:
    """Split the last shard of a table."""
    shards = rowtide("shard", "list", table, "-o", "json")
    rowtide("shard", "split", table, shards[-1]["shard"], "--at", at)


def test_splits_of_the_table_and_of_the_state_lose_nothing(
    rows: ProtocolClient, rowtide: Run, processes: ConnectorProcesses, tmp_path: Path
) -> None:
    flights = Flights(rows)
    flights.put({f"f{n}": flight(n) for n in range(200)})
    rowtide("dashboard", "apply", declare_flights(tmp_path, flights.table, "parted"))
    processes.start()
    wait_until_shown(rowtide, "parted", flights)
    split(rowtide, flights.table, "f5")
    flights.update("f0", {"delay": 3.25})
    flights.delete("f199", "f7")
    flights.put({f"f{n}": flight(n + 1) for n in range(50, 90)})
    wait_until_shown(rowtide, "parted", flights)
    shown = rowtide("dashboard", "show", "parted", "-o", "json")
    split(rowtide, STATE_TABLE, f"parted/{shown['build']}/{max(shown['positions'])}")
    flights.delete(*[f"f{n}" for n in range(60, 120)])
    wait_until_shown(rowtide, "parted", flights)
    shown = rowtide("dashboard", "show", "parted", "-o", "json")
    assert len(shown["positions"]) == 3
    assert ": equal" in rowtide("verify", "dashboard", "parted")


def test_a_changed_query_is_built_beside_the_former_one(
    rows: ProtocolClient, rowtide: Run, processes: ConnectorProcesses, tmp_path: Path
) -> None:
    flights = Flights(rows)
    flights.put({f"f{n}": flight(n) for n in range(30)})
    file = declare_flights(tmp_path, flights.table, "changed")
    rowtide("dashboard", "apply", file)
    processes.start()
    wait_until_shown(rowtide, "changed", flights)
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("title: Flights an hour", "title: Hours"), encoding="utf-8")
    assert "keeps its numbers" in rowtide("dashboard", "apply", file)
    processes.stop()
    file.write_text(text.replace("max(delay) AS worst", "min(delay) AS worst"), encoding="utf-8")
    assert "is built again" in rowtide("dashboard", "apply", file)
    shown = rowtide("dashboard", "show", "changed", "-o", "json")
    assert (shown["state"], shown["is_former"]) == ("building", True)
    worst = max(float(row["delay"]) for row in flights.rows.values())
    assert shown["panels"]["late"]["rows"][0][2] == worst
    processes.start()
    until(lambda: rowtide("dashboard", "show", "changed", "-o", "json")["state"] == "ready")
    wait_until_shown(rowtide, "changed", flights)
    shown = rowtide("dashboard", "show", "changed", "-o", "json")
    assert shown["panels"]["late"]["rows"][0][2] < worst
    assert ": equal" in rowtide("verify", "dashboard", "changed")


def test_a_paused_dashboard_keeps_its_numbers_and_catches_up(
    rows: ProtocolClient, rowtide: Run, processes: ConnectorProcesses, tmp_path: Path
) -> None:
    flights = Flights(rows)
    flights.put({f"f{n}": flight(n) for n in range(20)})
    rowtide("dashboard", "apply", declare_flights(tmp_path, flights.table, "resting"))
    processes.start()
    wait_until_shown(rowtide, "resting", flights)
    assert rowtide("dashboard", "pause", "resting") == "Paused resting.\n"
    flights.delete("f3", "f4")
    shown = rowtide("dashboard", "show", "resting", "-o", "json")
    assert (shown["state"], shown["panels"]["all"]["rows"][0][0]) == ("paused", 20)
    rowtide("dashboard", "resume", "resting")
    wait_until_shown(rowtide, "resting", flights)
    builds = [rowtide("dashboard", "show", "resting", "-o", "json")["build"]]
    rowtide("dashboard", "rebuild", "resting")
    until(lambda: rowtide("dashboard", "show", "resting", "-o", "json")["build"] not in builds)
    wait_until_shown(rowtide, "resting", flights)
    listed = {one["name"]: one for one in rowtide("dashboard", "list", "-o", "json")}
    assert listed["resting"] == {
        "name": "resting",
        "table": flights.table,
        "panels": 5,
        "state": "ready",
    }


def test_every_change_is_counted_once(
    rows: ProtocolClient, rowtide: Run, processes: ConnectorProcesses, tmp_path: Path
) -> None:
    flights = Flights(rows)
    flights.put({"before": flight(1)})
    query = "SELECT change_kind, count(*) AS n, max(delay) AS m FROM changes('{}') GROUP BY ALL"
    file = tmp_path / "changes.yaml"
    file.write_text(
        f"dashboards: {{each_change: {{table: {flights.table}, types: {{delay: double}}, "
        f'panels: {{kinds: {{query: "{query.format(flights.table)} ORDER BY change_kind"}}}}}}}}',
        encoding="utf-8",
    )
    rowtide("dashboard", "apply", file)
    processes.start()
    # Changes are counted from where it began.
    until(lambda: rowtide("dashboard", "status", "each_change", "-o", "json")[0]["lag"] is not None)
    until(
        lambda: rowtide("dashboard", "show", "each_change", "-o", "json"), not_yet=(AssertionError,)
    )
    flights.put({"a": {"delay": 1.5}, "b": {"delay": 2.5}})
    flights.update("a", {"delay": 9.0})
    flights.delete("b")
    expected = [["delete", 1, None], ["put", 2, 2.5], ["update", 1, 9.0]]
    until(
        lambda: (
            rowtide("dashboard", "show", "each_change", "-o", "json")["panels"]["kinds"]["rows"]
            == expected
        ),
        lambda: rowtide("dashboard", "show", "each_change"),
    )
    assert "counts changes" in rowtide("verify", "dashboard", "each_change", code=3)


def test_a_table_that_cannot_be_followed_is_refused(
    rows: ProtocolClient, rowtide: Run, tmp_path: Path
) -> None:
    key = (KeyColumn("id", STRING),)
    rows.create_table("no_stream", key)
    stream = pb.StreamSpecification(enable_stream=True, expiration_time=24)
    options = pb.TableOptions(time_to_live=86_400, max_versions=1)
    rows.create_table("expiring", key, options=options, stream=stream)
    for table, reason in {
        "no_stream": "has no stream",
        "expiring": "expire after 86400 s without a change record",
        "absent": "OTSObjectNotExist",
    }.items():
        file = declare_flights(tmp_path, table, "refused")
        assert reason in rowtide("dashboard", "apply", file, code=1)
    file = declare_flights(tmp_path, "flights_key", "refused")
    text = file.read_text(encoding="utf-8").replace("origin: text", "origin: text, id: bigint")
    file.write_text(text, encoding="utf-8")
    rows.create_table("flights_key", key, stream=stream)
    found = rowtide("dashboard", "apply", file, code=1)
    assert re.search("'id' of the key .* is STRING, but .* declares bigint: declare text", found)
    assert "There is no dashboard refused" in rowtide("dashboard", "show", "refused", code=1)
