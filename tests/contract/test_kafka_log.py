"""What only a real broker can show: failures, durability settings, several partitions at once."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from rowtide.core.values.errors import OutcomeUnknown, Rejected, StoreError, Unavailable
from rowtide.deploy.kafka.broker import EmbeddedBroker
from rowtide.deploy.kafka.config import EmbeddedConfig
from rowtide.stream.log.kafka.cluster import KafkaCluster
from rowtide.stream.log.kafka.config import KafkaConfig, Security
from rowtide.stream.log.kafka.errors import NOT_WRITTEN, NotDurable, append_outcome
from rowtide.stream.log.kafka.log import append_many
from rowtide.stream.log.log import Log
from rowtide.stream.log.topics import TopicSpec
from tests.changed_topics import change_topic
from tests.support.waiting import SOON_S

# Its tests share a broker that they stop: they stay in one process.
pytestmark = pytest.mark.xdist_group("frail broker")

ENTRY = [(b"key", b"value")]
UNKNOWN_CODES = [-1, 5, 7, 20, 45, 46, 47, 56, 999]


@pytest.fixture(scope="module")
def frail_broker(
    cache_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EmbeddedBroker]:
    """A broker that this module may stop and kill."""
    with EmbeddedBroker(EmbeddedConfig(tmp_path_factory.mktemp("frail"), cache_dir)) as running:
        yield running


@pytest.fixture
async def frail(frail_broker: EmbeddedBroker) -> AsyncIterator[KafkaCluster]:
    """A cluster on the frail broker."""
    config = KafkaConfig(frail_broker.bootstrap, request_s=10, deadline_s=20)
    async with KafkaCluster(config) as started:
        yield started


async def turns(count: int = 20) -> None:
    """Let other tasks run until they wait for the network."""
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.parametrize("code", NOT_WRITTEN)
def test_a_code_that_proves_not_written_is_no_unknown_outcome(code: int) -> None:
    assert isinstance(append_outcome(code, -1, "t[0]"), Rejected | Unavailable)


@pytest.mark.parametrize("code", NOT_WRITTEN)
def test_no_code_is_proof_beside_the_offset_of_an_append(code: int) -> None:
    assert isinstance(append_outcome(code, 7, "t[0]"), OutcomeUnknown)


@pytest.mark.parametrize("code", UNKNOWN_CODES)
def test_every_other_code_is_an_unknown_outcome(code: int) -> None:
    assert isinstance(append_outcome(code, -1, "t[0]"), OutcomeUnknown)


def test_success_without_an_offset_is_an_unknown_outcome() -> None:
    assert isinstance(append_outcome(0, -1, "t[0]"), OutcomeUnknown)
    assert append_outcome(0, 7, "t[0]") == 7


def test_a_password_is_not_shown() -> None:
    security = Security("SASL_PLAINTEXT", sasl_username="me", sasl_password="hush")
    assert "hush" not in repr(KafkaConfig("h:1", security))


@pytest.mark.parametrize(
    "wrong",
    [
        {"bootstrap": "localhost"},
        {"durability": "replicated"},
        {"durability": "replicated", "replication_factor": 3, "min_insync": 1},
        {"min_insync": 2},
        {"request_s": 0},
        {"request_s": 60},
        {"record_bytes_max": 1000},
    ],
)
def test_a_pair_of_settings_that_cannot_work_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"\d|host:port"):
        KafkaConfig(**({"bootstrap": "h:1"} | wrong))  # type: ignore[arg-type]


async def test_a_closed_port_is_no_unknown_outcome() -> None:
    with socket.socket() as bound:  # Bound and not listening: connections are refused.
        bound.bind(("127.0.0.1", 0))
        config = KafkaConfig(f"127.0.0.1:{bound.getsockname()[1]}", request_s=1, deadline_s=1)
        cluster = KafkaCluster(config)
        with pytest.raises(Unavailable):
            await cluster.log("rowtide.none").append(ENTRY, deadline_s=5)
        with pytest.raises(Unavailable):
            await cluster.log("rowtide.none").read(0, bytes_max=1)
        with pytest.raises(Unavailable):
            await cluster.start()


@pytest.mark.kafka
async def test_an_append_to_an_unknown_topic_is_not_written(
    cluster: KafkaCluster, topic: str
) -> None:
    with pytest.raises(Unavailable):
        await cluster.log(topic).append(ENTRY, deadline_s=5)


@pytest.mark.kafka
async def test_topics_are_created_once_and_deleted_once(cluster: KafkaCluster, topic: str) -> None:
    specs = [TopicSpec(topic, 3), TopicSpec(topic + ".c", 1, "compacted")]
    for _ in range(2):
        await cluster.create_topics(specs)
    assert {topic: 3, topic + ".c": 1}.items() <= (await cluster.topics()).items()
    for spec in specs:
        await cluster.verify_durability(spec)
    for _ in range(2):
        await cluster.delete_topics([topic, topic + ".c"])
        assert not {topic, topic + ".c"} & (await cluster.topics()).keys()


@pytest.mark.kafka
async def test_a_topic_with_other_settings_is_found_out(cluster: KafkaCluster, topic: str) -> None:
    small = KafkaConfig(cluster.config.bootstrap, record_bytes_max=1 << 20)
    async with KafkaCluster(small) as other:
        await other.create_topics([TopicSpec(topic)])
    with pytest.raises(NotDurable, match=r"max\.message\.bytes is \d+, must be \d+"):
        await cluster.verify_durability(TopicSpec(topic))
    await cluster.delete_topics([topic])


@pytest.mark.kafka
async def test_a_log_that_somebody_else_made_or_changed_is_found_out(
    cluster: KafkaCluster, topic: str
) -> None:
    logs = [f"{topic}.{number}" for number in range(5)]
    await cluster.create_topics([TopicSpec(log) for log in logs])
    await cluster.verify_logs([*logs, f"{topic}.deleted"])
    for log in logs[1:]:
        await change_topic(cluster, log, "cleanup.policy", "compact")
    with pytest.raises(
        NotDurable, match=r"1 is not fsync: cleanup\.policy is compact, must be del"
    ):
        await cluster.verify_durability(TopicSpec(logs[1]))
    with pytest.raises(NotDurable) as raised:
        await cluster.verify_logs([*logs, f"{topic}.deleted"])
    assert [log in str(raised.value) for log in logs] == [False, True, True, True, False]
    assert str(raised.value).endswith("must be delete. 1 more topics")
    # A caller that creates it gets no log that could lose a write.
    with pytest.raises(NotDurable):
        await cluster.create_topics([TopicSpec(logs[0]), TopicSpec(logs[1])])
    await cluster.delete_topics(logs)


@pytest.mark.kafka
async def test_many_partitions_are_appended_to_at_once_each_with_its_own_result(
    cluster: KafkaCluster, topic: str
) -> None:
    await cluster.create_topics([TopicSpec(topic, 3)])
    logs = [cluster.log(topic, partition) for partition in range(3)]
    await logs[1].append(ENTRY, deadline_s=SOON_S)
    items = [(log, ENTRY * 2) for log in logs]
    items.insert(1, (cluster.log(topic, 7), ENTRY))
    items.append((cluster.log(topic, 8), [(b"k", bytes(17 << 20))]))
    first, absent, second, third, large = await append_many(items, deadline_s=SOON_S)
    assert [first, second, third] == [0, 1, 0]
    assert isinstance(absent, Unavailable)
    assert isinstance(large, StoreError)
    assert not isinstance(large, OutcomeUnknown)
    await cluster.delete_topics([topic])


@pytest.mark.kafka
async def test_a_deadline_that_passes_in_flight_is_an_unknown_outcome(
    frail: KafkaCluster, frail_broker: EmbeddedBroker, topic: str
) -> None:
    await frail.create_topics([TopicSpec(topic)])
    log = frail.log(topic)
    await log.append(ENTRY, deadline_s=SOON_S)
    assert frail_broker.pid is not None
    os.kill(frail_broker.pid, signal.SIGSTOP)
    try:
        with pytest.raises(OutcomeUnknown):
            await log.append(ENTRY, deadline_s=0.3)
    finally:
        os.kill(frail_broker.pid, signal.SIGCONT)
    await log.disconnect()
    # The request may have waited in the socket all the while: it is in the log, or never
    # will be.
    assert await log.append(ENTRY, deadline_s=SOON_S) in (1, 2)


@pytest.mark.kafka
@pytest.mark.parametrize("state", ["in flight", "connecting"])
async def test_a_disconnect_wakes_an_append_at_once(
    frail: KafkaCluster, frail_broker: EmbeddedBroker, topic: str, state: str
) -> None:
    await frail.create_topics([TopicSpec(topic)])
    log, another = frail.log(topic), frail.log(topic)
    await log.append(ENTRY, deadline_s=SOON_S)
    assert frail_broker.pid is not None
    os.kill(frail_broker.pid, signal.SIGSTOP)
    try:
        if state == "connecting":  # There is no idle connection left.
            frail.brokers.connections.drop_idle()
        async with asyncio.timeout(SOON_S), asyncio.TaskGroup() as tasks:
            task = tasks.create_task(failure_of_append(log), name="append")
            await turns()
            await another.disconnect()  # Concerns only its own appends.
            await turns()
            assert not task.done()
            await log.disconnect()
    finally:
        os.kill(frail_broker.pid, signal.SIGCONT)
    assert isinstance(task.result(), OutcomeUnknown if state == "in flight" else Unavailable)


@pytest.mark.kafka
async def test_kill_9_in_flight_is_an_unknown_outcome_and_loses_nothing_acknowledged(
    frail: KafkaCluster, frail_broker: EmbeddedBroker, topic: str
) -> None:
    await frail.create_topics([TopicSpec(topic)])
    log = frail.log(topic)
    acknowledged = [await log.append(ENTRY, deadline_s=SOON_S) for _ in range(50)]
    assert frail_broker.pid is not None
    os.kill(frail_broker.pid, signal.SIGSTOP)
    async with asyncio.timeout(SOON_S), asyncio.TaskGroup() as tasks:
        task = tasks.create_task(failure_of_append(log), name="append")
        await turns()
        # The lost connection wakes the append long before its deadline.
        await asyncio.to_thread(frail_broker.kill)
    assert isinstance(task.result(), OutcomeUnknown)
    await log.disconnect()
    with pytest.raises(Unavailable):
        await log.append(ENTRY, deadline_s=5)

    await asyncio.to_thread(frail_broker.restart)
    start, end = await log.bounds()
    assert start == 0
    assert end in (50, 51)
    assert acknowledged == list(range(50))
    assert await log.append(ENTRY, deadline_s=SOON_S) == end


async def failure_of_append(log: Log) -> StoreError:
    """Append with a long deadline and return the failure."""
    with pytest.raises(StoreError) as caught:
        await log.append(ENTRY, deadline_s=30)
    return caught.value
