"""How the changelog in the local database shrinks, and what a crash leaves of a flush."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from rowtide.core.values.errors import Rejected
from rowtide.stream.log.changelog import Change, ChangelogEntry, Fenced
from rowtide.stream.log.local.cluster import LocalCluster
from rowtide.stream.log.local.store import AtomicWrite
from tests.contract.local_clusters import CHANGELOG, CountingStore, open_cluster
from tests.support.waiting import SOON_S

MIB = 1 << 20
DAY_MS = 86_400_000


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    async with open_cluster(tmp_path / "log") as found:
        yield found


def changes(*names: str) -> list[Change]:
    """Return a change for each name; one that begins with ``-`` is a tombstone."""
    return [(name[-1].encode(), None if name[0] == "-" else name.encode(), []) for name in names]


async def read(cluster: LocalCluster, at: int = 0) -> list[ChangelogEntry]:
    reader = cluster.changelog_reader(CHANGELOG, 0)
    return [entry async for entries in reader.read(at) for entry in entries]


async def flush(cluster: LocalCluster, *names: str) -> int:
    writer = cluster.changelog_writer(CHANGELOG, 0, "slot-0")
    await writer.fence()
    return await writer.flush(changes(*names))


async def keys(cluster: LocalCluster) -> str:
    return " ".join(
        f"{'-' if entry.value is None else ''}{entry.key.decode()}{entry.offset}"
        for entry in await read(cluster)
    )


async def test_each_key_stands_once_where_it_was_written_last(cluster: LocalCluster) -> None:
    assert await flush(cluster, "a", "b", "a") == 4
    assert await flush(cluster, "b", "-a", "c") == 8
    assert await keys(cluster) == "b4 -a5 c6"
    assert await flush(cluster, "a") == 10
    assert await keys(cluster) == "b4 c6 a8"


async def test_a_tombstone_goes_after_a_day_and_its_key_may_come_back(tmp_path: Path) -> None:
    now_ms = [0]
    async with open_cluster(tmp_path / "log", clock_ms=lambda: now_ms[0]) as cluster:
        await flush(cluster, "a", "b", "-a")
        now_ms[0] = DAY_MS
        await flush(cluster, "c")
        assert await keys(cluster) == "b1 -a2 c4"
        now_ms[0] = DAY_MS + 1
        await flush(cluster, "c")
        assert await keys(cluster) == "b1 c6"
        await flush(cluster, "a")
        assert await keys(cluster) == "b1 c6 a8"


async def test_a_flush_larger_than_a_part_is_seen_whole_or_not_at_all(
    cluster: LocalCluster,
) -> None:
    await flush(cluster, "a")
    writer = cluster.changelog_writer(CHANGELOG, 0, "slot-0")
    await writer.fence()
    seen: list[int] = []

    def many() -> Iterator[Change | None]:
        for number in range(8):
            seen.append(cluster.partition(CHANGELOG, 0).bounds.end)
            yield b"%d" % number, bytes(MIB // 2), []
            yield None
        raise Rejected("OTSParameterInvalid", "as asked")

    with pytest.raises(Rejected):
        await writer.flush(many())
    assert not writer.ready
    assert set(seen) == {2}
    assert await keys(cluster) == "a0"
    assert await flush(cluster, "b") == 4
    assert await keys(cluster) == "a0 b2", "nothing of the former flush is left behind the end"


async def test_a_large_flush_is_read_in_pages_with_their_positions(cluster: LocalCluster) -> None:
    writer = cluster.changelog_writer(CHANGELOG, 0, "slot-0")
    await writer.fence()
    large: list[Change] = [(b"%d" % number, bytes(4096), []) for number in range(1200)]
    assert await writer.flush(large) == 1201
    reader = cluster.changelog_reader(CHANGELOG, 0)
    found = [(len(entries), reader.position) async for entries in reader.read(0)]
    assert found == [(500, 500), (500, 1000), (200, 1201)]
    assert len(await read(cluster, 1199)) == 1


async def test_a_large_flush_that_has_keys_again_keeps_the_last_entry_of_each(
    cluster: LocalCluster,
) -> None:
    """Pages of 500 entries are compacted at once: here a key is in two of them."""
    first: list[Change] = [(b"%d" % number, b"1", []) for number in range(700)]
    again: list[Change] = [
        (b"%d" % number, b"2" if number % 7 else None, []) for number in range(700)
    ]
    writer = cluster.changelog_writer(CHANGELOG, 0, "slot-0")
    await writer.fence()
    assert await writer.flush([*first, *again]) == 1401
    expected = [(700 + number, b"%d" % number, number % 7 != 0) for number in range(700)]
    found = await read(cluster)
    assert [(entry.offset, entry.key, entry.value is not None) for entry in found] == expected
    assert await writer.flush(first) == 2102
    assert [entry.offset for entry in await read(cluster)] == [*range(1401, 2101)]


async def test_a_flush_that_is_taken_over_from_midway_is_absent(cluster: LocalCluster) -> None:
    former = cluster.changelog_writer(CHANGELOG, 0, "slot-0")
    await former.fence()
    taken_over = asyncio.Event()

    def many() -> Iterator[Change | None]:
        yield b"a", bytes(MIB), []
        yield b"b", bytes(MIB), []
        while not taken_over.is_set():
            yield None
        yield b"c", bytes(MIB), []

    async def take_over() -> None:
        await flush(cluster, "d")
        taken_over.set()

    async def check_flush_is_fenced() -> None:
        with pytest.raises(Fenced):
            await former.flush(many())

    async with asyncio.timeout(SOON_S), asyncio.TaskGroup() as tasks:
        tasks.create_task(check_flush_is_fenced(), name="former")
        tasks.create_task(take_over(), name="successor")
    assert [entry.key for entry in await read(cluster)] == [b"d"]


@pytest.mark.parametrize(("at", "found"), [(1, "a0"), (2, "b3"), (3, "b3")])
async def test_what_a_crash_leaves_of_a_flush_is_whole_or_absent(
    tmp_path: Path, cluster: LocalCluster, at: int, found: str
) -> None:
    """The commit is the second write of a flush that fits one part; compaction is the third."""
    await flush(cluster, "a")
    writer = cluster.changelog_writer(CHANGELOG, 0, "slot-0")
    store = CountingStore(cluster)
    copied: list[Path] = []
    write = store.write

    def copying(batch: AtomicWrite) -> None:
        write(batch)
        if store.count == at:
            copied.append(shutil.copytree(tmp_path / "log", tmp_path / "copy"))

    cluster.store.write = copying  # type: ignore[method-assign]
    await writer.fence()
    await writer.flush([(b"a", None, []), (b"b", b"1", [])])
    async with open_cluster(copied[0]) as crashed:
        await flush(crashed, "z")
        assert (await keys(crashed)).split()[-2] == found
