"""What one, two and four workers cost and do: ``python -m tests.bench.workers`` (see ``--help``).

Every worker gets its part of the load at its own port, as a balancer gives it, so with N workers
all but one of N requests go one hop. CPU is that of all worker processes together, the broker
apart; ``idle`` is what they use without any load, and ``idle_us`` its part of an operation's CPU.

Two loads are measured. With the ``same`` one all workers together have ``--connections``: what one
worker did is spread over more, so each wakes for less at a time, and what it does once per wake,
per append and per second is shared by fewer operations. With ``more`` each worker has so many, as
workers are added because there is more to do: that shows what an operation costs when it takes
several workers to serve them, the hop included.

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
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path

import click

from rowtide.cli.client import Client
from rowtide.core import variant
from rowtide.core.schema import INTEGER, STRING
from rowtide.core.wire import ots_pb2 as pb
from rowtide.deploy.kafka.config import default_cache_dir
from tests.bench.circumstances import circumstances
from tests.bench.cluster import Cluster
from tests.bench.cpu_cap import CapUnavailable, cpu_cap
from tests.bench.processes import cpu_s
from tests.bench.report import percentile
from tests.bench.traffic import KEY, Requests, closed_loop

TABLE = "spread"
SLOTS = SHARDS = 8
BATCH_ROWS = 200
ROWS = 5
"""Times the rows that are written one by one: so many are written in all."""

BATCH_PART = 4
"""Of so many connections one sends batches."""

IDLE_S = 4.0
KINDS = {STRING: pb.STRING, INTEGER: pb.INTEGER}
Told = dict[str, dict[str, float]]


def create_table(client: Client) -> None:
    """Create the table, its shards evenly over the keys' range and one in each slot."""
    cuts = [variant.encode(f"{number * 16 // SHARDS:x}") for number in range(1, SHARDS)]
    points = [b"\x09", *cuts, b"\x0a"]
    columns = [pb.PrimaryKeySchema(name=column.name, type=KINDS[column.type]) for column in KEY]
    request = pb.CreateTableRequest(
        table_meta=pb.TableMeta(table_name=TABLE, primary_key=columns),
        reserved_throughput=pb.ReservedThroughput(capacity_unit=pb.CapacityUnit(read=0, write=0)),
        partitions=[pb.PartitionRange(begin=points[n], end=points[n + 1]) for n in range(SHARDS)],
    )
    client.call("CreateTable", request, pb.CreateTableResponse)


class Load:
    """Sends the same requests to a cluster as to any other, divided among its workers."""

    def __init__(self, cluster: Cluster, connections: int) -> None:
        self._cluster = cluster
        self._connections = connections
        """Of each worker."""
        self._pids = [worker.pid for worker in cluster.workers]
        self._requests = Requests(cluster.access[0], TABLE)

    def measure(self, rows: int, first: int) -> Told:
        """Return what each operation costs and does, with so many rows from ``first`` on."""
        alone, together = range(first, first + rows), range(first + rows, first + ROWS * rows)
        batches = [together[at : at + BATCH_ROWS] for at in range(0, len(together), BATCH_ROWS)]
        put, get, batch = self._requests.put, self._requests.get, self._requests.batch
        return {
            "PutRow": self._run(map(put, alone), self._connections),
            "GetRow": self._run(map(get, alone), self._connections),
            "BatchWriteRow": self._run(
                map(batch, batches), self._connections // BATCH_PART, units=BATCH_ROWS
            ),
        }

    def idle_ms_per_s(self) -> float:
        """Return what the workers use while nobody asks."""
        before = sum(map(cpu_s, self._pids))
        time.sleep(IDLE_S)  # This is what is measured.
        return round((sum(map(cpu_s, self._pids)) - before) / IDLE_S * 1000, 1)

    def _run(
        self, requests: Iterable[bytes], connections: int, *, units: int = 1
    ) -> dict[str, float]:
        prepared = list(requests)
        before = sum(map(cpu_s, self._pids))
        began = time.perf_counter()
        calls = asyncio.run(self._send(prepared, max(1, connections)))
        elapsed_s = time.perf_counter() - began
        done = len(prepared) * units
        return {
            "per_s": round(done / elapsed_s, 1),
            "cpu_us": round((sum(map(cpu_s, self._pids)) - before) / done * 1e6, 1),
            "p50_ms": round(percentile(calls, 50) * 1000, 2),
            "p99_ms": round(percentile(calls, 99) * 1000, 2),
        }

    async def _send(self, prepared: Sequence[bytes], connections: int) -> list[float]:
        count = len(self._pids)
        async with asyncio.TaskGroup() as tasks:
            loops = [
                tasks.create_task(
                    closed_loop(
                        access.endpoint,
                        prepared[number::count],
                        connections=connections,
                        check=_any,
                    ),
                    name=f"load {number}",
                )
                for number, access in enumerate(self._cluster.access)
            ]
        return [call for loop in loops for call in loop.result().calls]


def _any(_body: bytes) -> None:
    """Take any answer that is one: a refusal has raised already."""


def measured(
    count: int, rows: int, connections: int, cap: float | None, note: Callable[[str], None]
) -> dict[str, Told]:
    """Return what so many workers do, by load."""
    cache_dir = default_cache_dir(os.environ, sys.platform)
    with (
        tempfile.TemporaryDirectory(prefix="rowtide-workers-") as folder,
        Cluster(Path(folder), cache_dir, count=count, slots=SLOTS) as cluster,
        ExitStack() as capped,
    ):
        cluster.settled(count)
        with Client(**cluster.access[0]._asdict()) as client:
            create_table(client)
        each = {"same": max(1, connections // count), "more": connections}
        loads = {name: Load(cluster, number) for name, number in each.items()}
        loads["more"].measure(rows // 10, 0)  # Warm.
        if cap is not None:
            for worker in cluster.workers:
                capped.enter_context(cpu_cap(worker.pid, cap))
        idle = loads["same"].idle_ms_per_s()
        first = ROWS * rows
        told = {"same": loads["same"].measure(rows, first)}
        more = loads["more"].measure(rows * count, 2 * first) if count > 1 else told["same"]
        told["more"] = more
    for load in told.values():
        for figures in load.values():
            figures["idle_us"] = round(idle / figures["per_s"] * 1000, 1)
    told["idle"] = {"workers": {"ms_per_s": idle}}
    note(f"{count} workers: {told}")
    return told


def ratios(told: dict[int, dict[str, Told]]) -> dict[str, dict[str, float]]:
    """Return what more workers cost and do, in units of what the first number of them does."""
    first, *numbers = told
    return {
        f"{name}, {load} load, {number} workers": {
            key: round(told[number][load][name][key] / told[first][load][name][key], 2)
            for key in ("cpu_us", "per_s")
        }
        for number in numbers
        for load in ("same", "more")
        for name in told[first][load]
    }


@click.command(context_settings={"show_default": True})
@click.option("--counts", default="1,2,4", help="Numbers of workers, with commas.")
@click.option(
    "--rows",
    default=10_000,
    help="Rows one by one, 4 times as many by 200; of each worker with more.",
)
@click.option(
    "--connections", default=32, help="Of all workers, then of each; a quarter for batches."
)
@click.option("--cap", type=float, help="Cores that each worker gets; all without.")
def main(counts: str, rows: int, connections: int, cap: float | None) -> None:
    """Measure CPU per operation and throughput for several numbers of workers; print JSON."""
    about = circumstances("workers")
    numbers = [int(number) for number in counts.split(",")]
    try:
        told = {
            n: measured(n, rows, connections, cap, lambda text: click.echo(text, err=True))
            for n in numbers
        }
    except CapUnavailable as error:
        raise click.ClickException(f"No worker can be capped here: {error}") from error
    click.echo(json.dumps({**about, "cap": cap, "workers": told, "ratios": ratios(told)}, indent=1))


if __name__ == "__main__":
    main()
