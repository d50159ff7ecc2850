"""Measure a server of our own: ``python -m tests.bench.run`` (see ``--help``), or ``make bench``.

The server is a child with an embedded broker on a temporary directory; the load comes from this
process. Both share the machine's cores, as the bars of docs/internals/benchmarks.md assume.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import click

from rowtide.cli.client import ProtocolClient, ServerError
from rowtide.client.wire_row import Special
from rowtide.deploy.up import Ready, Up
from tests.bench.circumstances import circumstances, format_circumstances
from tests.bench.measure import Bench
from tests.bench.processes import memory
from tests.bench.report import Result, as_json, as_markdown
from tests.bench.traffic import Refused

IDLE_S = 5.0
"""Memory is read so long after a start, when what the start needed has been given back."""

WORKER_FOLDER = "rows"
"""What a worker keeps below the data directory; all of it can be rebuilt from the broker."""

UNAVAILABLE = 503
SCALED_ROWS_MIN = 100_000
"""With fewer rows a rebuild is mostly the start, and scaling would scale its noise."""
TABLES = ("single", "batched", "probed")
LOG_CHARACTERS = 4000
"""How much of the server's log is shown after a failure."""

Value = TypeVar("Value")


@click.command(context_settings={"show_default": True})
@click.option("--rows", default=30_000, help="Rows for PutRow and GetRow.")
@click.option("--batch-rows", default=100_000, help="Rows for the other measurements.")
@click.option("--connections", default=64, help="Connections for PutRow and GetRow.")
@click.option("--folder", type=click.Path(path_type=Path), help="A folder on the disk to measure.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Also write JSON.")
def main(
    rows: int, batch_rows: int, connections: int, folder: Path | None, json_file: Path | None
) -> None:
    """Measure the speed of one server and print a Markdown table with the bars."""
    about = circumstances("run")
    with tempfile.TemporaryDirectory(prefix="rowtide-bench-", dir=folder) as where:
        data_dir, log_file = Path(where) / "data", Path(where) / "up.log"
        with (
            log_file.open("wb") as log,
            Up(data_dir, options=("--port", "0"), output=log) as server,
        ):
            try:
                results = _measure(server, data_dir, rows, batch_rows, connections)
            except BaseException:
                click.echo(log_file.read_text(errors="replace")[-LOG_CHARACTERS:], err=True)
                raise
    click.echo(format_circumstances(about))
    click.echo(as_markdown(results))
    if json_file:
        json_file.write_text(as_json(results, about), encoding="utf-8")


def _measure(
    server: Up, data_dir: Path, rows: int, batch_rows: int, connections: int
) -> list[Result]:
    """Start, load and restart the server; return every measurement in order."""
    _start(server)  # The first start makes directories, and perhaps downloads the broker.
    server.stop()
    ready, warm = _start(server)
    results = [warm, *_idle_memory(server)]
    bench = Bench(ready, server.pid, connections=connections)
    results += _run(_calls(bench, rows, batch_rows))
    bench.client.close()
    results.append(_rebuilt(server, data_dir, (rows, batch_rows), warm_s=warm.value))
    return results


def _start(server: Up) -> tuple[Ready, Result]:
    began = time.perf_counter()
    ready = server.start()
    return ready, Result("up, warm", time.perf_counter() - began, "s")


def _idle_memory(server: Up) -> list[Result]:
    time.sleep(IDLE_S)
    found = memory(server.pid)
    return [
        Result("worker, idle", found.worker_mib, "MiB"),
        Result("broker, idle", found.broker_mib, "MiB"),
        Result("console, idle", found.console_mib, "MiB"),
    ]


async def _calls(bench: Bench, rows: int, batch_rows: int) -> list[Result]:
    single, batched, probed = (bench.create(name) for name in TABLES)
    return [
        await bench.put_rows(single, rows),
        await bench.get_rows(single, rows),
        await bench.batch_write(batched, batch_rows),
        await bench.get_range(batched, batch_rows),
        await bench.drain(batched, batch_rows),
        *await bench.delivery(probed),
    ]


def _rebuilt(server: Up, data_dir: Path, rows: tuple[int, int], *, warm_s: float) -> Result:
    """Take the worker's disk away, start, and wait until rows are served again.

    The time beyond a warm start grows with the rows; it is scaled to a million of them.
    """
    server.stop()
    shutil.rmtree(data_dir / WORKER_FOLDER)
    began = time.perf_counter()
    bench = Bench(server.start(), server.pid, connections=1)
    for table in TABLES:
        _await_served(bench.client, table)
    elapsed = time.perf_counter() - began
    ends = [[(name, end) for name in ("id", "n")] for end in (Special.INF_MIN, Special.INF_MAX)]
    found = sum(len(page) for page in bench.client.get_range(TABLES[0], *ends))
    if found != rows[0]:
        raise Refused(f"{found} rows of {rows[0]} are there after the rebuild")
    if sum(rows) < SCALED_ROWS_MIN:
        return Result(
            f"cold rebuild of {sum(rows):,} rows", elapsed, "s", remark="too few to scale"
        )
    scaled = warm_s + max(0.0, elapsed - warm_s) * 1e6 / sum(rows)
    remark = f"from {elapsed:.1f} s for {sum(rows):,} rows, the start included"
    return Result("cold rebuild of 1 M rows", scaled, "s", remark=remark)


def _await_served(client: ProtocolClient, table: str) -> None:
    """Ask for an absent row until its shard is open."""
    while True:
        try:
            client.get_row(table, (("id", "0" * 16), ("n", 0)))
        except ServerError as error:
            if error.status != UNAVAILABLE:
                raise
            time.sleep(0.02)
        else:
            return


def _run(measurements: Coroutine[Any, Any, Value]) -> Value:
    """Run on uvloop where there is one: a cheaper load generator leaves more to the server."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(measurements)
    return uvloop.run(measurements)


if __name__ == "__main__":
    main()
