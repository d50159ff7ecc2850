"""Appends to the Kafka log against the client library's producer: ``python -m tests.bench.log``.

Needs a broker: ``python -m tests.bench.log HOST:PORT``. Both sides write the same record batches
to the same partition, in turns of a few hundred, so that a busy machine slows both alike.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from statistics import median
from uuid import uuid4

import click
from aiokafka import AIOKafkaProducer

from rowtide.stream.log.kafka.cluster import KafkaCluster
from rowtide.stream.log.kafka.config import KafkaConfig
from rowtide.stream.log.kafka.log import KafkaLog
from rowtide.stream.log.topics import TopicSpec
from tests.bench.circumstances import circumstances, format_circumstances

ENTRY = (b"k" * 16, b"v" * 384)
ROUNDS = 6
APPENDS = 300
WARM_UP = 30
READ_BYTES = 2 << 20

Append = Callable[[int], Awaitable[object]]


@click.command()
@click.argument("bootstrap")
def main(bootstrap: str) -> None:
    """Print a Markdown table for the broker at BOOTSTRAP."""
    click.echo(format_circumstances(circumstances("log")))
    asyncio.run(measure(bootstrap))


async def measure(bootstrap: str) -> None:
    """Measure appends in turns, then reads of what they left."""
    topic = f"rowtide.bench.{uuid4().hex}"
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap, acks="all", linger_ms=0, max_batch_size=1 << 20
    )
    async with KafkaCluster(KafkaConfig(bootstrap)) as cluster:
        await cluster.create_topics([TopicSpec(topic)])
        await producer.start()
        try:
            await compare(cluster.log(topic), producer, topic)
            await read_back(cluster.log(topic))
        finally:
            await producer.stop()
            await cluster.delete_topics([topic])


async def compare(log: KafkaLog, producer: AIOKafkaProducer, topic: str) -> None:
    """Print latency, rate and CPU of both, for small and for full batches."""

    async def ours(count: int) -> None:
        await log.append([ENTRY] * count, deadline_s=30)

    async def library(count: int) -> None:
        batch = producer.create_batch()
        for key, value in [ENTRY] * count:
            batch.append(key=key, value=value, timestamp=None)
        await (await producer.send_batch(batch, topic, partition=0))

    click.echo("| append | records | p50 ms | p99 ms | records/s | client CPU us |")
    click.echo("|---|---:|---:|---:|---:|---:|")
    for count in (1, 64):
        turns = {"KafkaLog": ours, "send_batch": library}
        results: dict[str, list[tuple[float, ...]]] = {name: [] for name in turns}
        for _ in range(ROUNDS):
            for name, append in turns.items():
                results[name].append(await time_appends(append, count))
        for name, rounds in results.items():
            p50, p99, rate, cpu = (median(column) for column in zip(*rounds, strict=True))
            click.echo(f"| {name} | {count} | {p50:.2f} | {p99:.2f} | {rate:,.0f} | {cpu:.0f} |")


async def time_appends(append: Append, count: int) -> tuple[float, float, float, float]:
    """Return p50 ms, p99 ms, records/s and CPU us per append of one turn."""
    for _ in range(WARM_UP):
        await append(count)
    cpu, began = time.process_time(), time.perf_counter()
    times = []
    for _ in range(APPENDS):
        at = time.perf_counter()
        await append(count)
        times.append(time.perf_counter() - at)
    took, cpu = time.perf_counter() - began, time.process_time() - cpu
    p99 = sorted(times)[APPENDS * 99 // 100]
    return median(times) * 1e3, p99 * 1e3, APPENDS * count / took, cpu / APPENDS * 1e6


async def read_back(log: KafkaLog) -> None:
    """Print the rate of reading all that was appended."""
    at, end = await log.bounds()
    began = time.perf_counter()
    while at < end:
        at = (await log.read(at, bytes_max=READ_BYTES))[-1].offset + 1
    click.echo(f"\nread: {end / (time.perf_counter() - began):,.0f} records/s")


if __name__ == "__main__":
    main()
