"""A dashboard that runs in real processes shows the numbers of the rows, whatever is killed."""

from __future__ import annotations

import os
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from rowtide.cli.client import ProtocolClient, Write
from rowtide.client.wire_row import Key, Put, Special
from rowtide.dashboards.runtime.state_rows import STATE_TABLE
from rowtide.deploy.up import Ready
from tests.connectors.processes import ConnectorProcesses
from tests.dashboards.conftest import Run
from tests.dashboards.flights import Flights, declare_flights, expected_of, flight, numbers_of
from tests.support.waiting import until

pytestmark = pytest.mark.system

ROWS = 700


def wait_until_shown(rowtide: Run, name: str, flights: Flights) -> None:
    """Return once the dashboard has the numbers of the rows."""

    def shown() -> Any:
        return rowtide("dashboard", "show", name, "-o", "json")

    until(lambda: numbers_of(shown()) == expected_of(flights), shown, not_yet=(AssertionError,))


def test_numbers_follow_puts_updates_and_deletes(
    rows: ProtocolClient, rowtide: Run, processes: ConnectorProcesses, tmp_path: Path
) -> None:
    flights = Flights(rows)
    flights.put({f"f{n}": flight(n) for n in range(ROWS)})
    file = declare_flights(tmp_path, flights.table, "departures")
    assert "is created" in rowtide("dashboard", "apply", file)
    assert "has not read all rows" in rowtide("dashboard", "show", "departures", code=3)
    processes.start()
    wait_until_shown(rowtide, "departures", flights)
    flights.put({f"g{n}": flight(n) for n in range(50)})
    for number in range(0, 60, 3):
        flights.update(f"f{number}", {"delay": 500.25 + number, "origin": "BOS"})
    flights.delete("f1", "f2", "f4")
    flights.put({"f5": {"carrier": "ZZ"}})
    wait_until_shown(rowtide, "departures", flights)
    assert ": equal" in rowtide("verify", "dashboard", "departures")

    def status() -> tuple[str, int]:
        [found] = rowtide("dashboard", "status", "departures", "-o", "json")
        return found["state"], len(found["processes"])

    until(lambda: status() == ("ready", 1), status)
    processes.stop()
    rowtide("dashboard", "delete", "departures", "--yes")
    assert "no dashboard" in rowtide("dashboard", "show", "departures", code=1)


def test_a_planted_wrong_number_is_found(
    rows: ProtocolClient, rowtide: Run, processes: ConnectorProcesses, tmp_path: Path
) -> None:
    flights = Flights(rows)
    flights.put({f"f{n}": flight(n) for n in range(40)})
    rowtide("dashboard", "apply", declare_flights(tmp_path, flights.table, "planted"))
    processes.start()
    wait_until_shown(rowtide, "planted", flights)
    processes.stop()
    assert ": equal" in rowtide("verify", "dashboard", "planted")
    first: Key = [(name, Special.INF_MIN) for name in ("part", "panel", "group")]
    last: Key = [(name, Special.INF_MAX) for name in ("part", "panel", "group")]
    stored = [row for page in rows.get_range(STATE_TABLE, first, last) for row in page]
    wrong = next(
        row
        for row in stored
        if dict(row.key)["panel"] == "hourly" and str(dict(row.key)["part"]).startswith("planted/")
        if dict(row.key)["group"]
    )
    body = bytearray(next(put.value for put in wrong.columns if put.name == "body"))  # type: ignore[arg-type]
    body[1] += 2  # One more row in the group.
    body[-1] += 2  # count(*) as well.
    change = Write("UPDATE", list(wrong.key), [Put("body", bytes(body))])
    assert rows.batch_write_row({STATE_TABLE: [change]}) == [None]
    found = rowtide("verify", "dashboard", "planted", code=1)
    assert "hourly: shown" in found
    assert "2 rows of answers differ" in found


def test_kills_of_the_runner_count_nothing_twice(
    server: Ready,
    rows: ProtocolClient,
    rowtide: Run,
    processes: ConnectorProcesses,
    tmp_path: Path,
) -> None:
    seed = int(os.environ.get("ROWTIDE_HISTORY_SEED", str(random.SystemRandom().randrange(10**6))))
    chance = random.Random(seed)
    flights = Flights(rows)
    flights.put({f"f{n}": flight(n) for n in range(300)})
    rowtide("dashboard", "apply", declare_flights(tmp_path, flights.table, "killed", lease_ms=600))
    for _ in range(6):
        processes.start()
        for _ in range(chance.randrange(10, 40)):
            key = f"f{chance.randrange(400)}"
            what = chance.random()
            if what < 0.3:
                flights.delete(key)
            elif what < 0.6:
                flights.update(key, {"delay": chance.randrange(400) / 4})
            else:
                flights.put({f"f{n}": flight(n) for n in chance.sample(range(400), 20)})
        processes.kill()
    processes.start()
    wait_until_shown(rowtide, "killed", flights)
    assert ": equal" in rowtide("verify", "dashboard", "killed")


def write_changes(flights: Flights, chance: random.Random, changes: int) -> None:
    """Put, update and delete random rows."""
    for _ in range(0, changes, 100):
        numbers = chance.sample(range(20_000), 99)
        keys = [f"f{number}" for number in numbers]
        what = chance.random()
        if what < 0.2:
            flights.delete(*keys)
        else:
            flights.put({key: flight(chance.randrange(1000)) for key in keys})
        flights.update(f"f{chance.randrange(20_000)}", {"delay": chance.randrange(400) / 4})


def kill_while_written(
    rows: ProtocolClient,
    rowtide: Run,
    processes: ConnectorProcesses,
    folder: Path,
    *,
    changes: int,
    kills: int,
) -> None:
    """Kill the process of a dashboard again and again; verify it after each kill."""
    seed = int(os.environ.get("ROWTIDE_HISTORY_SEED", str(random.SystemRandom().randrange(10**6))))
    flights, name = Flights(rows), f"killed-{seed}"  # A failure shows the name.
    rowtide("dashboard", "apply", declare_flights(folder, flights.table, name, lease_ms=600))
    processes.start()
    wait_until_shown(rowtide, name, flights)
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write_changes, flights, random.Random(seed), changes)
        for _ in range(kills):
            processes.kill()
            processes.start()
            assert ": equal" in rowtide("verify", "dashboard", name, "--wait-s", "60")
        writing.result()
    wait_until_shown(rowtide, name, flights)
    assert ": equal" in rowtide("verify", "dashboard", name)


def test_kills_while_changes_are_written(
    rows: ProtocolClient, rowtide: Run, processes: ConnectorProcesses, tmp_path: Path
) -> None:
    kill_while_written(rows, rowtide, processes, tmp_path, changes=5_000, kills=2)


@pytest.mark.slow
def test_ten_kills_while_many_changes_are_written(
    rows: ProtocolClient, rowtide: Run, processes: ConnectorProcesses, tmp_path: Path
) -> None:
    kill_while_written(rows, rowtide, processes, tmp_path, changes=300_000, kills=10)
