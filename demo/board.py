"""The dashboard of the demo: flights depart on it, a worker is killed, and every number is proven.

The dashboard is declared by ``demo/departures.yaml``, with the commands that anybody would use. The
worker that is killed is a second one, which joins for this and gets the shard of the flights.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import click

from demo.departures import Departures
from demo.follow import connect
from rowtide.client.endpoint import Endpoint
from rowtide.dashboards.runtime.numbers import numbers_document, read_numbers
from rowtide.dashboards.runtime.stored_dashboards import StoredDashboards
from rowtide.deploy.up import RUN, Ready, Up

__all__ = ["DASHBOARD", "Board", "BoardFailed", "SecondWorker", "lose_worker", "wait_until_shown"]

DASHBOARD = "departures"
TABLE = "flights"
STATUSES = ("scheduled", "delayed", "departed")
FILE = Path(__file__).with_name("departures.yaml")
STEP_S_MAX = 90.0
POLL_S = 0.1
PATIENCE_S = 15.0


class BoardFailed(Exception):
    """Something did not happen in time, or a number is wrong; the text says what."""


def wait_for(what: str, holds: Callable[[], Any]) -> Any:
    """Return what ``holds`` returns, once it is true. Raises ``BoardFailed``."""
    ends_s = time.monotonic() + STEP_S_MAX
    while not (found := holds()):
        if time.monotonic() > ends_s:
            raise BoardFailed(f"{what}: not in {STEP_S_MAX:.0f} s")
        time.sleep(POLL_S)
    return found


class Board:
    """The dashboard on the server at ``ready``."""

    def __init__(self, ready: Ready) -> None:
        self._ready = ready

    def remove(self) -> None:
        """Delete the dashboard of an earlier run."""
        if self._document() is not None:
            self._command("dashboard", "delete", DASHBOARD, "--yes")

    def apply(self) -> None:
        """Declare the dashboard, and wait until it has read all rows."""
        click.echo(f"\n  {self._command('dashboard', 'apply', str(FILE)).strip()}")
        wait_for("the dashboard reads all rows", lambda: self.count().total())

    def count(self) -> Counter[str]:
        """Return how many flights of the day have each status, as the dashboard shows it."""
        document = self._document() or {"panels": {}}
        found: Counter[str] = Counter()
        if "board" in document["panels"]:
            panel = document["panels"]["board"]
            names = [column["name"] for column in panel["columns"]]
            for row in panel["rows"]:
                found.update(dict(zip(names[1:], row[1:], strict=True)))
            found["all"] = document["panels"]["flights"]["rows"][0][0]
        return found

    def verify(self) -> bool:
        """Compare every number with DuckDB's, print the result, and return True if all agree."""
        found = json.loads(self._command("verify", "dashboard", DASHBOARD, "-o", "json"))
        panels = found["panels"].values()
        numbers = sum(panel["numbers"] for panel in panels)
        differences = sum(len(panel["differences"]) + bool(panel["fault"]) for panel in panels)
        click.secho(
            f"  rowtide verify dashboard {DASHBOARD}: {found['rows']:,} rows, "
            f"{len(panels)} panels, {numbers:,} numbers: {differences:,} differences",
            fg="red" if differences else "green",
        )
        return not differences

    def _document(self) -> dict[str, Any] | None:
        async def read() -> dict[str, Any] | None:
            async with Endpoint(**self._ready._asdict(), patience_s=PATIENCE_S) as endpoint:
                stored = await StoredDashboards(endpoint).get(DASHBOARD)
                if stored is None:
                    return None
                build = stored.answering
                numbers = None if build is None else await read_numbers(endpoint, build)
                return numbers_document(stored, numbers)

        return asyncio.run(read())

    def _command(self, *arguments: str) -> str:
        """Run ``rowtide``; return what it printed. Raises ``BoardFailed``."""
        access = {f"ROWTIDE_{name.upper()}": value for name, value in self._ready._asdict().items()}
        done = subprocess.run(
            [sys.executable, "-P", "-c", RUN, *arguments],
            env={**os.environ, **access},
            capture_output=True,
            text=True,
            check=False,
        )
        # Exit code 1 of verify means differences, which it prints.
        if done.returncode and not (done.returncode == 1 and done.stdout):
            raise BoardFailed(f"rowtide {' '.join(arguments)}: {done.stderr or done.stdout}")
        return done.stdout


class SecondWorker:
    """A worker that joins the one at ``ready``, on the same Kafka. Leaving the block stops it."""

    def __init__(self, ready: Ready, data_dir: Path) -> None:
        folder = data_dir / "second"
        folder.mkdir(parents=True, exist_ok=True)
        self._output = (folder / "output").open("wb")
        options = ["--kafka", _bootstrap(data_dir), "--port", "0"]
        options += ["--connectors", "false", "--console", "false"]
        self._up = Up(folder / "data", options=options, output=self._output, command="worker")
        self._client = connect(ready)
        self._address = ""

    def __enter__(self) -> Self:
        self._up.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._up.stop()
        self._output.close()
        self._client.close()

    def take_flights(self) -> None:
        """Let it own the shard of the flights."""
        slots = wait_for("the second worker gets slots", self._slots)
        [shard] = [s for s in self._shards() if s["state"] != "ended"]
        if shard["slot"] not in slots:
            fields = {"table": TABLE, "shard": shard["shard"], "slot": slots[0]}
            self._client.call_json("RowtideMoveShard", fields)
        wait_for(
            "the second worker owns the flights",
            lambda: any(
                s["state"] == "open" and s["slot"] in self._slots() for s in self._shards()
            ),
        )

    def kill(self) -> None:
        """Kill it with ``kill -9``, and say so."""
        pid = self._up.pid
        self._up.kill()
        click.echo(f"  kill -9 of worker {self._address}, process {pid}, which owns the flights")

    def wait_until_missed(self) -> None:
        """Return once the cluster shows that it does not answer, and say so."""
        wait_for("the cluster misses the worker", lambda: self._address in self._silent())
        click.echo(f"  rowtide cluster status: {self._address} is silent")

    def _silent(self) -> list[str]:
        """Return the workers that do not answer."""
        workers = self._client.call_json("RowtideClusterStatus", {})["workers"]
        return [worker["address"] for worker in workers if "error" in worker]

    def _shards(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._client.call_json("RowtideListShards", {"table": TABLE})[
            "shards"
        ]
        return found

    def _slots(self) -> list[int]:
        """Return the slots that it has opened."""
        _here, *others = self._client.call_json("RowtideClusterStatus", {})["workers"]
        for worker in others:
            if "error" not in worker and worker["slots"]:
                self._address = worker["address"]
                return [slot["slot"] for slot in worker["slots"] if slot["open"]]
        return []


def _bootstrap(data_dir: Path) -> str:
    """Return the address of the server's own Kafka."""
    text = (data_dir / "kafka" / "server.properties").read_text(encoding="utf-8")
    found = re.search(r"^advertised\.listeners=PLAINTEXT://(\S+?)$", text, re.MULTILINE)
    if found is None:
        raise BoardFailed(f"{data_dir}: no address of Kafka")
    return found[1]


def lose_worker(board: Board, second: SecondWorker, departures: Departures) -> None:
    """Kill a worker while flights depart, and show that the numbers go on."""
    second.kill()
    killed_s, before = time.monotonic(), departures.count()["departed"]

    def goes_on() -> bool:
        departures.require_sound()
        # One more may have been on its way, acknowledged before the kill.
        return board.count()["departed"] > before + 1

    wait_for("the dashboard goes on", goes_on)
    click.echo(f"  the dashboard moves again {time.monotonic() - killed_s:.1f} s after the kill")
    second.wait_until_missed()


def wait_until_shown(board: Board, departures: Departures) -> None:
    """Return once the dashboard shows what the replay has written, which must have ended."""
    departures.require_sound()
    expected = departures.count()

    def is_shown() -> bool:
        shown = board.count()
        return all(shown[status] == expected[status] for status in STATUSES)

    wait_for(f"the dashboard shows {dict(expected)}", is_shown)
    counts = ", ".join(f"{expected[status]:,} {status}" for status in STATUSES)
    click.echo(f"  the dashboard shows all: {counts}, {departures.cancelled:,} cancelled")
