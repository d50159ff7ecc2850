"""What every log keeps, in memory, in a local database and on a real broker alike."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest

from rowtide.core.values.errors import LogTrimmed, Rejected, Unavailable
from rowtide.stream.log.kafka.cluster import KafkaCluster
from rowtide.stream.log.kafka.config import KafkaConfig
from rowtide.stream.log.local.cluster import LocalCluster
from rowtide.stream.log.local.store import LogStore
from rowtide.stream.log.log import Entry, Log
from rowtide.stream.log.topics import TopicSpec
from tests.contract.memory_log import MemoryLog
from tests.simulation.broker import Broker
from tests.simulation.memory_cluster import MemoryCluster
from tests.simulation.network import Link, Network
from tests.support.waiting import SOON_S

LOGS = ["memory", "simulated", "local", pytest.param("kafka", marks=pytest.mark.kafka)]
MIB = 1 << 20


@pytest.fixture(params=LOGS)
async def writers(
    request: pytest.FixtureRequest, topic: str, tmp_path: Path
) -> AsyncIterator[tuple[Log, Log]]:
    """Two writers' handles on one new, empty log."""
    if request.param == "memory":
        log = MemoryLog()
        yield log, log.twin()
        return
    if request.param == "simulated":
        simulated = MemoryCluster(Link(Network(Broker(), Random(1))))
        yield simulated.log(topic), simulated.log(topic)
        return
    if request.param == "local":
        async with LocalCluster(LogStore(tmp_path / "log"), prefix="rowtide") as local:
            await local.create_topics([TopicSpec(topic)])
            yield local.log(topic), local.log(topic)
        return
    # By hand, not as a fixture of this test: the ones in memory need no broker.
    async with KafkaCluster(KafkaConfig(request.getfixturevalue("broker"))) as cluster:
        await cluster.create_topics([TopicSpec(topic)])
        yield cluster.log(topic), cluster.log(topic)
        await cluster.delete_topics([topic])


@pytest.fixture
def log(writers: tuple[Log, Log]) -> Log:
    """One handle on a new, empty log."""
    return writers[0]


def pairs(*names: str) -> list[tuple[bytes, bytes]]:
    """Return an entry (key, value) for each name."""
    return [(name.encode(), name.encode() * 2) for name in names]


def entries(base: int, *names: str) -> list[Entry]:
    """Return what ``pairs`` reads as from ``base`` on."""
    return [Entry(base + at, key, value) for at, (key, value) in enumerate(pairs(*names))]


async def test_a_new_log_is_empty(log: Log) -> None:
    assert await log.bounds() == (0, 0)
    assert await log.read(0, bytes_max=MIB) == []


async def test_offsets_are_consecutive_over_all_appends(log: Log) -> None:
    assert await log.append(pairs("a"), deadline_s=SOON_S) == 0
    assert await log.append(pairs("b", "c", "d"), deadline_s=SOON_S) == 1
    assert await log.append(pairs("e"), deadline_s=SOON_S) == 4
    assert await log.bounds() == (0, 5)
    assert await log.read(0, bytes_max=MIB) == entries(0, "a", "b", "c", "d", "e")


async def test_a_batch_stands_together_while_others_append(writers: tuple[Log, Log]) -> None:
    async def append_batches(log: Log, name: str) -> list[int]:
        return [await log.append(pairs(*[name] * 5), deadline_s=SOON_S) for _ in range(20)]

    async with asyncio.TaskGroup() as tasks:
        running = [
            tasks.create_task(append_batches(log, name), name=name)
            for log, name in zip(writers, ("left", "right"), strict=True)
        ]
    bases = {base: task.get_name() for task in running for base in task.result()}
    assert sorted(bases) == list(range(0, 200, 5))
    found = await writers[0].read(0, bytes_max=MIB)
    for base, name in bases.items():
        assert found[base : base + 5] == entries(base, *[name] * 5)


async def test_a_writer_behind_another_learns_its_true_offset(writers: tuple[Log, Log]) -> None:
    first, second = writers
    assert await first.append(pairs("a"), deadline_s=SOON_S) == 0
    assert await second.append(pairs("b", "c"), deadline_s=SOON_S) == 1
    assert await first.append(pairs("d"), deadline_s=SOON_S) == 3


async def test_a_read_may_begin_within_a_batch(log: Log) -> None:
    await log.append(pairs("a", "b", "c", "d"), deadline_s=SOON_S)
    assert await log.read(2, bytes_max=MIB) == entries(2, "c", "d")


async def test_a_read_always_returns_an_entry_where_one_exists(log: Log) -> None:
    await log.append([(b"k", bytes(10_000))], deadline_s=SOON_S)
    await log.append([(b"k", bytes(10_000))], deadline_s=SOON_S)
    assert [entry.offset for entry in await log.read(0, bytes_max=1)] == [0]
    assert [entry.offset for entry in await log.read(1, bytes_max=1)] == [1]


async def test_a_read_at_the_end_returns_nothing_after_its_wait(log: Log) -> None:
    await log.append(pairs("a"), deadline_s=SOON_S)
    clock = asyncio.get_running_loop().time
    began = clock()
    assert await log.read(1, bytes_max=MIB, wait_s=0.2) == []
    assert 0.19 <= clock() - began < SOON_S


async def test_a_read_at_the_end_wakes_when_something_is_appended(
    writers: tuple[Log, Log],
) -> None:
    reader, writer = writers
    async with asyncio.timeout(SOON_S), asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(reader.read(0, bytes_max=MIB, wait_s=60), name="reader")
        await asyncio.sleep(0)
        await writer.append(pairs("a"), deadline_s=SOON_S)
    assert waiting.result() == entries(0, "a")


async def test_a_waiting_read_delays_no_other(log: Log) -> None:
    await log.append(pairs("a"), deadline_s=SOON_S)
    async with asyncio.timeout(SOON_S), asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(log.read(1, bytes_max=MIB, wait_s=60), name="reader")
        await asyncio.sleep(0)
        for _ in range(10):
            assert await log.read(0, bytes_max=MIB) == entries(0, "a")
            assert await log.bounds() == (0, 1)
        assert not waiting.done()
        waiting.cancel()


async def test_trimmed_entries_are_gone_and_said_to_be(log: Log) -> None:
    await log.append(pairs("a", "b", "c", "d"), deadline_s=SOON_S)
    await log.trim(2)
    assert await log.bounds() == (2, 4)
    assert await log.read(2, bytes_max=MIB) == entries(2, "c", "d")
    with pytest.raises(LogTrimmed):
        await log.read(1, bytes_max=MIB)


async def test_trimming_again_or_less_changes_nothing(log: Log) -> None:
    await log.append(pairs("a", "b", "c"), deadline_s=SOON_S)
    for before in (2, 2, 1):
        await log.trim(before)
        assert await log.bounds() == (2, 3)


async def test_offsets_go_on_after_everything_is_trimmed(log: Log) -> None:
    await log.append(pairs("a", "b"), deadline_s=SOON_S)
    await log.trim(2)
    assert await log.bounds() == (2, 2)
    assert await log.append(pairs("c"), deadline_s=SOON_S) == 2


async def test_what_lies_beyond_the_end_is_refused(log: Log) -> None:
    await log.append(pairs("a"), deadline_s=SOON_S)
    with pytest.raises(Unavailable, match=r"offset 5 .* end 1"):
        await log.read(5, bytes_max=MIB)
    with pytest.raises(Unavailable, match=r"offset 5 .* end 1"):
        await log.trim(5)


async def test_bounds_show_what_another_has_just_appended(writers: tuple[Log, Log]) -> None:
    first, second = writers
    for end in range(1, 21):
        await first.append(pairs("a"), deadline_s=SOON_S)
        assert await second.bounds() == (0, end)


async def test_a_batch_above_the_limit_is_rejected_and_leaves_nothing(log: Log) -> None:
    with pytest.raises(Rejected, match="limit"):
        await log.append([(b"k", bytes(17 * MIB))], deadline_s=SOON_S)
    with pytest.raises(Rejected, match="limit"):
        await log.append([(b"k", bytes(9 * MIB)), (b"k", bytes(9 * MIB))], deadline_s=SOON_S)
    assert await log.append(pairs("a"), deadline_s=SOON_S) == 0


async def test_the_largest_record_goes_in_and_comes_out(log: Log) -> None:
    largest = bytes(16 * MIB - 1)
    await log.append([(b"k", largest)], deadline_s=SOON_S)
    assert await log.read(0, bytes_max=1) == [Entry(0, b"k", largest)]


async def test_a_log_works_on_after_a_disconnect(log: Log) -> None:
    await log.disconnect()
    assert await log.append(pairs("a"), deadline_s=SOON_S) == 0
    await log.disconnect()
    assert await log.append(pairs("b"), deadline_s=SOON_S) == 1
    assert await log.read(0, bytes_max=MIB) == entries(0, "a", "b")


async def test_empty_keys_and_values_come_back_as_they_are(log: Log) -> None:
    await log.append([(b"", b""), (b"k", b"")], deadline_s=SOON_S)
    assert await log.read(0, bytes_max=MIB) == [Entry(0, b"", b""), Entry(1, b"k", b"")]
