"""The changelog on a real broker: transactions whole or absent, seen alike by other clients."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from itertools import pairwise
from unittest.mock import patch

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from rowtide.core.values.errors import LogTrimmed, Rejected
from rowtide.stream.log.changelog import Change, ChangelogEntry, Fenced
from rowtide.stream.log.kafka.changelog import KafkaChangelogReader, KafkaChangelogWriter
from rowtide.stream.log.kafka.cluster import KafkaCluster
from rowtide.stream.log.kafka.config import KafkaConfig
from rowtide.stream.log.kafka.fetch import Place
from rowtide.stream.log.topics import TopicSpec

pytestmark = pytest.mark.kafka


@pytest.fixture
async def changelog(cluster: KafkaCluster, topic: str) -> AsyncIterator[str]:
    """The name of a new changelog topic with one partition."""
    await cluster.create_topics([TopicSpec(topic, kind="compacted")])
    yield topic
    await cluster.delete_topics([topic])


def writer(cluster: KafkaCluster, changelog: str) -> KafkaChangelogWriter:
    """Return a writer under the slot's one transactional id."""
    return KafkaChangelogWriter(cluster.brokers, changelog, 0, f"{changelog}.slot-0")


async def make_fenced_writer(cluster: KafkaCluster, changelog: str) -> KafkaChangelogWriter:
    """Return a writer that has taken the slot over."""
    owner = writer(cluster, changelog)
    await owner.fence()
    return owner


async def read_all(cluster: KafkaCluster, changelog: str, at: int = 0) -> list[ChangelogEntry]:
    """Return what a reader sees from ``at`` on."""
    reader = KafkaChangelogReader(cluster.brokers, changelog, 0)
    return [entry async for entries in reader.read(at) for entry in entries]


def changes(*names: str) -> list[Change]:
    """Return a change for each name."""
    return [(name.encode(), name.encode() * 2, []) for name in names]


async def keys(cluster: KafkaCluster, changelog: str, at: int = 0) -> str:
    """Return the one-letter keys that a reader sees."""
    return b"".join(entry.key for entry in await read_all(cluster, changelog, at)).decode()


async def other_client(cluster: KafkaCluster, changelog: str) -> AIOKafkaProducer:
    """Return a started transactional producer of another library, under the slot's id."""
    producer = AIOKafkaProducer(
        bootstrap_servers=cluster.config.bootstrap, transactional_id=f"{changelog}.slot-0"
    )
    await producer.start()
    return producer


async def test_a_flush_is_read_whole_and_its_position_is_the_end(
    cluster: KafkaCluster, changelog: str
) -> None:
    owner = await make_fenced_writer(cluster, changelog)
    headers = [("stamp", b"17"), ("until", b"")]
    position = await owner.flush([(b"a", b"1", headers), (b"b", None, [])])
    reader = KafkaChangelogReader(cluster.brokers, changelog, 0)
    assert [entries async for entries in reader.read(0)] == [
        [ChangelogEntry(0, b"a", b"1", headers), ChangelogEntry(1, b"b", None, [])]
    ]
    assert position == reader.position == await reader.end() == 3
    assert await reader.start() == 0


async def test_a_read_continues_at_the_position_of_a_flush(
    cluster: KafkaCluster, changelog: str
) -> None:
    owner = await make_fenced_writer(cluster, changelog)
    position = await owner.flush(changes("a", "b"))
    assert await keys(cluster, changelog, position) == ""
    await owner.flush(changes("c"))
    assert await keys(cluster, changelog, position) == "c"
    assert await keys(cluster, changelog, 1) == "bc"


async def test_a_flush_of_many_batches_is_one_transaction(
    cluster: KafkaCluster, changelog: str
) -> None:
    owner = await make_fenced_writer(cluster, changelog)
    large: list[Change] = [(b"%d" % number, bytes(1 << 20), []) for number in range(10)]
    position = await owner.flush(large)
    assert position == len(large) + 1
    found = await read_all(cluster, changelog)
    assert [entry.key for entry in found] == [key for key, _value, _headers in large]


async def test_a_flush_takes_its_changes_as_it_sends_them(
    cluster: KafkaCluster, changelog: str
) -> None:
    """They may be more than memory holds."""
    owner = await make_fenced_writer(cluster, changelog)
    taken: list[int] = []
    held: list[int] = []

    def many() -> Iterator[Change | None]:
        for number in range(40):
            taken.append(number)
            yield b"%d" % number, bytes(1 << 20), []
            yield None

    produce = owner._transactions._produce

    async def note_and_produce(batches: Mapping[Place, bytes]) -> dict[Place, int]:
        held.append(len(taken))
        return await produce(batches)

    with patch.object(owner._transactions, "_produce", note_and_produce):
        assert await owner.flush(many()) == 41
    assert held[-1] == 40
    assert all(later - former <= 4 for former, later in pairwise([0, *held])), "a batch, and one"
    assert len(await read_all(cluster, changelog)) == 40


@pytest.mark.slow
async def test_a_flush_may_take_far_longer_than_a_question(broker: str, topic: str) -> None:
    """As one of gigabytes does: where it never succeeds, the next one is larger still.

    A coordinator looks every 10 s for transactions that take too long."""
    async with KafkaCluster(KafkaConfig(broker, request_s=2, deadline_s=2)) as cluster:
        await cluster.create_topics([TopicSpec(topic, kind="compacted")])
        owner = await make_fenced_writer(cluster, topic)
        produce = owner._transactions._produce

        async def slow(batches: Mapping[Place, bytes]) -> dict[Place, int]:
            await asyncio.sleep(5)
            return await produce(batches)

        with patch.object(owner._transactions, "_produce", slow):
            large: list[Change] = [(b"%d" % number, bytes(3 << 20), []) for number in range(4)]
            assert await owner.flush(large) == 5
        await cluster.delete_topics([topic])


async def test_a_flush_lasts_as_long_as_brokers_allow(
    cluster: KafkaCluster, changelog: str, caplog: pytest.LogCaptureFixture
) -> None:
    """They allow 15 minutes by default."""
    owner = writer(cluster, changelog)
    owner._transactions._last_s = 901.0
    for number, name in enumerate("ab"):
        await owner.fence()
        assert await owner.flush(changes(name)) == 2 * number + 2
    warnings = [
        record for record in caplog.records if "transaction.max.timeout.ms" in record.message
    ]
    assert len(warnings) == 1


async def test_another_client_reads_a_flush_as_committed(
    cluster: KafkaCluster, changelog: str
) -> None:
    owner = await make_fenced_writer(cluster, changelog)
    await owner.flush([(b"a", b"1", [("h", b"x")])])
    consumer = AIOKafkaConsumer(
        bootstrap_servers=cluster.config.bootstrap, isolation_level="read_committed"
    )
    await consumer.start()
    try:
        consumer.assign([TopicPartition(changelog, 0)])
        consumer.seek(TopicPartition(changelog, 0), 0)
        message = await consumer.getone()
    finally:
        await consumer.stop()
    assert (message.key, message.value, message.headers) == (b"a", b"1", (("h", b"x"),))


async def test_an_open_transaction_is_hidden_and_ends_what_is_read(
    cluster: KafkaCluster, changelog: str
) -> None:
    await (await make_fenced_writer(cluster, changelog)).flush(changes("a"))
    other = await other_client(cluster, changelog)
    await other.begin_transaction()
    await other.send_and_wait(changelog, b"", key=b"b", partition=0)
    assert await keys(cluster, changelog) == "a"
    await other.commit_transaction()
    await other.stop()
    owner = await make_fenced_writer(cluster, changelog)
    await owner.flush(changes("c"))
    assert await keys(cluster, changelog) == "abc"


async def test_an_aborted_transaction_is_hidden_wherever_a_read_begins(
    cluster: KafkaCluster, changelog: str
) -> None:
    other = await other_client(cluster, changelog)
    for name, end in [("a", "commit"), ("b", "abort"), ("c", "commit"), ("d", "abort")]:
        await other.begin_transaction()
        for _ in range(3):
            await other.send_and_wait(changelog, b"", key=name.encode(), partition=0)
        await getattr(other, f"{end}_transaction")()
    await other.stop()
    owner = await make_fenced_writer(cluster, changelog)
    await owner.flush(changes("e"))
    assert await keys(cluster, changelog) == "aaaccce"
    # Transactions of three entries and a marker: a at 0, b at 4, c at 8, d at 12.
    for at, seen in [(2, "accce"), (5, "ccce"), (6, "ccce"), (9, "cce"), (13, "e"), (15, "e")]:
        assert await keys(cluster, changelog, at) == seen


async def test_fencing_aborts_what_the_former_owner_left_open(
    cluster: KafkaCluster, changelog: str
) -> None:
    other = await other_client(cluster, changelog)
    await other.begin_transaction()
    await other.send_and_wait(changelog, b"", key=b"a", partition=0)
    owner = await make_fenced_writer(cluster, changelog)
    await owner.flush(changes("b"))
    assert await keys(cluster, changelog) == "b"
    with pytest.raises(Exception, match=r"(?i)fenced|newer producer|fatal"):
        await other.commit_transaction()
    await other.stop()


async def test_a_former_owner_cannot_flush(cluster: KafkaCluster, changelog: str) -> None:
    former = await make_fenced_writer(cluster, changelog)
    await former.flush(changes("a"))
    owner = await make_fenced_writer(cluster, changelog)
    with pytest.raises(Fenced):
        await former.flush(changes("b"))
    assert not former.ready
    await owner.flush(changes("c"))
    assert await keys(cluster, changelog) == "ac"


async def test_a_writer_that_left_asks_to_be_fenced(cluster: KafkaCluster, changelog: str) -> None:
    owner = await make_fenced_writer(cluster, changelog)
    owner.leave()
    assert not owner.ready
    with pytest.raises(AssertionError, match="fence"):
        await owner.flush(changes("a"))
    await owner.fence()
    await owner.flush(changes("b"))
    assert await keys(cluster, changelog) == "b"


async def test_a_failed_flush_leaves_nothing_and_asks_to_be_fenced(
    cluster: KafkaCluster, changelog: str
) -> None:
    owner = await make_fenced_writer(cluster, changelog)
    with pytest.raises(Rejected, match="limit"):
        await owner.flush([*changes("a"), (b"b", bytes(17 << 20), [])])
    with pytest.raises(AssertionError, match="fence"):
        await owner.flush(changes("c"))
    await owner.fence()
    await owner.flush(changes("d"))
    assert await keys(cluster, changelog) == "d"


async def test_a_position_below_the_start_is_said_to_be_trimmed(
    cluster: KafkaCluster, topic: str
) -> None:
    await cluster.create_topics([TopicSpec(topic)])
    owner = await make_fenced_writer(cluster, topic)
    position = await owner.flush(changes("a", "b"))
    await owner.flush(changes("c"))
    await cluster.log(topic).trim(position)
    with pytest.raises(LogTrimmed):
        await read_all(cluster, topic)
    assert await keys(cluster, topic, position) == "c"
    await cluster.delete_topics([topic])
