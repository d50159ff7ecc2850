"""Random histories of rows, shards and processes: each verified position has the numbers of DuckDB.

Processes of the dashboard are started, killed and stopped while rows are written and shards split.
A failure names its seed: ROWTIDE_HISTORY_SEED repeats the steps, not the moments at which they
meet.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from click.testing import CliRunner

from rowtide.cli.client import ProtocolClient, ServerError
from rowtide.cli.main import main
from rowtide.dashboards.runtime.state_rows import STATE_TABLE
from tests.connectors.processes import ConnectorProcesses
from tests.dashboards.conftest import Run
from tests.dashboards.flights import Flights, declare_flights, flight
from tests.dashboards.runtime.test_dashboard_run import wait_until_shown
from tests.support.waiting import until

pytestmark = pytest.mark.system

STEPS = 40
SPLITS_MAX = 3
KEYS = 150


class History:
    """One history of a dashboard ``name``."""

    def __init__(
        self, chance: random.Random, flights: Flights, processes: ConnectorProcesses, name: str
    ) -> None:
        self.verified = 0
        self._chance = chance
        self._flights = flights
        self._processes = processes
        self._name = name
        self._splits = 0

    def step(self, rowtide: Run) -> None:
        """Do something."""
        what, running = self._chance.random(), len(self._processes.running)
        if what < 0.1 and running < 2:
            self._processes.start()
        elif what < 0.2 and running:
            self._processes.kill(self._chance.randrange(running))
        elif what < 0.25 and running:
            self._processes.stop(self._chance.randrange(running))
        elif what < 0.35:
            self._verify()
        elif what < 0.42 and self._splits < SPLITS_MAX:
            self._split(rowtide)
        else:
            self._write()

    def _write(self) -> None:
        chance = self._chance
        keys = [f"f{n:03}" for n in chance.sample(range(KEYS), chance.choice([1, 3, 40]))]
        kind = chance.choice(["put", "put", "update", "delete"])
        if kind == "put":
            self._flights.put({key: flight(chance.randrange(1000)) for key in keys})
        elif kind == "delete":
            self._flights.delete(*keys)
        else:
            for key in keys[:5]:
                self._flights.update(key, {"delay": chance.randrange(400) / 4})

    def _split(self, rowtide: Run) -> None:
        table = self._flights.table
        shards = rowtide("shard", "list", table, "-o", "json")
        last = shards[-1]["shard"]
        at = f"f{(self._splits + 1) * KEYS // (SPLITS_MAX + 1):03}"
        rowtide("shard", "split", table, last, "--at", at)
        self._splits += 1

    def _verify(self) -> None:
        """Compare while nothing waits: equal, or not possible now; never different."""
        arguments = ["verify", "dashboard", self._name, "--wait-s", "3"]
        result = CliRunner().invoke(main, arguments)
        assert result.exit_code in (0, 3), result.output
        self.verified += result.exit_code == 0


def play(
    rows: ProtocolClient, rowtide: Run, processes: ConnectorProcesses, folder: Path, seed: int
) -> None:
    chance = random.Random(seed)
    flights = Flights(rows)
    name = f"history-{flights.table}".replace("_", "-")
    flights.put({f"f{n:03}": flight(n) for n in range(0, KEYS, 2)})
    rowtide("dashboard", "apply", declare_flights(folder, flights.table, name, lease_ms=600))
    processes.start()
    history = History(chance, flights, processes, name)
    try:
        for _ in range(STEPS):
            history.step(rowtide)
        if not processes.running:
            processes.start()
        wait_until_shown(rowtide, name, flights)
        assert ": equal" in rowtide("verify", "dashboard", name)
        processes.stop_all()
        rowtide("dashboard", "delete", name, "--yes")
        shown = rowtide("row", "scan", STATE_TABLE)
        assert name not in str(shown)
    except AssertionError as error:
        said = processes.said()
        raise AssertionError(f"ROWTIDE_HISTORY_SEED={seed}: {error}\n{said}") from error


def chosen_seed() -> int:
    return int(os.environ.get("ROWTIDE_HISTORY_SEED", str(random.SystemRandom().randrange(10**6))))


def test_a_history_has_the_numbers_of_duckdb_at_each_verified_position(
    rows: ProtocolClient, rowtide: Run, processes: ConnectorProcesses, tmp_path: Path
) -> None:
    play(rows, rowtide, processes, tmp_path, chosen_seed())


@pytest.mark.slow
@pytest.mark.parametrize("round_", range(20))
def test_many_histories_have_the_numbers_of_duckdb(
    rows: ProtocolClient,
    rowtide: Run,
    processes: ConnectorProcesses,
    tmp_path: Path,
    round_: int,
) -> None:
    play(rows, rowtide, processes, tmp_path, chosen_seed() + round_)


def test_one_dashboard_beside_another_reads_alone(
    rows: ProtocolClient, rowtide: Run, processes: ConnectorProcesses, tmp_path: Path
) -> None:
    flights = Flights(rows)
    flights.put({f"f{n}": flight(n) for n in range(10)})
    for name in ("left", "left-2"):
        rowtide("dashboard", "apply", declare_flights(tmp_path, flights.table, name))
    processes.start()
    for name in ("left", "left-2"):
        wait_until_shown(rowtide, name, flights)
    rowtide("dashboard", "delete", "left", "--yes")
    flights.delete("f1")
    wait_until_shown(rowtide, "left-2", flights)
    until(lambda: ": equal" in rowtide("verify", "dashboard", "left-2"), not_yet=(ServerError,))
