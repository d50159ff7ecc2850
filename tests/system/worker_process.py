"""A whole server as ``rowtide up`` runs it, with the times that a user never needs to set.

A test of trimming can't wait for half a minute, so flushes and trims come as often as asked for.
Run it as a program; it writes its ready file when it serves and drains on SIGTERM.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import uvloop

from rowtide.core.cluster.balance import BalanceSettings
from rowtide.core.values.limits import Limits
from rowtide.deploy.kafka.broker import EmbeddedBroker
from rowtide.deploy.kafka.config import EmbeddedConfig
from rowtide.deploy.kafka.supervision import BrokerEvent, supervise
from rowtide.stream.cluster.backing import Backing
from rowtide.stream.cluster.worker_directory import WorkerDirectory
from rowtide.stream.log.kafka.config import KafkaConfig
from rowtide.stream.measures.clock import MachineClock, StillClock
from rowtide.stream.routing.introduction import Credentials
from rowtide.stream.slot.lease.lease_settings import LeaseSettings
from rowtide.stream.slot.settings import SlotSettings
from rowtide.stream.worker.kafka_backing import KafkaBacking
from rowtide.stream.worker.local_backing import LocalBacking
from rowtide.stream.worker.worker import Worker
from rowtide.stream.worker.worker_config import WorkerConfig

CREDENTIALS = Credentials("system-test-key", "system-test-secret", "system")


def main() -> None:
    """Run until SIGTERM."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--ready-file", type=Path, required=True)
    parser.add_argument("--cache-dir", type=Path, required=True)
    parser.add_argument("--kafka", default="")
    parser.add_argument("--log", choices=["kafka", "local"], default="kafka")
    parser.add_argument("--advertise", default="")
    parser.add_argument("--durability", choices=["fsync", "replicated"], default="fsync")
    parser.add_argument("--flush-s", type=float, default=10.0)
    parser.add_argument("--trim-s", type=float, default=30.0)
    parser.add_argument("--free-bytes-min", type=int, default=64 << 20)
    parser.add_argument("--test-clock-us", type=int)
    parser.add_argument("--table-operations-per-s", type=float, default=10.0)
    parser.add_argument("--partition-units-per-s", type=int, default=0)
    parser.add_argument("--topic-prefix", default="")
    parser.add_argument("--slots", type=int, default=2)
    parser.add_argument("--lease-s", type=float, default=4.0)
    parser.add_argument("--standbys", type=int, default=0)
    wanted = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # Four lines a second of no broker.
    own = WorkerDirectory(wanted.data_dir)
    with _broker(wanted) as broker:
        bootstrap = wanted.kafka or (broker.bootstrap if broker else "")
        backing = _backing(wanted, bootstrap)
        worker = Worker(_config(wanted), own, backing)
        uvloop.run(_serve(worker, broker, wanted.ready_file))


@contextlib.contextmanager
def _broker(wanted: argparse.Namespace) -> Iterator[EmbeddedBroker | None]:
    if wanted.kafka or wanted.log == "local":
        yield None
        return
    with EmbeddedBroker(EmbeddedConfig(wanted.data_dir / "kafka", wanted.cache_dir)) as broker:
        yield broker


def _backing(wanted: argparse.Namespace, bootstrap: str) -> Backing:
    prefix = wanted.topic_prefix or f"system{wanted.data_dir.name}"
    if wanted.log == "local":
        return LocalBacking(wanted.data_dir / "log", topic_prefix=prefix)
    return KafkaBacking(KafkaConfig.of(bootstrap, wanted.durability, topic_prefix=prefix))


def _config(wanted: argparse.Namespace) -> WorkerConfig:
    return WorkerConfig(
        data_dir=wanted.data_dir,
        credentials=CREDENTIALS,
        slots=wanted.slots,
        standbys=wanted.standbys,
        advertise=wanted.advertise,
        lease=LeaseSettings(lease_s=wanted.lease_s),
        free_bytes_min=wanted.free_bytes_min,
        limits=Limits(
            table_operations_per_s=wanted.table_operations_per_s,
            partition_units_per_s=wanted.partition_units_per_s,
        ),
        slot=SlotSettings(flush_s=wanted.flush_s, trim_s=wanted.trim_s),
        # On a quick machine the writers of a test write more than a shard is meant to take.
        balance=BalanceSettings(split_writes_per_s=0),
        clock=MachineClock() if wanted.test_clock_us is None else StillClock(wanted.test_clock_us),
    )


async def _serve(worker: Worker, broker: EmbeddedBroker | None, ready_file: Path) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)

    def ready(running: Worker) -> None:
        draft = ready_file.with_name(ready_file.name + ".new")
        key_id, secret, instance = CREDENTIALS
        content = {
            "endpoint": f"http://{running.config.host}:{running.port}",
            "instance": instance,
            "access_key_id": key_id,
            "access_key_secret": secret,
        }
        draft.write_text(json.dumps(content))
        os.replace(draft, ready_file)

    async with asyncio.TaskGroup() as tasks:
        watch = None
        if broker is not None:
            watch = tasks.create_task(supervise(broker, _report), name="broker")
        await worker.run(ready=ready, stop=stop)
        if watch is not None:
            watch.cancel()


def _report(event: BrokerEvent) -> None:
    logging.getLogger(__name__).warning("embedded Kafka: %s", event)


if __name__ == "__main__":
    main()
