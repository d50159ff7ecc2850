"""Many logs are followed at once, each from its place, whatever becomes of the others."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import pytest

from rowtide.stream.log.kafka.cluster import KafkaCluster
from rowtide.stream.log.kafka.tails import BYTES_EACH, LogTails
from rowtide.stream.log.log import Entry
from rowtide.stream.log.tails import Tail
from rowtide.stream.log.topics import TopicSpec
from tests.support.waiting import SOON_S

pytestmark = pytest.mark.kafka


class Reader:
    """Keeps its calls; ``until`` waits for one."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.end = -1
        self.asked_s: list[float] = []
        self.was_trimmed = False
        self._change = asyncio.Event()

    def take(self, entries: Sequence[Entry], end: int, asked_s: float) -> None:
        self.entries += entries
        self.end = end
        self.asked_s.append(asked_s)
        self._change.set()

    def note_trim(self) -> None:
        self.was_trimmed = True
        self._change.set()

    @property
    def offsets(self) -> list[int]:
        return [entry.offset for entry in self.entries]

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not holds():
                self._change.clear()
                await self._change.wait()


@asynccontextmanager
async def following(cluster: KafkaCluster) -> AsyncIterator[LogTails]:
    tails = LogTails(cluster.brokers, clock_s=time.monotonic)
    async with asyncio.TaskGroup() as tasks:
        run = tasks.create_task(tails.run())
        yield tails
        run.cancel()


async def create(cluster: KafkaCluster, topic: str, count: int = 1) -> list[str]:
    names = [f"{topic}.{number}" for number in range(count)]
    await cluster.create_topics([TopicSpec(name, 1, "log") for name in names])
    return names


async def append(cluster: KafkaCluster, topic: str, *values: bytes) -> None:
    await cluster.log(topic).append([(b"k", value) for value in values], deadline_s=SOON_S)


async def test_each_log_is_read_from_its_place_and_then_as_it_grows(
    cluster: KafkaCluster, topic: str
) -> None:
    names = await create(cluster, topic, 40)
    for name in names:
        await append(cluster, name, b"0", b"1", b"2")
    readers = [Reader() for _ in names]
    async with following(cluster) as tails:
        for number, (name, reader) in enumerate(zip(names, readers, strict=True)):
            tails.follow(name, number % 4, reader)
        for reader in readers:
            await reader.until(lambda reader=reader: reader.end == 3)  # type: ignore[misc]
        for number, reader in enumerate(readers):
            assert reader.offsets == list(range(number % 4, 3))
        await append(cluster, names[7], b"3")
        await readers[7].until(lambda: readers[7].end == 4)
        assert readers[7].entries[-1] == Entry(3, b"k", b"3")


async def test_an_idle_log_is_reported_again_and_again(cluster: KafkaCluster, topic: str) -> None:
    [name] = await create(cluster, topic)
    await append(cluster, name, b"0")
    async with following(cluster) as tails:
        began_s = time.monotonic()
        reader = Reader()
        tails.follow(name, 1, reader)
        await reader.until(lambda: len(reader.asked_s) >= 3)
        assert reader.entries == []
        assert reader.end == 1
        assert began_s <= reader.asked_s[0] < reader.asked_s[1] < time.monotonic()


async def test_a_log_that_was_trimmed_says_so_and_another_goes_on(
    cluster: KafkaCluster, topic: str
) -> None:
    trimmed, other = await create(cluster, topic, 2)
    await append(cluster, trimmed, b"0", b"1", b"2")
    await cluster.log(trimmed).trim(2)
    async with following(cluster) as tails:
        gone, there = Reader(), Reader()
        tails.follow(trimmed, 1, gone)
        tails.follow(other, 0, there)
        await gone.until(lambda: gone.was_trimmed)
        await append(cluster, other, b"0")
        await there.until(lambda: there.end == 1)
        tails.follow(trimmed, 2, gone)
        await gone.until(lambda: gone.end == 3)
        assert gone.offsets == [2]


async def test_a_log_that_is_not_there_yet_is_followed_once_it_is(
    cluster: KafkaCluster, topic: str
) -> None:
    async with following(cluster) as tails:
        missing, there = Reader(), Reader()
        tails.follow(f"{topic}.0", 0, missing)
        [name] = [f"{topic}.1"]
        await cluster.create_topics([TopicSpec(name, 1, "log")])
        tails.follow(name, 0, there)
        await append(cluster, name, b"0")
        await there.until(lambda: there.end == 1)
        await create(cluster, topic)
        await append(cluster, f"{topic}.0", b"0")
        await missing.until(lambda: missing.end == 1)


async def test_a_log_that_was_deleted_does_not_stop_the_others(
    cluster: KafkaCluster, topic: str
) -> None:
    names = await create(cluster, topic, 2)
    async with following(cluster) as tails:
        readers = [Reader(), Reader()]
        followed = [tails.follow(n, 0, r) for n, r in zip(names, readers, strict=True)]
        for reader in readers:
            await reader.until(lambda reader=reader: reader.end == 0)  # type: ignore[misc]
        await cluster.delete_topics(names[:1])
        for number in range(3):
            await append(cluster, names[1], b"%d" % number)
            await readers[1].until(lambda n=number: readers[1].end == n + 1)  # type: ignore[misc]
        tails.leave(followed[0])


async def test_a_follower_that_left_gets_nothing(cluster: KafkaCluster, topic: str) -> None:
    [name] = await create(cluster, topic)
    async with following(cluster) as tails:
        left, there = Reader(), Reader()
        tail: Tail = tails.follow(name, 0, left)
        await left.until(lambda: left.end == 0)
        tails.leave(tail)
        calls = len(left.asked_s)
        tails.follow(name, 0, there)
        await append(cluster, name, b"0")
        await there.until(lambda: there.end == 1)
        assert len(left.asked_s) == calls


async def test_a_backlog_comes_whole_and_in_order(cluster: KafkaCluster, topic: str) -> None:
    names = await create(cluster, topic, 2)
    value = b"x" * 20_000
    count = 3 * BYTES_EACH // len(value)
    for name in names:
        for _ in range(count):
            await append(cluster, name, value)
    async with following(cluster) as tails:
        readers = [Reader(), Reader()]
        for name, reader in zip(names, readers, strict=True):
            tails.follow(name, 0, reader)
        for reader in readers:
            await reader.until(lambda reader=reader: len(reader.entries) == count)  # type: ignore[misc]
            assert reader.offsets == list(range(count))
