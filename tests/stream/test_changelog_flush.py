"""What a flush sends to the changelog, and that a rebuild from it has the same rows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from rowtide.core.rows import chunk
from rowtide.core.rows.fold import read_cells
from rowtide.core.rows.mutation import DELETE, PUT, UPDATE, ChangeRequest
from rowtide.core.rows.read import read_range
from rowtide.core.shard.mark import decode_mark, mark_key
from rowtide.core.shard.shard import Shard
from rowtide.core.shard.shard_state import ShardState
from rowtide.core.values.cell import Cell
from rowtide.core.values.errors import Unavailable
from rowtide.core.values.limits import Limits
from rowtide.stream.log.changelog import Changes
from rowtide.stream.shard.owner import ShardOwner, ShardSettings
from rowtide.stream.shard.read_lease import ReadLease
from rowtide.stream.shard.row_store import RowStore
from rowtide.stream.shard.waiting import Reply
from rowtide.stream.slot.changelog.flush import ChangelogFlush, tombstone_stamp
from rowtide.stream.slot.upkeep.reclaimer import Reclaimer, ReclaimSettings
from tests.contract.memory_log import MemoryLog
from tests.core.chunk_dictionary import put
from tests.core.shard_model import NOW_US, address, table

Entry = tuple[int, bytes, bytes | None]


class Written:
    """Takes what is flushed; fails as often as ``failures`` says."""

    ready = True

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.stamps: dict[bytes, int] = {}
        """What the last tombstones of rows say of when they were gone."""
        self.failures = 0
        self.turns = 1
        """So many others have on the event loop before a flush takes anything."""

    async def prepare(self) -> None:
        """There is no other writer."""

    async def fence(self) -> None:
        """There is no other writer."""

    async def flush(self, changes: Changes) -> int:
        """Take a transaction."""
        for _ in range(self.turns):
            await asyncio.sleep(0)
        if self.failures:
            self.failures -= 1
            raise ConnectionError("refused")
        for change in changes:
            if change is None:
                await asyncio.sleep(0)
            else:
                self.entries.append((len(self.entries), *change[:2]))
                self.stamps[change[0]] = tombstone_stamp(change[2])
        return len(self.entries)

    def leave(self) -> None:
        """Need no fence: there is no other writer."""

    def last(self) -> dict[bytes, bytes | None]:
        """Return what compaction keeps in the end."""
        return {key: value for _, key, value in self.entries}

    def chunks(self) -> dict[bytes, bytes]:
        """Return the chunks that are left of it."""
        return {k: v for k, v in self.last().items() if v is not None and k[:1] == b"r"}


class Shop:
    """A shard's owner, its rows, its log and its changelog."""

    def __init__(self, rows: RowStore, log: MemoryLog, written: Written) -> None:
        mark = rows.get(mark_key("s1"))
        state = ShardState(table().options) if mark is None else decode_mark(mark)
        shard = Shard("s1", table(), rows, state, limits=Limits())
        shard.adopt_claim(1, b"ownerid8")
        clock = iter(range(state.stamp + NOW_US, 10**18, 1000))
        self.rows, self.log, self.written = rows, log, written
        self.owner = ShardOwner(
            shard,
            log,
            rows,
            clock_us=lambda: next(clock),
            lease=ReadLease(lambda: True),
            settings=ShardSettings(),
        )
        self.flushes = ChangelogFlush(written, rows)

    async def recover(self) -> None:
        """Replay the log as a slot does."""
        applied, flushed = self.owner.shard.state.applied, self.rows.find_flushed("s1")
        _, end = await self.log.bounds()
        for at in range(min(applied, flushed) + 1, end):
            entries = (await self.log.read(at, bytes_max=1))[:1]
            self.owner.fold.recover(entries, never=False)
        self.owner.fold.find_unflushed()
        self.owner.open()

    async def write(self, kind: int, some: Sequence[Cell] = (), row: str = "a") -> None:
        """Write one row and wait for its answer."""
        reply = Reply(asyncio.get_running_loop())
        self.owner.submit(ChangeRequest(kind, address(row), some), reply)
        await reply.future

    async def flush(self) -> dict[bytes, bytes | None]:
        """Flush; return what was sent of rows."""
        before = len(self.written.entries)
        await self.flushes.flush([self.owner], 0.0)
        return {k: v for _, k, v in self.written.entries[before:] if k[:1] == b"r"}

    def chunks(self) -> dict[bytes, bytes]:
        """Return the chunks of the rows."""
        return dict(self.rows.scan(b"r", b"s"))


@asynccontextmanager
async def open_shop(
    path: Path, log: MemoryLog | None = None, written: Written | None = None
) -> AsyncIterator[Shop]:
    """Open a shard on the rows at ``path`` and serve it."""
    rows = RowStore(path)
    try:
        shop = Shop(rows, log or MemoryLog(), written or Written())
        await shop.recover()
        async with asyncio.TaskGroup() as tasks:
            run = tasks.create_task(shop.owner.run())
            yield shop
            run.cancel()
    finally:
        rows.close()


def columns(low: int, high: int) -> list[Cell]:
    """Return columns of a hundred bytes each."""
    return [put(f"c{number:04d}", 1_700_000_000_000, "x" * 100) for number in range(low, high)]


async def failure_of(flush: Coroutine[Any, Any, object]) -> Exception | None:
    """Return what a flush raises."""
    try:
        await flush
    except Unavailable as error:
        return error
    return None


async def rebuilt(path: Path, shop: Shop) -> dict[bytes, list[Cell]]:
    """Return the rows that the changelog and the rest of the log make, read twice over."""
    rows = RowStore(path)
    rows.apply_changelog(shop.written.entries)
    rows.apply_changelog([(0, key, value) for key, value in shop.written.last().items()])
    rows.close()
    async with open_shop(path, shop.log) as other:
        return canonical(other.rows)


def canonical(rows: RowStore) -> dict[bytes, list[Cell]]:
    """Return every row's cells, wherever chunks are cut."""
    found = read_range(rows, b"r", b"s", backward=False)
    return {row.row_key: read_cells(rows, row.row_key) or [] for row in found}


async def test_one_cell_of_a_wide_row_sends_one_chunk(tmp_path: Path) -> None:
    async with open_shop(tmp_path / "a") as shop:
        await shop.write(PUT, columns(0, 1000))
        assert len(await shop.flush()) == len(shop.chunks()) > 10
        await shop.write(UPDATE, [put("c0500", 1_700_000_000_001, "y")])
        assert len(await shop.flush()) == 1
        assert await shop.flush() == {}
        assert shop.written.chunks() == shop.chunks()


@pytest.mark.parametrize("kind", [PUT, DELETE])
async def test_a_wide_row_replaced_leaves_nothing_in_the_changelog(
    tmp_path: Path, kind: int
) -> None:
    async with open_shop(tmp_path / "a") as shop:
        await shop.write(PUT, columns(0, 1000))
        await shop.flush()
        await shop.write(kind, columns(0, 1) if kind == PUT else [])
        sent = await shop.flush()
        assert sum(value is None for value in sent.values()) == len(sent) - 1 > 10
        assert shop.written.chunks() == shop.chunks()
        assert await rebuilt(tmp_path / "b", shop) == canonical(shop.rows)


@pytest.mark.parametrize("kind", [PUT, DELETE])
async def test_removals_survive_a_restart(tmp_path: Path, kind: int) -> None:
    async with open_shop(tmp_path / "a") as shop:
        await shop.write(PUT, columns(0, 1000))
        await shop.flush()
        await shop.write(kind, columns(0, 1) if kind == PUT else [])
    async with open_shop(tmp_path / "a", shop.log, shop.written) as again:
        await again.flush()
        assert again.written.chunks() == again.chunks()
        assert again.rows.find_removed() == {}


async def test_rows_that_a_copy_made_room_of_are_gone_for_who_has_them_alive(
    tmp_path: Path,
) -> None:
    """As chunks of rows that live on they stayed where a store was rebuilt from the changelog."""
    async with open_shop(tmp_path / "a") as shop:
        for row in ("a", "b"):
            await shop.write(PUT, columns(0, 1000), row)
        await shop.flush()
        gone, kept = canonical(shop.rows)
        stamp = max(chunk.header(value)[4] for value in shop.chunks().values())
        shop.rows.make_room(shop.rows.rows_within([(b"r", b"s")]))
        await shop.write(PUT, columns(0, 1), "b")
        sent = await shop.flush()
        assert sent[gone] is None
        assert sent[kept] is not None
        assert 0 < shop.written.stamps[gone] <= stamp
        assert shop.rows.find_removed() == {}
        assert shop.written.chunks() == shop.chunks()


async def test_all_of_the_room_is_told_before_the_mark_of_who_came(tmp_path: Path) -> None:
    """A store with the mark takes its rows for complete, and skips later entries."""
    async with open_shop(tmp_path / "a") as shop:
        await shop.write(PUT, columns(0, 1000))
        for note in (b"y", b"z"):
            shop.rows.take([(note, None)])
        shop.rows.make_room(shop.rows.rows_within([(b"r", b"s")]))
        removed_keys = shop.rows.find_removed(count=1)
        assert sum(stamp > 0 for stamp in removed_keys.values()) == 1
        assert b"z" not in removed_keys


async def test_removals_wait_with_the_rows_that_a_flush_leaves(tmp_path: Path) -> None:
    async with open_shop(tmp_path / "a") as shop:
        await shop.write(PUT, columns(0, 1000))
        await shop.flush()
        await shop.write(PUT, columns(0, 1))
        before = shop.written.last()
        assert await shop.flushes.flush([], 0.0, left=[(b"r", b"s")]) == 0
        assert shop.written.last() == before
        await shop.flush()
        assert shop.written.chunks() == shop.chunks()


async def test_a_rebuild_sends_the_tombstones_that_a_lost_disk_owed(tmp_path: Path) -> None:
    async with open_shop(tmp_path / "a") as shop:
        await shop.write(PUT, columns(0, 1000))
        await shop.flush()
        await shop.write(PUT, columns(0, 1))
    other = RowStore(tmp_path / "b")
    other.apply_changelog(shop.written.entries)
    other.close()
    async with open_shop(tmp_path / "b", shop.log, shop.written) as again:
        await again.flush()
        assert again.written.chunks() == again.chunks()


async def test_a_failed_flush_loses_nothing(tmp_path: Path) -> None:
    async with open_shop(tmp_path / "a") as shop:
        await shop.write(PUT, columns(0, 1000))
        await shop.flush()
        await shop.write(PUT, columns(0, 1))
        shop.written.failures = 1
        with pytest.raises(ConnectionError):
            await shop.flush()
        await shop.write(PUT, columns(0, 500))
        await shop.flush()
        assert shop.written.chunks() == shop.chunks()


async def test_a_flush_that_still_reads_fails_where_the_slot_closes(tmp_path: Path) -> None:
    """What it reads would keep the rows' directory from being opened again."""
    async with open_shop(tmp_path / "a") as shop:
        for row in range(600):
            await shop.write(PUT, row=f"b{row}")
        dirty = set(shop.owner.ledger.keys)
        async with asyncio.TaskGroup() as tasks:
            flush = tasks.create_task(failure_of(shop.flush()))
            await asyncio.sleep(0)
            shop.flushes.close()
        assert isinstance(flush.result(), Unavailable)
        assert shop.owner.ledger.keys == dirty


async def test_a_flush_is_of_one_moment(tmp_path: Path) -> None:
    async with open_shop(tmp_path / "a") as shop:
        await shop.write(PUT, columns(0, 500))
        for row in range(600):
            await shop.write(PUT, row=f"b{row}")
        async with asyncio.TaskGroup() as tasks:
            flush = tasks.create_task(shop.flush())
            await asyncio.sleep(0)
            await shop.write(UPDATE, columns(250, 900))
            await flush
        assert await rebuilt(tmp_path / "b", shop) == canonical(shop.rows)
        await shop.flush()
        assert shop.written.chunks() == shop.chunks()


async def test_what_another_owner_removes_during_a_flush_is_removed_by_the_next(
    tmp_path: Path,
) -> None:
    """The shard was opened again, or split, meanwhile. Nothing recorded the chunks that
    the flush had just written: once the tombstone of their row was compacted away, a
    rebuild had them.
    """
    async with open_shop(tmp_path / "a") as shop:
        for some in (columns(0, 1000), columns(0, 1), columns(0, 1000)):
            await shop.write(PUT, some)
        shop.written.turns = 100
        other = Shop(shop.rows, shop.log, shop.written).owner
        other._clock_us = shop.owner._clock_us
        other.open()
        async with asyncio.TaskGroup() as tasks:
            run = tasks.create_task(other.run())
            flush = tasks.create_task(shop.flushes.flush([shop.owner], 0.0))
            await asyncio.sleep(0)
            shop.owner = other
            await shop.write(PUT, columns(0, 1))
            assert not flush.done()
            await flush
            run.cancel()
        await shop.flush()
        assert shop.written.chunks() == shop.chunks()
        assert shop.rows.find_removed() == {}


async def test_graves_of_an_earlier_life_are_found(tmp_path: Path) -> None:
    async with open_shop(tmp_path / "a") as shop:
        await shop.write(PUT, columns(0, 3))
        await shop.write(DELETE)
        await shop.flush()
        assert len(shop.written.chunks()) == 1
    async with open_shop(tmp_path / "a", shop.log, shop.written) as again:

        async def bury(graves: dict[bytes, int]) -> None:
            again.flushes.bury(graves)

        reclaimer = Reclaimer(
            lambda: [again.owner], bury, clock_us=lambda: NOW_US, settings=ReclaimSettings()
        )
        done = await reclaimer.reclaim_now(again.owner)
        assert (done.rows, done.ranges, done.graves) == (1, 0, 1)
        await again.flush()
        assert (again.written.chunks(), again.chunks()) == ({}, {})


async def test_what_is_reclaimed_is_flushed_and_rebuilt(tmp_path: Path) -> None:
    async with open_shop(tmp_path / "a") as shop:
        await shop.write(PUT, columns(0, 1000))
        await shop.flush()
        options = shop.owner.shard.state.options
        shop.owner.shard.state.options = options.__class__(86_400, 1)
        later_us = NOW_US + 90_000 * 10**6
        shop.owner._clock_us = lambda: later_us

        async def bury(graves: dict[bytes, int]) -> None:
            shop.flushes.bury(graves)

        reclaimer = Reclaimer(
            lambda: [shop.owner], bury, clock_us=lambda: later_us, settings=ReclaimSettings()
        )
        await reclaimer.reclaim_now(shop.owner)
        assert canonical(shop.rows) == {}
        assert await rebuilt(tmp_path / "b", shop) == {}
        await shop.flush()
        assert shop.written.chunks() == shop.chunks()
        assert [bool(chunk.header(v)[1] & chunk.DELETED) for v in shop.chunks().values()] == [True]
        await shop.flush()
        assert (shop.written.chunks(), shop.chunks()) == ({}, {})
