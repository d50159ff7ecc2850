"""The embedded broker as its users meet it: started, killed, refused, moved, stopped."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from rowtide.deploy.kafka import node
from rowtide.deploy.kafka.broker import EmbeddedBroker
from rowtide.deploy.kafka.config import MIB, EmbeddedConfig
from rowtide.deploy.kafka.errors import BrokerFailed, DirectoryInUse, PortTaken
from rowtide.deploy.kafka.orphan import find_broker
from rowtide.deploy.kafka.probe import is_answering
from rowtide.deploy.kafka.supervision import BrokerBack, BrokerEnded, BrokerEvent, supervise
from tests.support.waiting import until

# Most tests share a broker: they stay in one process.
pytestmark = [pytest.mark.kafka, pytest.mark.xdist_group("embedded broker")]

FOLDER = "a, b %d ü$"
"""A name that would break a properties file, a list or a pattern."""

TOPIC = "log"
ONE_PARTITION = TopicPartition(TOPIC, 0)
RECORD_BYTES_MAX = 16 * MIB


@pytest.fixture
def config(tmp_path: Path, cache_dir: Path) -> EmbeddedConfig:
    """A directory without a broker."""
    return EmbeddedConfig(tmp_path / FOLDER, cache_dir)


@pytest.fixture(scope="module")
def started(cache_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """A broker for all tests of this file."""
    with EmbeddedBroker(EmbeddedConfig(tmp_path_factory.mktemp("own") / FOLDER, cache_dir)) as own:
        yield own


@pytest.fixture
def running(started: EmbeddedBroker) -> EmbeddedBroker:
    """The broker of this file; it runs, whatever the last test has done to it."""
    if not started.is_alive():
        started.start()
    return started


async def append(bootstrap: str, *values: bytes) -> None:
    async with AIOKafkaProducer(
        bootstrap_servers=bootstrap, acks="all", max_request_size=RECORD_BYTES_MAX + 1024
    ) as producer:
        for value in values:
            await producer.send_and_wait(TOPIC, value, partition=0)


async def create_topic(bootstrap: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(TOPIC, 1, 1)])
    finally:
        await admin.close()


async def read(bootstrap: str, count: int) -> list[bytes]:
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    async with consumer:
        consumer.assign([ONE_PARTITION])
        async with asyncio.timeout(30):
            return [(await consumer.getone()).value for _ in range(count)]


def test_a_started_broker_answers_the_kafka_protocol(broker: str) -> None:
    host, port = broker.split(":")
    assert is_answering(host, int(port))


async def test_rows_survive_kill_9_and_a_clean_restart(running: EmbeddedBroker) -> None:
    await create_topic(running.bootstrap)
    await append(running.bootstrap, b"before")
    running.kill()
    assert (running.is_alive(), running.returncode) == (False, -signal.SIGKILL)
    running.restart()
    await append(running.bootstrap, b"after")
    address = running.bootstrap
    running.stop()
    running.start()
    assert running.bootstrap == address
    assert await read(running.bootstrap, 2) == [b"before", b"after"]


async def test_a_record_of_16_mib_is_taken_and_given_back(broker: str) -> None:
    await create_topic(broker)
    largest = os.urandom(RECORD_BYTES_MAX)
    await append(broker, largest)
    assert await read(broker, 1) == [largest]


def test_a_second_start_on_the_directory_is_refused_and_harms_nothing(
    running: EmbeddedBroker,
) -> None:
    folder = running.config.data_dir.resolve()
    with pytest.raises(DirectoryInUse) as refusal:
        EmbeddedBroker(running.config).start()
    assert str(folder) in str(refusal.value)
    assert f"pid {os.getpid()}" in str(refusal.value)
    assert running.is_alive()


def test_stop_leaves_no_process_and_a_port_that_is_taken_meanwhile_is_replaced(
    running: EmbeddedBroker,
) -> None:
    before, pid = running.bootstrap, running.pid
    assert pid is not None
    for _ in range(2):  # It may be called twice.
        running.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    with socket.socket() as other:
        host, port = before.split(":")
        other.bind((host, int(port)))
        other.listen()
        running.start()
        assert running.bootstrap != before
        assert running.is_alive()


def test_a_named_port_that_is_taken_is_an_error(config: EmbeddedConfig, broker: str) -> None:
    taken = EmbeddedConfig(config.data_dir, config.cache_dir, port=int(broker.split(":")[1]))
    with pytest.raises(PortTaken):
        EmbeddedBroker(taken).start()


def test_stop_ends_a_start_that_is_under_way(
    config: EmbeddedConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    # However quick the broker is, or slow the test, the start is still under way.
    monkeypatch.setattr(node, "is_answering", lambda *_: False)
    broker = EmbeddedBroker(config)
    failures: list[Exception] = []

    def start() -> None:
        try:
            broker.start()
        except BrokerFailed as error:
            failures.append(error)

    thread = threading.Thread(target=start)
    thread.start()
    properties = config.data_dir.resolve() / "server.properties"
    until(lambda: find_broker(properties) is not None, poll_s=0.01)
    broker.stop()
    thread.join()
    assert [str(failure) for failure in failures] == ["stopped while starting"]
    assert not broker.is_alive()


def test_log_files_are_bounded_and_a_broker_that_cannot_start_says_why(
    config: EmbeddedConfig,
) -> None:
    small = EmbeddedConfig(config.data_dir, config.cache_dir, log_file_bytes=16 * 1024, log_files=2)
    with EmbeddedBroker(small) as broker:
        files = sorted(broker.log_file.parent.glob("kafka*.log"))
    assert [file.name for file in files] == ["kafka-1.log", "kafka.log"]
    assert all(file.stat().st_size < 24 * 1024 for file in files)
    (config.data_dir / "topics" / "meta.properties").write_text("version=1\nnode.id=1\n")
    with pytest.raises(BrokerFailed, match=r"ended while starting(?s:.)*cluster\.id was not found"):
        EmbeddedBroker(config).start()


async def test_a_broker_that_ends_is_brought_back(running: EmbeddedBroker) -> None:
    events: list[BrokerEvent] = []
    back = asyncio.Event()

    def report(event: BrokerEvent) -> None:
        events.append(event)
        if isinstance(event, BrokerBack):
            back.set()

    killed = running.pid
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        supervision = tasks.create_task(supervise(running, report))
        running.kill()
        await back.wait()
        supervision.cancel()
    assert events == [BrokerEnded(killed, -signal.SIGKILL), BrokerBack(running.bootstrap)]
    assert running.is_alive()


OWNER = """
import signal, sys
from pathlib import Path
from rowtide.deploy.kafka.broker import EmbeddedBroker
from rowtide.deploy.kafka.config import EmbeddedConfig
broker = EmbeddedBroker(EmbeddedConfig(Path(sys.argv[1]), Path(sys.argv[2])))
broker.start()
print(broker.bootstrap, flush=True)
signal.pause()
"""


@pytest.fixture
def owner(config: EmbeddedConfig) -> Iterator[subprocess.Popen[str]]:
    """Another process that runs a broker on the directory."""
    command = [sys.executable, "-c", OWNER, str(config.data_dir), str(config.cache_dir)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        try:
            yield child
        finally:
            child.kill()


def test_a_broker_does_not_outlive_an_owner_that_is_killed(
    config: EmbeddedConfig, owner: subprocess.Popen[str]
) -> None:
    assert owner.stdout is not None
    assert owner.stdout.readline()
    owner.kill()
    until(lambda: find_broker(config.data_dir.resolve() / "server.properties") is None)


def watchdog_of(broker_pid: int) -> int:
    """Return the pid of the shell that watches over ``broker_pid`` (Linux)."""
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes().split(b"\0")
        except OSError:
            continue  # It ended meanwhile.
        if b"watchdog" in words and str(broker_pid).encode() in words:
            return int(entry.parent.name)
    raise AssertionError("no watchdog")


@pytest.mark.skipif(not Path("/proc").exists(), reason="finds the watchdog in /proc")
async def test_an_orphan_is_taken_over_by_the_next_start_with_its_rows(
    config: EmbeddedConfig, owner: subprocess.Popen[str]
) -> None:
    assert owner.stdout is not None
    bootstrap = owner.stdout.readline().strip()
    await create_topic(bootstrap)
    await append(bootstrap, b"kept")
    orphan = find_broker(config.data_dir.resolve() / "server.properties")
    assert orphan is not None
    os.kill(watchdog_of(orphan), signal.SIGKILL)
    owner.kill()
    owner.wait()
    with EmbeddedBroker(config) as broker:
        assert broker.pid != orphan
        assert broker.bootstrap == bootstrap
        assert await read(broker.bootstrap, 1) == [b"kept"]
