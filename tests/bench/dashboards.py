"""Speed of dashboards: ``python -m tests.bench.dashboards`` (see ``--help``).

A broker, a worker and the processes of the dashboard are children of this process, which writes and
reads the numbers. So all share the machine. The dashboard has three panels. The processes read the
logs from the broker, as those beside a worker do.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import click
import uvloop

from rowtide.client import AsyncClient, PutRow
from rowtide.core.values.variant import Scalar
from rowtide.dashboards.declaring.declaration import Dashboard, parse_dashboards
from rowtide.dashboards.runtime.applying import prepare_table
from rowtide.dashboards.runtime.numbers import read_numbers
from rowtide.dashboards.runtime.stored_dashboards import StoredDashboards
from rowtide.deploy.kafka.broker import EmbeddedBroker
from rowtide.deploy.kafka.config import EmbeddedConfig, default_cache_dir
from rowtide.deploy.up import Ready, Up
from tests.bench.circumstances import circumstances, format_circumstances
from tests.bench.dashboard_page import NotToBeHad, find_delays, open_page, read_painted
from tests.bench.processes import cpu_alone_s, cpu_of
from tests.bench.report import Result, as_markdown, percentile
from tests.connectors.processes import ConnectorProcesses
from tests.support.waiting import until

__all__ = ["main"]

PREFIX = "bench"
TEXT = """
dashboards:
  departures:
    table: flights
    types: {origin: text, carrier: text, dep_delay: double, time_hour: timestamp_us}
    lease_ms: 2000
    panels:
      all: {query: "SELECT count(*) AS n, sum(dep_delay) AS total FROM flights"}
      hourly:
        query: |
          SELECT time_bucket(INTERVAL '1 hour', time_hour) AS hour, origin, count(*) AS n
          FROM flights GROUP BY ALL
      late:
        query: |
          SELECT carrier, avg(dep_delay) AS mean, approx_quantile(dep_delay, 0.99) AS p99
          FROM flights GROUP BY ALL ORDER BY p99 DESC LIMIT 10
"""
FIRST_US = 1_704_067_200_000_000
HOUR_US = 3_600_000_000
HOURS = 48
BATCH_ROWS = 100
WRITERS = 8
LOOK_S = 0.005
CATCH_UP_LOOK_S = 0.1
"""Looks read the numbers from the worker. While a backlog is folded, they must not be the load."""
WAIT_S_MAX = 300.0
PROBES_PER_S = 100


@click.command(context_settings={"show_default": True})
@click.option("--backlog", default=200_000, help="Changes to catch up with.")
@click.option("--seconds", default=10.0, help="Length of each measurement.")
@click.option("--rate", default=5000, help="Changes per second while CPU time is measured.")
@click.option("--kills", default=5, help="How often a process is killed.")
def main(backlog: int, seconds: float, rate: int, kills: int) -> None:
    """Measure dashboards and print a Markdown table."""
    click.echo(format_circumstances(circumstances("dashboards")))
    with tempfile.TemporaryDirectory(prefix="rowtide-bench-") as where, ExitStack() as closing:
        folder = Path(where)
        config = EmbeddedConfig(folder / "kafka", default_cache_dir(os.environ, sys.platform))
        broker = closing.enter_context(EmbeddedBroker(config))
        log = closing.enter_context((folder / "log").open("wb"))
        options = ["--port", "0", "--kafka", broker.bootstrap, "--topic-prefix", PREFIX]
        options += ["--table-operations-per-s", "0", "--connectors", "false"]
        up = closing.enter_context(Up(folder / "worker", options=options, output=log))
        ready = up.start()
        processes = ConnectorProcesses(ready, folder, closing)
        options = ["--kafka", broker.bootstrap, "--topic-prefix", PREFIX]
        sizes = Sizes(backlog, seconds, rate, kills)

        async def run() -> list[Result]:
            async with AsyncClient(**ready._asdict()) as client:
                url = read_console_url(folder / "worker")
                return await Bench(client, processes, options, up.pid, sizes, ready, url).measure()

        results = uvloop.run(run())
    click.echo(as_markdown(results))


def read_console_url(data: Path) -> str:
    """Return the address of the console of a server that runs in a folder."""
    place = data / "console.json"
    until(place.exists, "the console runs")
    return f"http://127.0.0.1:{json.loads(place.read_text())['port']}"


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    backlog: int
    seconds: float
    rate: int
    kills: int


def make_columns(number: int, chance: random.Random) -> dict[str, Scalar]:
    """Return the columns of a row."""
    return {
        "origin": chance.choice(("JFK", "LGA", "EWR")),
        "carrier": chance.choice(("AA", "B6", "DL", "UA", "WN", "F9", "HA", "VX")),
        "dep_delay": float(chance.randrange(-20, 300)),
        "time_hour": FIRST_US + chance.randrange(HOURS) * HOUR_US,
        "tailnum": f"N{number % 1000}",
        "distance": 1400.0,
    }


@dataclass(slots=True)
class Bench:
    """A table, a dashboard over it, and the processes that run it."""

    client: AsyncClient
    processes: ConnectorProcesses
    options: Sequence[str]
    worker: int
    sizes: Sizes
    ready: Ready
    console_url: str
    rows: int = 0
    """Rows that are written; each has a key of its own."""
    chance: random.Random = field(default_factory=lambda: random.Random(1))

    async def measure(self) -> list[Result]:
        """Return all figures."""
        await self._declare()
        await self._write_rows(BATCH_ROWS)
        self.processes.start(*self.options)
        await self._until(lambda n: n == self.rows)
        results = [*await self._measure_delays(), *await self._measure_page()]
        self.processes.stop()
        results += await self._measure_cpu()
        results.append(await self._measure_catching_up())
        results += await self._measure_kills()
        self.processes.stop_all()
        return results

    async def _declare(self) -> None:
        await self.client.create_table("flights", {"id": str}, stream_hours=24)
        dashboard: Dashboard = parse_dashboards(TEXT, "bench")[0]
        await prepare_table(self.client.endpoint, dashboard)
        await StoredDashboards(self.client.endpoint).declare(dashboard)

    def _row(self, number: int) -> PutRow:
        """Return a row whose columns are random."""
        return PutRow("flights", {"id": f"f{number:08}", **make_columns(number, self.chance)})

    async def _write_rows(self, count: int) -> None:
        """Write new rows."""
        first, self.rows = self.rows, self.rows + count
        await self.client.write([self._row(number) for number in range(first, self.rows)])

    async def _put_again(self, count: int) -> None:
        """Write rows that exist: each takes its old values back."""
        numbers = self.chance.sample(range(self.rows), min(count, self.rows))
        await self.client.write([self._row(number) for number in numbers])

    async def _shown(self) -> int:
        """Return the number of rows that the dashboard shows, -1 before it answers."""
        stored = (await StoredDashboards(self.client.endpoint).all())["departures"]
        if stored.answering is None:
            return -1
        return await self._read_rows()

    async def _read_rows(self) -> int:
        stored = (await StoredDashboards(self.client.endpoint).all())["departures"]
        assert stored.build is not None, "it was declared"
        numbers = await read_numbers(self.client.endpoint, stored.build)
        return int(numbers.panels["all"].rows[0][0] or 0)

    async def _until(self, is_shown: Callable[[int], bool], look_s: float = LOOK_S) -> int:
        async with asyncio.timeout(WAIT_S_MAX):
            while True:
                if is_shown(found := await self._shown()):
                    return found
                await asyncio.sleep(look_s)

    async def _measure_delays(self) -> Iterator[Result]:
        """Return the time from the answer of a put to a read of a number that has it."""
        seen: list[float] = []
        base, total = self.rows, int(self.sizes.seconds * PROBES_PER_S)
        stored = (await StoredDashboards(self.client.endpoint).all())["departures"]
        build = stored.build
        assert build is not None, "it was declared"

        async def look() -> None:
            while len(seen) < total:
                numbers = await read_numbers(self.client.endpoint, build)
                now_s, shown = time.perf_counter(), int(numbers.panels["all"].rows[0][0] or 0)
                seen.extend([now_s] * (shown - base - len(seen)))
                await asyncio.sleep(0)

        async with asyncio.timeout(WAIT_S_MAX), asyncio.TaskGroup() as tasks:
            tasks.create_task(look(), name="look")
            answered = await self._write_probes(total, time.perf_counter)
        delays = [max(0.0, s - a) for a, s in zip(answered, seen, strict=True)]
        name = "put answered -> number of a dashboard"
        return iter(
            Result(f"{name}, p{percent}", percentile(delays, percent) * 1000, "ms")
            for percent in (50, 99)
        )

    async def _write_probes(self, total: int, clock: Callable[[], float]) -> list[float]:
        """Write rows one by one; return when each was answered."""
        answered: list[float] = []
        began_s = clock()
        for number in range(total):
            await asyncio.sleep(max(0.0, began_s + number / PROBES_PER_S - clock()))
            await self._write_rows(1)
            answered.append(clock())
        return answered

    async def _measure_page(self) -> Sequence[Result]:
        """Return the time from the answer of a put until a page has painted a number with it."""
        base, total = self.rows, int(self.sizes.seconds * PROBES_PER_S)
        try:
            async with open_page(self.console_url, self.ready, "/dashboards/departures") as page:
                answered = await self._write_probes(total, time.time)
                painted = await read_painted(page, self.rows)
        except NotToBeHad as error:
            click.echo(f"NOT MEASURED: a dashboard's page in a browser: {error}")
            return ()
        delays = find_delays(answered, base, painted)
        name = "put answered -> painted in a dashboard"
        return [
            Result(f"{name}, p{percent}", percentile(delays, percent) * 1000, "ms")
            for percent in (50, 99)
        ]

    async def _measure_cpu(self) -> Iterator[Result]:
        """Return shares of a core while rows are put again at a rate."""
        while self.rows < 20_000:
            await self._write_rows(BATCH_ROWS)
        before_s = cpu_of(self.worker).worker_s
        alone_s = await self._put_for()
        alone = (cpu_of(self.worker).worker_s - before_s) / alone_s
        self.processes.start(*self.options)
        await self._until(lambda n: n == self.rows)
        await asyncio.sleep(1.0)  # What the start needed is done.
        pid = self.processes.running[0].pid
        before_s, own_s = cpu_of(self.worker).worker_s, cpu_alone_s(pid)
        taken_s = await self._put_for()
        own = (cpu_alone_s(pid) - own_s) / taken_s
        more = (cpu_of(self.worker).worker_s - before_s) / taken_s - alone
        rate = f"{self.sizes.rate:,} changes/s"
        return iter(
            (
                Result(f"dashboard of 3 panels at {rate}, its process", own * 100, "% of a core"),
                Result(f"dashboard of 3 panels at {rate}, the worker", more * 100, "% of a core"),
            )
        )

    async def _put_for(self) -> float:
        """Put rows again at the rate; return how long it took."""
        began_s, batches = time.perf_counter(), 0
        total = int(self.sizes.seconds * self.sizes.rate / BATCH_ROWS)
        while batches < total:
            due_s = began_s + batches * BATCH_ROWS / self.sizes.rate
            await asyncio.sleep(max(0.0, due_s - time.perf_counter()))
            await self._put_again(BATCH_ROWS)
            batches += 1
        return time.perf_counter() - began_s

    async def _measure_catching_up(self) -> Result:
        """Return how fast a process folds what was written while none ran."""
        self.processes.stop_all()
        left = self.sizes.backlog // 2 // BATCH_ROWS

        async def write() -> None:
            nonlocal left
            while left > 0:
                left -= 1
                await self._put_again(BATCH_ROWS)
                await self._write_rows(BATCH_ROWS)

        async with asyncio.TaskGroup() as tasks:
            for writer in range(WRITERS):
                tasks.create_task(write(), name=f"writer {writer}")
        before = await self._read_rows()
        self.processes.start(*self.options)
        first = await self._until(lambda n: n > before, CATCH_UP_LOOK_S)
        began_s, pid = time.perf_counter(), self.processes.running[0].pid
        own_s = cpu_alone_s(pid)
        await self._until(lambda n: n == self.rows, CATCH_UP_LOOK_S)
        taken_s = time.perf_counter() - began_s
        # Half of the changes are new rows, and they alternate with the others.
        changes = 2 * (self.rows - first)
        cpu_us = (cpu_alone_s(pid) - own_s) / changes * 1e6
        return Result(
            "dashboard of 3 panels, catching up",
            changes / taken_s,
            "/s",
            remark=f"{cpu_us:.0f} us of its process's CPU each",
        )

    async def _measure_kills(self) -> Iterator[Result]:
        """Return how long a number stands still after a kill, with another process there."""
        taken: list[float] = []
        for _ in range(self.sizes.kills):
            self.processes.start(*self.options)
            await asyncio.sleep(3.0)  # It is ready to take shards over.
            self.processes.kill(0)
            killed_s = time.perf_counter()
            await self._write_rows(1)
            await self._until(lambda n: n == self.rows)
            taken.append(time.perf_counter() - killed_s)
        return iter(
            (Result("dashboard moves after kill -9", max(taken), "s", remark="the longest"),)
        )


if __name__ == "__main__":
    main()
