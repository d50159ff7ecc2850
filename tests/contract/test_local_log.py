"""What only the local log can show: its disk, and its one writer."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from rowtide.core.values.errors import LogTrimmed, OutcomeUnknown, Unavailable
from rowtide.stream.log.local import writer as writer_module
from rowtide.stream.log.local.cluster import LocalCluster
from rowtide.stream.log.local.layout import FORMAT_KEY
from rowtide.stream.log.local.store import (
    AtomicWrite,
    LogStore,
    OtherFormat,
    StoreBusy,
    WriteFailed,
)
from rowtide.stream.log.log import Log
from rowtide.stream.log.topics import TopicSpec
from tests.contract.local_clusters import LOG, CountingStore, open_cluster
from tests.support.waiting import SOON_S
from tests.system.small_disk import Ballast, NoDisk, small_disk

MIB = 1 << 20


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    async with open_cluster(tmp_path / "log") as found:
        yield found


async def append(log: Log, *values: str) -> int:
    return await log.append([(b"k", value.encode()) for value in values], deadline_s=SOON_S)


async def values(log: Log) -> str:
    start, _ = await log.bounds()
    return " ".join(e.value.decode() for e in await log.read(start, bytes_max=MIB))


# The disk.


async def test_logs_are_as_they_were_after_the_database_was_closed(tmp_path: Path) -> None:
    async with open_cluster(tmp_path / "log") as cluster:
        first, second = cluster.log(LOG), cluster.log(LOG, 1)
        await append(first, "a", "b", "c")
        await first.trim(2)
        await append(second, "d")
        await second.trim(1)
    async with open_cluster(tmp_path / "log") as cluster:
        assert await cluster.topics() == {LOG: 2}
        assert await cluster.log(LOG).bounds() == (2, 3)
        assert await values(cluster.log(LOG)) == "c"
        assert await append(cluster.log(LOG, 1), "e") == 1


async def test_a_second_process_on_the_directory_is_refused(
    tmp_path: Path, cluster: LocalCluster
) -> None:
    with pytest.raises(StoreBusy, match="in use"):
        await LocalCluster(LogStore(tmp_path / "log"), prefix="rowtide").start()


async def test_a_database_of_another_version_is_refused(tmp_path: Path) -> None:
    store = LogStore(tmp_path / "log")
    store.open()
    batch = store.new_batch()
    batch.put(FORMAT_KEY, b"99")
    store.write(batch)
    store.close()
    with pytest.raises(OtherFormat, match="99"):
        await LocalCluster(LogStore(tmp_path / "log"), prefix="rowtide").start()


async def test_a_file_in_place_of_the_directory_is_no_log(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("")
    with pytest.raises(Unavailable, match="cannot be read"):
        await LocalCluster(LogStore(tmp_path / "log"), prefix="rowtide").start()


def torn(content: bytes, how: str) -> bytes:
    """Return a write-ahead log of which the last write did not reach the disk as it was."""
    if how.startswith("cut"):
        return content[: -int(how.split()[1])]
    if how == "zeros":
        return content[:-40] + bytes(40)
    return content[:-20] + bytes(byte ^ 0xFF for byte in content[-20:])


@pytest.mark.parametrize("how", ["cut 1", "cut 30", "cut 90", "zeros", "garbage"])
async def test_a_torn_last_write_is_dropped_whole_and_no_other(
    tmp_path: Path, cluster: LocalCluster, how: str
) -> None:
    log = cluster.log(LOG)
    await append(log, "a", "b")
    await append(log, "c")
    await append(log, "d" * 40, "e" * 40)
    copy = shutil.copytree(tmp_path / "log", tmp_path / "copy")
    wal = max(copy.glob("*.log"))
    wal.write_bytes(torn(wal.read_bytes(), how))
    async with open_cluster(copy) as crashed:
        assert await values(crashed.log(LOG)) == "a b c"
        assert await append(crashed.log(LOG), "f") == 3


async def test_an_entry_that_cannot_be_read_is_not_passed_over(tmp_path: Path) -> None:
    async with open_cluster(tmp_path / "log") as cluster:
        for letter in "abcd":
            await append(cluster.log(LOG), letter * 100_000)
    # Closing flushed it to a file of tables.
    [table] = (tmp_path / "log").glob("*.sst")
    content = bytearray(table.read_bytes())
    content[50] ^= 0xFF
    table.write_bytes(content)
    with pytest.raises(Unavailable, match="cannot be read"):
        async with open_cluster(tmp_path / "log") as cluster:
            await cluster.log(LOG).read(0, bytes_max=MIB)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    try:
        with small_disk(tmp_path / "disk", 64 * MIB) as found:
            yield found
    except NoDisk as error:
        pytest.skip(str(error))


async def test_a_full_disk_acknowledges_nothing_and_passes(
    disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "REOPEN_S", 0.02)
    acknowledged: list[int] = []
    async with open_cluster(disk / "log") as cluster:
        log = cluster.log(LOG)
        ballast = Ballast(disk)
        ballast.leave(3 * MIB)
        while (base := await outcome(log, str(len(acknowledged)) * MIB)) == len(acknowledged):
            acknowledged.append(base)
        assert isinstance(base, OutcomeUnknown), "RocksDB was given it"
        await log.disconnect()
        with pytest.raises(Unavailable, match="does not answer"):
            await append(log, "meanwhile")
        ballast.drop()
        end = await until_open(log)
        assert len(acknowledged) <= end <= len(acknowledged) + 1
        found = [e.value.decode()[0] for e in await log.read(0, bytes_max=32 * MIB)]
        assert found == [str(number) for number in range(end)]
        assert await append(log, "again") == end
    async with open_cluster(disk / "log") as cluster:
        assert await cluster.log(LOG).end() == end + 1


async def until_open(log: Log) -> int:
    """Return a log's end, once it answers again."""
    async with asyncio.timeout(SOON_S):
        while True:
            try:
                return await log.end()
            except Unavailable:
                await asyncio.sleep(0.01)


# The writer.


async def test_appends_that_wait_together_are_one_write(cluster: LocalCluster) -> None:
    store = CountingStore(cluster)
    async with asyncio.TaskGroup() as tasks:
        for number in range(20):
            log = cluster.log(LOG, number % 2)
            tasks.create_task(append(log, str(number)), name=str(number))
    assert store.count == 1
    assert await cluster.log(LOG).end() == await cluster.log(LOG, 1).end() == 10


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_write_that_failed_is_unknown_until_the_database_is_open_again(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    monkeypatch.setattr(writer_module, "REOPEN_S", 0.0)
    store, log = CountingStore(cluster), cluster.log(LOG)
    await append(log, "a")
    store.fails = when
    with pytest.raises(OutcomeUnknown):
        await append(log, "b")
    with pytest.raises(Unavailable):
        await append(log, "c")
    await log.disconnect()
    assert await until_open(log) == (2 if when == "after" else 1)
    assert await values(log) == ("a b" if when == "after" else "a")


async def test_a_reader_in_the_middle_of_a_scan_delays_the_opening_and_ends_nothing(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(writer_module, "REOPEN_S", 0.01)
    store, log = CountingStore(cluster), cluster.log(LOG)
    await append(log, "a", "b")
    scanning = cluster.store.scan(b"e", b"f")
    next(scanning)
    store.fails = "after"
    with pytest.raises(OutcomeUnknown):
        await append(log, "c")
    async with asyncio.timeout(SOON_S):
        while True:
            if "in use by another process" in caplog.text:
                break
            await asyncio.sleep(0.01)
    del scanning
    assert await until_open(log) == 3
    assert await values(log) == "a b c"


@pytest.mark.parametrize(
    ("offset", "found"),
    [(0, "trimmed"), (1, "trimmed"), (2, "c d"), (3, "d"), (4, "")],
)
async def test_a_trim_that_is_written_and_not_settled_hides_what_it_deleted(
    cluster: LocalCluster, offset: int, found: str
) -> None:
    store, log = CountingStore(cluster), cluster.log(LOG)
    await append(log, "a", "b", "c", "d")
    store.finished.clear()
    store.gate.clear()
    async with asyncio.timeout(SOON_S), asyncio.TaskGroup() as tasks:
        trimming = tasks.create_task(log.trim(2), name="trim")
        for _ in range(3):  # The task begins, then its batch does.
            await asyncio.sleep(0)
        store.gate.set()
        # The event loop blocks until the thread has written the trim.
        assert store.finished.wait(SOON_S)
        assert not trimming.done()
        # A reader that gets "trimmed" continues at the start, and would retry for ever.
        assert await log.bounds() == (2, 4)
        if found == "trimmed":
            with pytest.raises(LogTrimmed):
                await log.read(offset, bytes_max=MIB)
        else:
            entries = await log.read(offset, bytes_max=MIB)
            assert " ".join(entry.value.decode() for entry in entries) == found
    assert await log.bounds() == (2, 4)


async def test_a_trim_that_failed_hides_nothing(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "REOPEN_S", 0.0)
    store, log = CountingStore(cluster), cluster.log(LOG)
    await append(log, "a", "b")
    store.fails = "before"
    with pytest.raises(OutcomeUnknown):
        await log.trim(1)
    assert await until_open(log) == 2
    assert await values(log) == "a b"


async def change(cluster: LocalCluster, how: str) -> None:
    """Create the topic ``t`` with so many partitions, or delete it."""
    if how == "delete":
        await cluster.delete_topics(["t"])
    else:
        await cluster.create_topics([TopicSpec("t", int(how))])


@pytest.mark.parametrize(
    ("before", "cancelled", "then", "partitions"),
    [
        ("1", "delete", "delete", 0),
        ("1", "delete", "2", 2),
        ("delete", "1", "1", 1),
        ("delete", "1", "2", 1),  # A topic that exists is left as it is.
        ("delete", "1", "delete", 0),
        ("1", "2", "delete", 0),
    ],
)
async def test_a_cancelled_change_of_a_topic_does_not_disturb_the_next_one(
    cluster: LocalCluster, before: str, cancelled: str, then: str, partitions: int
) -> None:
    await change(cluster, before)
    store = CountingStore(cluster)
    store.gate.clear()
    async with asyncio.timeout(SOON_S), asyncio.TaskGroup() as tasks:
        first = tasks.create_task(change(cluster, cancelled), name="cancelled")
        for _ in range(3):  # The task begins, then its batch does.
            await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait([first])
        tasks.create_task(change(cluster, then), name="then")
        await asyncio.sleep(0)
        store.gate.set()
    assert await cluster.exists("t") == (partitions > 0)
    for at in range(partitions):
        assert await append(cluster.log("t", at), "a") == 0
    with pytest.raises(Unavailable, match="no such log"):
        cluster.partition("t", partitions)


@pytest.mark.parametrize("where", ["fill", "settle"])
async def test_an_unforeseen_error_of_a_job_does_not_end_the_writer(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    monkeypatch.setattr(writer_module, "REOPEN_S", 0.0)
    log = cluster.log(LOG)

    def fail() -> None:
        raise KeyError

    def fill(_: AtomicWrite) -> int:
        if where == "fill":
            fail()
        return 0

    async with asyncio.timeout(SOON_S), asyncio.TaskGroup() as tasks:
        beside = tasks.create_task(outcome(log, "a"), name="append")
        await asyncio.sleep(0)
        with pytest.raises(OutcomeUnknown, match="KeyError"):
            await cluster.write("fault", fill, fail)
    assert isinstance(beside.result(), OutcomeUnknown)
    await until_open(log)
    assert await values(log) == ("" if where == "fill" else "a")
    await append(log, "b")


async def test_a_failure_wakes_and_tells_whoever_waits_to_read(cluster: LocalCluster) -> None:
    store = CountingStore(cluster)
    async with asyncio.timeout(SOON_S), asyncio.TaskGroup() as tasks:
        reading = tasks.create_task(cluster.log(LOG).read(0, bytes_max=9, wait_s=60), name="read")
        await asyncio.sleep(0)
        store.fails = "after"
        with pytest.raises(OutcomeUnknown):
            await append(cluster.log(LOG), "a")
    assert [entry.value for entry in reading.result()] == [b"a"]


async def test_what_has_not_begun_at_its_deadline_was_never_written(
    cluster: LocalCluster,
) -> None:
    store, first, second = CountingStore(cluster), cluster.log(LOG), cluster.log(LOG)
    store.gate.clear()
    async with asyncio.timeout(SOON_S), asyncio.TaskGroup() as tasks:
        tasks.create_task(append(first, "a"), name="append")
        for _ in range(3):  # The task begins, then its batch does.
            await asyncio.sleep(0)
        with pytest.raises(Unavailable, match="not written"):
            await second.append([(b"k", b"late")], deadline_s=0.01)
        store.gate.set()
    assert await append(second, "b") == 1
    assert await values(first) == "a b"


async def test_what_has_begun_when_its_writer_leaves_is_unknown(cluster: LocalCluster) -> None:
    store, log = CountingStore(cluster), cluster.log(LOG)
    store.gate.clear()
    async with asyncio.timeout(SOON_S), asyncio.TaskGroup() as tasks:
        appending = tasks.create_task(outcome(log), name="append")
        for _ in range(3):  # The task begins, then its batch does.
            await asyncio.sleep(0)
        await log.disconnect()
        store.gate.set()
    assert isinstance(appending.result(), OutcomeUnknown)
    assert await append(log, "next") == 1, "it was on its way"


async def outcome(log: Log, value: str = "a") -> Exception | int:
    try:
        return await append(log, value)
    except (OutcomeUnknown, Unavailable) as error:
        return error


async def test_a_deleted_topic_is_gone_for_who_waits_and_empty_when_made_again(
    cluster: LocalCluster,
) -> None:
    log = cluster.log(LOG)
    await append(log, "a")
    async with asyncio.timeout(SOON_S), asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(refusal(log.read(1, bytes_max=9, wait_s=60)), name="read")
        await asyncio.sleep(0)
        await cluster.delete_topics([LOG, "none"])
    assert isinstance(waiting.result(), Unavailable)
    assert not await cluster.exists(LOG)
    with pytest.raises(Unavailable, match="no such log"):
        await append(log, "b")
    await cluster.create_topics([TopicSpec(LOG)])
    assert await log.bounds() == (0, 0)


async def refusal(reading: object) -> Exception | None:
    try:
        await reading  # type: ignore[misc]
    except Unavailable as error:
        return error
    return None


async def test_two_that_make_one_topic_at_once_make_it_once(tmp_path: Path) -> None:
    async with open_cluster(tmp_path / "log") as cluster:
        async with asyncio.TaskGroup() as tasks:
            for name in ("one", "other"):
                tasks.create_task(cluster.create_topics([TopicSpec("rowtide.new")]), name=name)
        await append(cluster.log("rowtide.new"), "a")
    async with open_cluster(tmp_path / "log") as cluster:
        assert await values(cluster.log("rowtide.new")) == "a"


def test_the_store_that_is_closed_answers_nothing(tmp_path: Path) -> None:
    store = LogStore(tmp_path / "log")
    with pytest.raises(Unavailable, match="not open"):
        store.get_many([b"a"])
    with pytest.raises(WriteFailed):
        store.write(store.new_batch())
