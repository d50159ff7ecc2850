"""Speed of sinks, through the whole pipeline: ``python -m tests.bench.sinks [KIND]...``.

A broker and a worker are children of this process, which runs one connector per kind, as
``rowtide connector run`` does, from the oldest change until the sink has all. The rows are those
of the other benchmarks: two key columns and 12 cells. ``--updates`` writes each row once more, with
an update of one column, so that rows have to be asked for. The kind ``none`` takes everything and
keeps nothing: what is left is the pipeline. What a sink needs a server for is a child of this
process, too, unless settings lead to another one: ``--set opensearch.url=http://...``.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from base64 import b64encode
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import click
import uvloop

from demo.servers.clickhouse import Clickhouse
from demo.servers.mariadb import HOST, QUICK, MariaDB
from demo.servers.opensearch import OpenSearch
from rowtide.client.endpoint import Endpoint
from rowtide.connectors.runtime.declaration import parse_document
from rowtide.connectors.runtime.place import ProcessContext
from rowtide.connectors.runtime.sink_run import SinkRun
from rowtide.core.protocol import plainbuffer
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.values import variant
from rowtide.deploy.kafka.broker import EmbeddedBroker
from rowtide.deploy.kafka.config import EmbeddedConfig, default_cache_dir
from rowtide.deploy.up import Ready, Up
from rowtide.stream.log.kafka.cluster import KafkaCluster, KafkaConfig
from rowtide.stream.measures.collector import tune_collector
from tests.bench.circumstances import circumstances, format_circumstances
from tests.bench.measure import Bench
from tests.bench.report import Result, as_markdown
from tests.bench.traffic import key_of
from tests.connectors.webhook.receiver import SECRET, receiving

PREFIX = "bench"
KINDS = (
    *("none", "tantivy", "opensearch", "duckdb", "clickhouse", "delta", "parquet"),
    *("mysql", "kafka", "webhook"),
)
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
    """Measure sinks and print a Markdown table; all of them unless some are named."""
    click.echo(format_circumstances(circumstances("sinks")))
    with tempfile.TemporaryDirectory(prefix="rowtide-bench-") as where:
        folder, cache_dir = Path(where), default_cache_dir(os.environ, sys.platform)
        config = EmbeddedConfig(folder / "kafka", cache_dir)
        with EmbeddedBroker(config) as broker, (folder / "log").open("wb") as log:
            options = ["--port", "0", "--kafka", broker.bootstrap, "--topic-prefix", PREFIX]
            with Up(folder / "worker", options=options, output=log) as up:
                ready = up.start()
                bench = Bench(ready, up.pid, connections=8)
                run = _Run(ready, bench, broker.bootstrap, folder, changes, updates)
                tune_collector()
                results = uvloop.run(run.measure(kinds or KINDS, settings))
                bench.client.close()
    click.echo(as_markdown(results))


@asynccontextmanager
async def _sink(
    kind: str, given: Sequence[str], bootstrap: str, folder: Path
) -> AsyncIterator[dict[str, object]]:
    """Give the settings of a sink, and run the server that it needs meanwhile."""
    found: dict[str, object] = {"kind": NONE if kind == "none" else kind}
    for text in given:
        name, _, value = text.partition("=")
        if name.startswith(f"{kind}."):
            found[name.partition(".")[2]] = int(value) if value.isdigit() else value
    cache_dir = default_cache_dir(os.environ, sys.platform)
    async with AsyncExitStack() as closing:
        if len(found) > 1:
            pass  # They lead to one that runs.
        elif kind == "mysql":
            mariadb = closing.enter_context(MariaDB(folder, cache_dir, options=QUICK))
            mariadb.execute("CREATE DATABASE bench")
            found |= {"host": HOST, "port": mariadb.port, "user": "root", "database": "bench"}
        elif kind == "clickhouse":
            found["url"] = closing.enter_context(Clickhouse(folder, cache_dir)).url
        elif kind == "opensearch":
            found["url"] = closing.enter_context(OpenSearch(folder, cache_dir)).url
        elif kind == "kafka":
            found["brokers"] = bootstrap
        elif kind == "webhook":
            found["url"] = (await closing.enter_async_context(receiving())).url
            found["secret"] = "whsec_" + b64encode(SECRET).decode()
        yield found


class _Run(NamedTuple):
    """The server whose changes are passed on, and how many there are."""

    ready: Ready
    bench: Bench
    bootstrap: str
    folder: Path
    changes: int
    updates: bool

    async def measure(self, kinds: Sequence[str], given: Sequence[str]) -> list[Result]:
        """Write the changes, and have every kind of sink take them."""
        await self.bench.batch_write(self.bench.create("read"), self.changes)
        results: list[Result] = []
        async with (
            Endpoint(**self.ready._asdict()) as endpoint,
            KafkaCluster(KafkaConfig(self.bootstrap, topic_prefix=PREFIX)) as cluster,
        ):
            if self.updates:
                await _update(endpoint, self.changes)
            place = ProcessContext(
                endpoint, os.environ, str(self.folder / "connectors"), cluster, "bench"
            )
            total = self.changes * 2 if self.updates else self.changes
            for kind in kinds:
                async with _sink(kind, given, self.bootstrap, self.folder / kind) as settings:
                    document = {"table": "read", "begin": "oldest", "sink": settings}
                    run = SinkRun(parse_document(f"bench-{kind}", document), place)
                    results.append(await _result(run, kind, total, updates=self.updates))
        return results


async def _result(run: SinkRun, kind: str, total: int, *, updates: bool) -> Result:
    cpu_before = time.process_time()
    rate = total / await _measure_taken_s(run, total)
    cpu_us = (time.process_time() - cpu_before) / total * 1e6
    what = "puts and updates" if updates else "puts"
    remark = f"{cpu_us:.0f} us of this process's CPU each"
    return Result(f"changes into {kind}, {what}", rate, "/s", remark=remark)


async def _measure_taken_s(run: SinkRun, changes: int) -> float:
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
