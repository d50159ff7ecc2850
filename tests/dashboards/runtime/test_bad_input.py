"""Values and files that nobody should have, each named where it is rejected."""

from __future__ import annotations

import math
from contextlib import ExitStack
from pathlib import Path

import pytest

from rowtide.cli.client import ProtocolClient, ServerError
from rowtide.deploy.up import Ready
from tests.connectors.processes import ConnectorProcesses
from tests.dashboards.conftest import Run
from tests.dashboards.flights import Flights, declare_flights, flight, numbers_of
from tests.dashboards.runtime.test_dashboard_run import wait_until_shown
from tests.support.waiting import until

pytestmark = pytest.mark.system

FILE = """
dashboards:
  odd:
    table: {table}
    types: {{origin: text, carrier: text, delay: double, large: bigint}}
    lease_ms: 1000
    panels:
      bounded: {{groups_max: 50, query: "SELECT carrier, count(*) AS n FROM {table} GROUP BY ALL"}}
      doubles: {{query: "SELECT sum(delay) AS s, max(delay) AS high FROM {table}"}}
      integers: {{query: "SELECT sum(large) AS s, count(large) AS n FROM {table}"}}
      overflow: {{query: "SELECT sum(large + 1) AS s FROM {table}"}}
"""
MOST = 2**63 - 1


def test_odd_values_hide_no_other_panel(
    rows: ProtocolClient, rowtide: Run, processes: ConnectorProcesses, tmp_path: Path
) -> None:
    flights = Flights(rows)
    flights.put({f"f{n}": {**flight(n), "carrier": f"c{n}"} for n in range(60)})
    flights.put({"max": {"large": MOST}, "more": {"large": MOST}, "text": {"large": "7"}})
    flights.put({"big": {"delay": 1e308}, "bigger": {"delay": 1.7e308}})
    for value in (math.inf, math.nan):  # No row can have them, so no panel gets them.
        with pytest.raises(ServerError, match="can't be set to double value"):
            flights.put({"odd": {"delay": value}})
    file = tmp_path / "odd.yaml"
    file.write_text(FILE.format(table=flights.table), encoding="utf-8")
    rowtide("dashboard", "apply", file)
    processes.start()
    until(
        lambda: rowtide("dashboard", "show", "odd", "-o", "json"),
        processes.said,
        not_yet=(AssertionError,),
    )
    panels = rowtide("dashboard", "show", "odd", "-o", "json")["panels"]
    assert (panels["bounded"]["fault"], panels["bounded"]["rows"]) == ("too many groups", [])
    assert panels["doubles"]["rows"] == [["inf", 1.7e308]]
    assert panels["integers"]["rows"] == [[str(2 * MOST), 2]]
    assert panels["integers"]["mistyped"] == {"large": 1}
    assert panels["overflow"]["fault"] == "out of range"
    assert ": equal" in rowtide("verify", "dashboard", "odd")
    flights.delete("max", "more", "big")

    def shown() -> object:
        found = rowtide("dashboard", "show", "odd", "-o", "json")["panels"]
        return found["doubles"]["rows"][0][0], found["overflow"]["rows"]

    until(lambda: shown() == (1.7e308, [[None]]), shown)
    assert ": equal" in rowtide("verify", "dashboard", "odd")


def test_a_revoked_key_stops_its_process_and_another_one_goes_on(
    server: Ready, rows: ProtocolClient, rowtide: Run, tmp_path: Path
) -> None:
    flights = Flights(rows)
    flights.put({f"f{n}": flight(n) for n in range(20)})
    rowtide("dashboard", "apply", declare_flights(tmp_path, flights.table, "keyed"))
    made = rowtide("key", "create", "-o", "json")
    pair = {name: made[name] for name in ("access_key_id", "access_key_secret")}
    with ExitStack() as closing:
        keyed = ConnectorProcesses(server._replace(**pair), tmp_path, closing)
        keyed.start()
        wait_until_shown(rowtide, "keyed", flights)
        rowtide("key", "revoke", made["access_key_id"], "--yes")
        shown = numbers_of(rowtide("dashboard", "show", "keyed", "-o", "json"))
        flights.delete("f1", "f2")
        until(lambda: "AccessKeyID does not exist" in keyed.said(), keyed.said)
        assert numbers_of(rowtide("dashboard", "show", "keyed", "-o", "json")) == shown
        ConnectorProcesses(server, tmp_path, closing).start()
        wait_until_shown(rowtide, "keyed", flights)
        assert ": equal" in rowtide("verify", "dashboard", "keyed")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"\xff\xfe", "is not text"),
        (b"dashboards: " + b"[" * 1_000, "brackets are nested too deeply"),
        (b"x: " + b"a" * 1_100_000, "at most 1,048,576 are allowed"),
        (b"dashboards: {}", "must have 1 to 100 names, but has 0"),
        (b"dashboards: &a {b: *a}", "dashboards.b.table is missing"),
        (b"dashboards: {a: !!python/object:os.system {}}", "dashboards.a.table is missing"),
    ],
    ids=["no text", "deep", "large", "empty", "an alias of itself", "a tag"],
)
def test_a_file_that_is_none_is_rejected(
    rowtide: Run, tmp_path: Path, content: bytes, reason: str
) -> None:
    file = tmp_path / "f.yaml"
    file.write_bytes(content)
    for command in ("validate", "plan", "apply"):
        assert reason in " ".join(rowtide("dashboard", command, file, code=2).split())


def test_a_plan_shows_rejected_panels_beside_the_others(rowtide: Run, tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    text = FILE.format(table="t").replace("sum(large + 1)", "sum(large + now())")
    file.write_text(text, encoding="utf-8")
    found = rowtide("dashboard", "plan", file, code=2)
    assert "odd.bounded" in found
    assert "f.yaml, line 11, column 45" in found
    assert "now() has another value each time" in found
    assert "odd.overflow\n" not in found
