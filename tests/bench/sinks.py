"""Speed of sinks, through the whole pipeline: ``python -m tests.bench.sinks [KIND]...``.

A broker and a worker are children of this process, which runs one connector per kind, as
``rowtide connector run`` would, from the oldest change until the sink has all. The rows are those
of the other benchmarks: two key columns and 12 cells. ``--updates`` writes each row once more, with
an update of one column, so that rows have to be asked for. The kind ``none`` takes everything and
keeps nothing: what is left is the pipeline. Servers of sinks are not started here: settings lead to
one that runs, ``--set opensearch.url=http://...``.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import click

from rowtide.connectors.runtime.declaration import parse_document
from rowtide.connectors.runtime.place import Place
from rowtide.connectors.runtime.sink_run import SinkRun
from rowtide.core import plainbuffer, variant
from rowtide.core.wire import ots_pb2 as pb
from rowtide.deploy.kafka.broker import EmbeddedBroker
from rowtide.deploy.kafka.config import EmbeddedConfig, default_cache_dir
from rowtide.deploy.up import Ready, Up
from rowtide.stream.endpoint import Endpoint
from rowtide.stream.kafka_cluster import Cluster, KafkaConfig
from tests.bench.measure import Bench
from tests.bench.processes import machine
from tests.bench.report import Result, as_markdown
from tests.bench.traffic import key_of

PREFIX = "bench"
EMBEDDED = ("none", "tantivy", "duckdb", "parquet")
NONE = "tests.bench.null_sink"
BATCH_ROWS = 1000
LOOK_S = 0.01
TAKEN_S_MAX = 600.0


@click.command(context_settings={"show_default": True})
@click.argument("kinds", nargs=-1, metavar="[KIND]...")
@click.option("--changes", default=50_000, help="Rows that are put.")
@click.option("--updates", is_flag=True, help="And updated, each in one column.")
@click.option("--set", "settings", multiple=True, metavar="KIND.NAME=VALUE", help="Of a sink.")
def main(kinds: tuple[str, ...], changes: int, settings: tuple[str, ...], *, updates: bool) -> None:
    """Measure sinks and print a Markdown table; those without a server unless some are named."""
    click.echo(f"machine: {machine()}\nload before: {os.getloadavg()[0]:.1f}")
    click.echo(f"date: {datetime.now(UTC).date()}\npython: {sys.version.split()[0]}")
    click.echo(f"command: {' '.join(['python -m tests.bench.sinks', *sys.argv[1:]])}\n")
    wanted = {kind: _settings(kind, settings) for kind in kinds or EMBEDDED}
    with tempfile.TemporaryDirectory(prefix="rowtide-bench-") as where:
        folder = Path(where)
        config = EmbeddedConfig(folder / "kafka", default_cache_dir(os.environ, sys.platform))
        with EmbeddedBroker(config) as broker, (folder / "log").open("wb") as log:
            options = ["--port", "0", "--kafka", broker.bootstrap, "--topic-prefix", PREFIX]
            with Up(folder / "worker", options=options, output=log) as up:
                ready = up.start()
                measured = _measured(
                    ready, up.pid, broker.bootstrap, folder, wanted, changes, updates
                )
                results = asyncio.run(measured)
    click.echo(as_markdown(results))


def _settings(kind: str, given: Sequence[str]) -> dict[str, object]:
    found: dict[str, object] = {"kind": NONE if kind == "none" else kind}
    for text in given:
        name, _, value = text.partition("=")
        if name.startswith(f"{kind}."):
            found[name.partition(".")[2]] = int(value) if value.isdigit() else value
    return found


async def _measured(
    ready: Ready,
    pid: int,
    bootstrap: str,
    folder: Path,
    wanted: dict[str, dict[str, object]],
    changes: int,
    updates: bool,
) -> list[Result]:
    bench = Bench(ready, pid, connections=8)
    table = bench.create("read")
    await bench.batch_write(table, changes)
    results: list[Result] = []
    async with (
        Endpoint(**ready._asdict()) as endpoint,
        Cluster(KafkaConfig(bootstrap, topic_prefix=PREFIX)) as cluster,
    ):
        if updates:
            await _update(endpoint, changes)
        place = Place(endpoint, os.environ, str(folder / "connectors"), cluster, "bench")
        total = changes * 2 if updates else changes
        for kind, settings in wanted.items():
            document = {"table": "read", "begin": "oldest", "sink": settings}
            run = SinkRun(parse_document(f"bench-{kind}", document), place)
            what = "puts and updates" if updates else "puts"
            name = f"changes into {kind}, {what}"
            cpu_before = time.process_time()
            rate = total / await _taken_s(run, total)
            cpu_us = (time.process_time() - cpu_before) / total * 1e6
            remark = f"{cpu_us:.0f} us of this process's CPU each"
            results.append(Result(name, rate, "/s", remark=remark))
    bench.client.close()
    return results


async def _taken_s(run: SinkRun, changes: int) -> float:
    """Run a connector until it has finished so many changes; return the seconds from the first."""
    async with asyncio.timeout(TAKEN_S_MAX), asyncio.TaskGroup() as tasks:
        running = tasks.create_task(run.run())
        began = 0.0
        while run.progress.changes < changes:
            await asyncio.sleep(LOOK_S)
            if not began and run.shards:
                began = time.perf_counter()
            if run.state == "failed":
                raise click.ClickException(run.progress.last_error)
        taken_s = time.perf_counter() - began
        run.stop()
        await running
    return taken_s


async def _update(endpoint: Endpoint, rows: int) -> None:
    """Set a column of each row."""
    for first in range(0, rows, 200):
        request = pb.BatchWriteRowRequest()
        part = request.tables.add(table_name="read")
        for number in range(first, min(first + 200, rows)):
            key = plainbuffer.decode_row(key_of(number)).key
            cell = plainbuffer.put_cell(b"updated", variant.encode(number), None)
            row = plainbuffer.HEADER + plainbuffer.encode_row(key, [cell])
            part.rows.add(
                type=pb.UPDATE, row_change=row, condition=pb.Condition(row_existence=pb.IGNORE)
            )
        await endpoint.call("BatchWriteRow", request, pb.BatchWriteRowResponse)


if __name__ == "__main__":
    main()
