"""What one, two and four workers cost and do: ``python -m tests.bench.workers`` (see ``--help``).

Every worker gets its part of the load at its own port, as a balancer gives it, so with N workers
all but one of N requests go one hop. CPU is that of all worker processes together, the broker
apart; ``idle`` is what they use without any load, and ``idle_us`` its part of an operation's CPU.

Three loads are measured. With the ``same`` one all workers together have ``--connections``: what
one worker did is spread over more, so each wakes for less at a time, and what it does once per
wake, per append and per second is shared by fewer operations. With ``more`` each worker has so
many, as workers are added because there is more to do: that shows what an operation costs when it
takes several workers to serve them, the hop included. ``apart`` is the same as ``more`` for as many
workers that have nothing to do with each other, each a cluster of its own on the same broker: what
an operation costs more there, it costs because the machine is fuller, and what it costs more with
``more`` than ``apart`` it costs because workers share slots.

Loads take turns, and every figure is the median of its turns: a machine that others use is never
the same for a minute.

With ``--cap 0.25`` each worker gets a quarter of a core: then what they do together must grow with
their number, as long as broker, load and machine have room. Who is capped stands still for three
quarters of the time, so an answer takes tens of milliseconds: few ``--connections``, each waiting
for its answer, leave workers without work.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import click

from rowtide.cli.client import ProtocolClient
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.values import variant
from rowtide.core.values.schema import INTEGER, STRING
from rowtide.deploy.kafka.config import default_cache_dir
from rowtide.deploy.up import Ready
from tests.bench.circumstances import circumstances
from tests.bench.cluster import Cluster
from tests.bench.cpu_cap import CapUnavailable, cpu_cap
from tests.bench.processes import cpu_s
from tests.bench.report import percentile
from tests.bench.traffic import KEY, Requests, run_closed_loop

TABLE = "spread"
SLOTS = SHARDS = 8
BATCH_ROWS = 200
ROWS = 5
"""Times the rows that are written one by one: so many are written in all."""

BATCH_PART = 4
"""Of so many connections one sends batches."""

WARM_ROWS, WARM_CONNECTIONS = 500, 16
"""What every worker has done before it is measured, or capped."""

NAMES = ("same", "more", "apart")
IDLE_S = 4.0
KINDS = {STRING: pb.STRING, INTEGER: pb.INTEGER}
Figures = dict[str, dict[str, float]]


class Plan(NamedTuple):
    """How much is asked of how many workers, and how often; ``cap`` in cores of each.

    A machine that stands still for a second takes the leases of usual length from everybody, and
    requests are refused then: the measurement ends. ``lease_ms`` may be longer.
    """

    rows: int
    connections: int
    cap: float | None
    turns: int
    lease_ms: int


def create_table(access: Ready) -> None:
    """Create the table, its shards evenly over the keys' range and one in each slot."""
    cuts = [variant.encode(f"{number * 16 // SHARDS:x}") for number in range(1, SHARDS)]
    points = [b"\x09", *cuts, b"\x0a"]
    columns = [pb.PrimaryKeySchema(name=column.name, type=KINDS[column.type]) for column in KEY]
    request = pb.CreateTableRequest(
        table_meta=pb.TableMeta(table_name=TABLE, primary_key=columns),
        reserved_throughput=pb.ReservedThroughput(capacity_unit=pb.CapacityUnit(read=0, write=0)),
        partitions=[pb.PartitionRange(begin=points[n], end=points[n + 1]) for n in range(SHARDS)],
    )
    with ProtocolClient(**access._asdict()) as client:
        client.call("CreateTable", request, pb.CreateTableResponse)


class Load:
    """Sends the same requests to workers as to any others, divided among them.

    ``connections`` are those of each worker; of ``rows`` single ones, all workers' together, each
    turn has so many.
    """

    def __init__(self, cluster: Cluster, connections: int, rows: int) -> None:
        self._cluster = cluster
        self._connections = connections
        self._rows = rows
        self._pids = [worker.pid for worker in cluster.workers]
        self._requests = [Requests(access, TABLE) for access in cluster.access]

    def measure(self, first: int) -> Figures:
        """Return what each operation costs and does, with rows from ``first`` on."""
        rows = self._rows
        alone, together = range(first, first + rows), range(first + rows, first + ROWS * rows)
        batches = [together[at : at + BATCH_ROWS] for at in range(0, len(together), BATCH_ROWS)]
        return {
            "PutRow": self._run(alone, lambda to: to.put, self._connections),
            "GetRow": self._run(alone, lambda to: to.get, self._connections),
            "BatchWriteRow": self._run(
                batches, lambda to: to.batch, self._connections // BATCH_PART, units=BATCH_ROWS
            ),
        }

    def idle_ms_per_s(self) -> float:
        """Return what the workers use while nobody asks."""
        before = sum(map(cpu_s, self._pids))
        time.sleep(IDLE_S)  # This is what is measured.
        return round((sum(map(cpu_s, self._pids)) - before) / IDLE_S * 1000, 1)

    def _run(
        self,
        items: Sequence[Any],
        kind: Callable[[Requests], Callable[[Any], bytes]],
        connections: int,
        *,
        units: int = 1,
    ) -> dict[str, float]:
        count = len(self._requests)
        prepared = [
            [*map(kind(to), items[number::count])] for number, to in enumerate(self._requests)
        ]
        before = sum(map(cpu_s, self._pids))
        began = time.perf_counter()
        calls = asyncio.run(self._send(prepared, max(1, connections)))
        elapsed_s = time.perf_counter() - began
        done = len(items) * units
        return {
            "per_s": round(done / elapsed_s, 1),
            "cpu_us": round((sum(map(cpu_s, self._pids)) - before) / done * 1e6, 1),
            "p50_ms": round(percentile(calls, 50) * 1000, 2),
            "p99_ms": round(percentile(calls, 99) * 1000, 2),
        }

    async def _send(self, prepared: Sequence[list[bytes]], connections: int) -> list[float]:
        async with asyncio.TaskGroup() as tasks:
            loops = [
                tasks.create_task(
                    run_closed_loop(access.endpoint, requests, connections=connections, check=_any),
                    name=f"load {access.endpoint}",
                )
                for access, requests in zip(self._cluster.access, prepared, strict=True)
            ]
        return [call for loop in loops for call in loop.result().calls]


def _any(_body: bytes) -> None:
    """Take any answer that is one: a refusal has raised already."""


@contextmanager
def start_workers(count: int, plan: Plan, *, apart: bool) -> Iterator[Cluster]:
    """Have so many workers as a cluster, or each as one of its own, with the table and warm."""
    cache_dir = default_cache_dir(os.environ, sys.platform)
    lease = ("--lease-ms", str(plan.lease_ms))
    with ExitStack() as left:
        folder = Path(left.enter_context(tempfile.TemporaryDirectory(prefix="rowtide-workers-")))
        cluster = left.enter_context(
            Cluster(folder, cache_dir, count=count, slots=SLOTS, options=lease, apart=apart)
        )
        if not apart:
            cluster.settle(count)
        for access in cluster.access if apart else cluster.access[:1]:
            create_table(access)
        Load(cluster, WARM_CONNECTIONS, WARM_ROWS * count).measure(0)
        if plan.cap is not None:
            for worker in cluster.workers:
                left.enter_context(cpu_cap(worker.pid, plan.cap))
        yield cluster


def measure(count: int, plan: Plan, note: Callable[[str], None]) -> dict[str, Figures]:
    """Return what so many workers do, by load."""
    each, connections = plan.rows, plan.connections
    with ExitStack() as running:
        cluster = running.enter_context(start_workers(count, plan, apart=False))
        loads = {"same": Load(cluster, max(1, connections // count), each)}
        if count > 1:
            other = running.enter_context(start_workers(count, plan, apart=True))
            loads["more"] = Load(cluster, connections, each * count)
            loads["apart"] = Load(other, connections, each * count)
        idle = loads["same"].idle_ms_per_s()
        turns: list[dict[str, Figures]] = []
        first = ROWS * WARM_ROWS * count
        for _ in range(plan.turns):
            turns.append({})
            for name, load in loads.items():
                turns[-1][name] = load.measure(first)
                first += ROWS * each * count
    by_load = {name: _medians([turn[name] for turn in turns]) for name in loads}
    for of_load in by_load.values():
        for figures in of_load.values():
            figures["idle_us"] = round(idle / figures["per_s"] * 1000, 1)
    for name in NAMES:
        by_load.setdefault(name, by_load["same"])  # One worker has all of the load, and is alone.
    by_load["idle"] = {"workers": {"ms_per_s": idle}}
    note(f"{count} workers: {by_load}")
    return by_load


def _medians(turns: Sequence[Figures]) -> Figures:
    """Return the median of every figure."""
    return {
        name: {key: median(turn[name][key] for turn in turns) for key in figures}
        for name, figures in turns[0].items()
    }


def ratios(by_number: dict[int, dict[str, Figures]]) -> dict[str, dict[str, float]]:
    """Return what more workers cost and do, in units of what the first number of them does.

    Beside it what they cost in units of as many that are apart.
    """
    first, *numbers = by_number
    found: dict[str, dict[str, float]] = {}
    for number in numbers:
        apart = by_number[number]["apart"]
        for load in NAMES:
            for name, figures in by_number[number][load].items():
                base = by_number[first][load][name]
                found[f"{name}, {load} load, {number} workers"] = {
                    key: round(figures[key] / base[key], 2) for key in ("cpu_us", "per_s")
                } | {"cpu_us_to_apart": round(figures["cpu_us"] / apart[name]["cpu_us"], 2)}
    return found


@click.command(context_settings={"show_default": True})
@click.option("--counts", default="1,2,4", help="Numbers of workers, with commas.")
@click.option(
    "--rows",
    default=3_000,
    help="Rows one by one in a turn, 4 times as many by 200; of each worker but with same.",
)
@click.option("--turns", default=3, help="How often each load is measured.")
@click.option(
    "--connections", default=32, help="Of all workers, then of each; a quarter for batches."
)
@click.option("--cap", type=float, help="Cores that each worker gets; all without.")
@click.option("--lease-ms", default=1200, help="Leases of the workers.")
def main(counts: str, **asked: Any) -> None:
    """Measure CPU per operation and throughput for several numbers of workers; print JSON."""
    about = circumstances("workers")
    numbers = [int(number) for number in counts.split(",")]
    plan = Plan(**asked)
    try:
        by_number = {n: measure(n, plan, lambda text: click.echo(text, err=True)) for n in numbers}
    except CapUnavailable as error:
        raise click.ClickException(f"No worker can be capped here: {error}") from error
    click.echo(
        json.dumps(
            {**about, "cap": plan.cap, "workers": by_number, "ratios": ratios(by_number)}, indent=1
        )
    )


if __name__ == "__main__":
    main()
