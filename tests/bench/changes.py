"""Speed of the change reader: ``python -m tests.bench.changes`` (see ``--help``).

A broker and a worker are children of this process, which reads. The rows are those of the other
benchmarks: two key columns and 12 cells.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import click

from rowtide.client.changes.api import ApiSource
from rowtide.client.changes.leases import MemoryLeases
from rowtide.client.changes.source import ChangeSource
from rowtide.client.changes.worker import Batch, ChangeWorker
from rowtide.client.endpoint import Endpoint
from rowtide.connectors.runtime.kafka_source import KafkaSource
from rowtide.deploy.kafka.broker import EmbeddedBroker
from rowtide.deploy.kafka.config import EmbeddedConfig, default_cache_dir
from rowtide.deploy.up import Ready, Up
from rowtide.stream.log.kafka.cluster import KafkaCluster, KafkaConfig
from tests.bench.circumstances import circumstances, format_circumstances
from tests.bench.measure import Bench
from tests.bench.report import Result, as_markdown, percentile
from tests.bench.traffic import Channel

PREFIX = "bench"
PROBES = 500
TABLES = ("read", "tailed", "polled")


@click.command(context_settings={"show_default": True})
@click.option("--records", default=100_000, help="Records to read.")
def main(records: int) -> None:
    """Measure reading changes and print a Markdown table with the bars."""
    click.echo(format_circumstances(circumstances("changes")))
    with tempfile.TemporaryDirectory(prefix="rowtide-bench-") as where:
        folder = Path(where)
        config = EmbeddedConfig(folder / "kafka", default_cache_dir(os.environ, sys.platform))
        with EmbeddedBroker(config) as broker, (folder / "log").open("wb") as log:
            options = ["--port", "0", "--kafka", broker.bootstrap, "--topic-prefix", PREFIX]
            with Up(folder / "worker", options=options, output=log) as up:
                ready = up.start()
                results = asyncio.run(_measure(ready, up.pid, broker.bootstrap, records))
    click.echo(as_markdown(results))


async def _measure(ready: Ready, pid: int, bootstrap: str, records: int) -> list[Result]:
    bench = Bench(ready, pid, connections=8)
    tables = [bench.create(name) for name in TABLES]
    await bench.batch_write(tables[0], records)
    results: list[Result] = []
    async with (
        Endpoint(**ready._asdict()) as endpoint,
        KafkaCluster(KafkaConfig(bootstrap, topic_prefix=PREFIX)) as cluster,
    ):
        read, tailed, polled = (ApiSource(endpoint, name) for name in TABLES)
        sources: dict[str, ChangeSource] = {
            "Kafka": KafkaSource(read, cluster),
            "the Stream API": read,
        }
        for name, source in sources.items():
            for taken, what in ((_check_stamps, "counted"), (_read_values, "with values")):
                rate = await _drain(source, records, taken)
                results.append(Result(f"changes from {name}, {what}", rate, "/s"))
        sources = {"Kafka": KafkaSource(tailed, cluster), "the Stream API": polled}
        for (name, source), table in zip(sources.items(), tables[1:], strict=True):
            delays = await _delays(ready, source, table.put)
            results += [
                Result(f"answered -> reader on {name}, p{p}", percentile(delays, p) * 1000, "ms")
                for p in (50, 99)
            ]
    bench.client.close()
    return results


def _check_stamps(batch: Batch) -> None:
    """Look at what every change carries outside."""
    for change in batch:
        assert change.stamp


def _read_values(batch: Batch) -> None:
    """Take every value."""
    for change in batch:
        assert change.key
        assert change.columns


async def _drain(source: ChangeSource, records: int, taken: Callable[[Batch], None]) -> float:
    """Read so many records from the oldest on; return how many a second."""
    count = 0

    async def take(batch: Batch) -> None:
        nonlocal count
        taken(batch)
        count += len(batch)
        if count >= records:
            worker.stop()

    worker = ChangeWorker(source, MemoryLeases(), take)
    await source.shards()
    began = time.perf_counter()
    await worker.run()
    return count / (time.perf_counter() - began)


async def _delays(ready: Ready, source: ChangeSource, put: Callable[[int], bytes]) -> list[float]:
    """Put rows one by one; return how long after its answer each is in the reader."""
    arrived: asyncio.Queue[float] = asyncio.Queue()

    async def take(batch: Batch) -> None:
        for _ in batch:
            arrived.put_nowait(time.perf_counter())

    worker = ChangeWorker(source, MemoryLeases(), take)
    writer = await Channel.open(ready.endpoint)
    delays: list[float] = []
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(worker.run())
        await writer.ask(put(PROBES))
        await arrived.get()
        for number in range(PROBES):
            await writer.ask(put(number))
            answered = time.perf_counter()
            delays.append(max(0.0, await arrived.get() - answered))
        worker.stop()
    writer.close()
    return delays


if __name__ == "__main__":
    main()
