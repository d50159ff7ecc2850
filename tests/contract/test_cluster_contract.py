"""What every cluster keeps, Kafka, a local one and the simulated broker: changelogs, many appends.

What only Kafka can show (batches on the wire, other clients) is in ``test_changelog.py``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest

from rowtide.core.values.errors import LogTrimmed, StoreError, Unavailable
from rowtide.stream.log.changelog import Change, ChangelogEntry, ChangelogWriter, Fenced
from rowtide.stream.log.cluster import LogCluster, Reads
from rowtide.stream.log.kafka.cluster import KafkaCluster
from rowtide.stream.log.kafka.config import KafkaConfig
from rowtide.stream.log.local.cluster import LocalCluster
from rowtide.stream.log.local.store import LogStore
from rowtide.stream.log.log import Entry, Log
from rowtide.stream.log.topics import TopicSpec
from tests.simulation.broker import Broker
from tests.simulation.memory_cluster import MemoryCluster
from tests.simulation.network import Link, Network
from tests.support.waiting import SOON_S

CLUSTERS = ["simulated", "local", pytest.param("kafka", marks=pytest.mark.kafka)]


@pytest.fixture(params=CLUSTERS)
async def some(
    request: pytest.FixtureRequest, topic: str, tmp_path: Path
) -> AsyncIterator[LogCluster]:
    """A cluster with a changelog ``topic``, and a log ``topic``-log of two partitions."""
    if request.param == "simulated":
        yield MemoryCluster(Link(Network(Broker(), Random(1))))
        return
    specs = [TopicSpec(topic, kind="compacted"), TopicSpec(f"{topic}-log", 2)]
    if request.param == "local":
        async with LocalCluster(LogStore(tmp_path / "log"), prefix="rowtide") as local:
            await local.create_topics(specs)
            yield local
        return
    async with KafkaCluster(KafkaConfig(request.getfixturevalue("broker"))) as cluster:
        await cluster.create_topics(specs)
        yield cluster
        await cluster.delete_topics([topic, f"{topic}-log"])


def changes(*names: str) -> list[Change]:
    """Return a change for each name."""
    return [(name.encode(), name.encode() * 2, []) for name in names]


async def make_fenced_writer(cluster: LogCluster, topic: str) -> ChangelogWriter:
    """Return a writer that has taken the changelog over."""
    writer = cluster.changelog_writer(topic, 0, f"{topic}.slot-0")
    await writer.fence()
    return writer


async def read(cluster: LogCluster, topic: str, at: int = 0) -> list[ChangelogEntry]:
    """Return what a reader sees from ``at`` on."""
    reader = cluster.changelog_reader(topic, 0)
    return [entry async for entries in reader.read(at) for entry in entries]


async def test_a_flush_is_read_whole_and_its_position_is_the_end(
    some: LogCluster, topic: str
) -> None:
    writer = await make_fenced_writer(some, topic)
    headers = [("stamp", b"17")]
    position = await writer.flush([(b"a", b"1", headers), (b"b", None, [])])
    reader = some.changelog_reader(topic, 0)
    assert [entry async for entries in reader.read(0) for entry in entries] == [
        ChangelogEntry(0, b"a", b"1", headers),
        ChangelogEntry(1, b"b", None, []),
    ]
    assert position == reader.position == await reader.end() == 3
    assert await reader.start() == 0


async def test_a_read_continues_at_the_position_of_a_flush(some: LogCluster, topic: str) -> None:
    writer = await make_fenced_writer(some, topic)
    position = await writer.flush(changes("a", "b"))
    assert await read(some, topic, position) == []
    await writer.flush(changes("c"))
    assert [entry.key for entry in await read(some, topic, position)] == [b"c"]


async def test_a_flush_of_a_writer_that_was_taken_over_from_is_absent(
    some: LogCluster, topic: str
) -> None:
    former = await make_fenced_writer(some, topic)
    await former.flush(changes("a"))
    successor = await make_fenced_writer(some, topic)
    with pytest.raises(Fenced):
        await former.flush(changes("b"))
    assert not former.ready
    assert successor.ready
    await successor.flush(changes("c"))
    assert [entry.key for entry in await read(some, topic)] == [b"a", b"c"]


async def test_a_writer_may_take_over_again(some: LogCluster, topic: str) -> None:
    former = await make_fenced_writer(some, topic)
    await (await make_fenced_writer(some, topic)).flush(changes("a"))
    await former.fence()
    await former.flush(changes("b"))
    assert [entry.key for entry in await read(some, topic)] == [b"a", b"b"]


async def test_many_logs_take_one_batch_each_and_answer_for_themselves(
    some: LogCluster, topic: str
) -> None:
    one, other = some.log(f"{topic}-log", 0), some.log(f"{topic}-log", 1)
    assert await some.append_many([(one, [(b"k", b"1")])], deadline_s=SOON_S) == [0]
    both = [(other, [(b"k", b"2")]), (one, [(b"k", b"3"), (b"k", b"4")])]
    assert await some.append_many(both, deadline_s=SOON_S) == [0, 1]
    assert [e.value for e in await one.read(0, bytes_max=1000)] == [b"1", b"3", b"4"]


async def two_logs(cluster: LogCluster, topic: str) -> list[Log]:
    """Return two logs, with one entry each."""
    logs = [cluster.log(f"{topic}-log", partition) for partition in range(2)]
    for number, log in enumerate(logs):
        assert await log.append([(b"k", b"%d" % number)], deadline_s=SOON_S) == 0
    return logs


async def test_logs_that_were_used_have_a_leader_that_is_the_same_for_all_of_one_broker(
    some: LogCluster, topic: str
) -> None:
    first, second = await two_logs(some, topic)
    assert some.leader(first) == some.leader(second) == some.leader(some.log(f"{topic}-log", 0))


async def test_several_logs_are_read_at_once_each_from_its_offset(
    some: LogCluster, topic: str
) -> None:
    first, second = await two_logs(some, topic)
    pages = await some.read_many([(second, 0), (first, 1)], bytes_max=1 << 20, wait_s=0.1)
    assert pages == [[Entry(0, b"k", b"1")], []]


async def test_the_first_entries_of_any_log_end_the_wait(some: LogCluster, topic: str) -> None:
    first, second = await two_logs(some, topic)
    async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
        items = [(first, 1), (second, 1)]
        read = tasks.create_task(read_first(some, items), name="read")
        await second.append([(b"k", b"2")], deadline_s=SOON_S)
    assert read.result() == [[], [Entry(1, b"k", b"2")]]


async def read_first(cluster: LogCluster, items: Reads) -> list[list[Entry] | StoreError]:
    """Return the first entries of any log. Kafka waits for less than it is asked for."""
    while not any(pages := await cluster.read_many(items, bytes_max=1 << 20, wait_s=60)):
        pass
    return pages


async def test_a_log_that_is_trimmed_or_ends_earlier_says_so_and_the_other_is_read(
    some: LogCluster, topic: str
) -> None:
    first, second = await two_logs(some, topic)
    await first.trim(1)
    pages = await some.read_many([(first, 0), (second, 0)], bytes_max=1 << 20, wait_s=0.1)
    assert isinstance(pages[0], LogTrimmed)
    assert pages[1] == [Entry(0, b"k", b"1")]
    [beyond] = await some.read_many([(second, 7)], bytes_max=1 << 20, wait_s=0.1)
    assert isinstance(beyond, Unavailable)
