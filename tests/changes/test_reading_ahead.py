"""The next page is read while a batch is handled; none is left out or comes too early for that."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from rowtide.core.change import PUT_ROW, Change, ChangeTable
from rowtide.core.errors import LogTrimmed, StoreError, Unavailable
from rowtide.stream.change_leases import Lease, MemoryLeases
from rowtide.stream.change_source import ChangePage, RowPage, SourceShard
from rowtide.stream.change_worker import Batch, FollowerSettings
from rowtide.stream.shard_follower import ShardFollower

LEASE = Lease("s1", counter=1, owner="me", position="0")


class Pages:
    """A shard of three changes, one a page. What is in ``faults`` is raised for a page, once."""

    def __init__(self, faults: dict[int, StoreError]) -> None:
        self.asked: list[int] = []
        self.news = asyncio.Event()
        self._faults = faults

    async def table_name(self) -> str:
        return "t"

    async def now_us(self) -> int:
        return 0

    async def shards(self) -> list[SourceShard]:
        return [SourceShard("s1", (), b"", b"")]

    async def position(self, shard_id: str, since_us: int | None) -> str:
        return LEASE.position

    async def read(self, position: str, *, limit: int, wait_s: float) -> ChangePage:
        number = int(position)
        self.asked.append(number)
        self.news.set()
        if number in self._faults:
            raise self._faults.pop(number)
        change = Change(PUT_ROW, ChangeTable("t", (b"pk",)), "s1", number, number)
        return ChangePage([change], str(number + 1) if number < 2 else None, False)

    async def rows(self, shard_id: str, begin: bytes, end: bytes, *, limit: int) -> RowPage:
        raise Unavailable

    async def finished(self, consumer: str, positions: Sequence[str]) -> None:
        pass


class Handler:
    """Handles a batch only once the next page was asked for; fails as often as it is told to."""

    def __init__(self, pages: Pages, failures: int) -> None:
        self.handled: list[int] = []
        self._pages = pages
        self._failures = failures

    async def __call__(self, batch: Batch) -> None:
        [change] = batch
        while change.sequence < 2 and change.sequence + 1 not in self._pages.asked:
            self._pages.news.clear()
            await self._pages.news.wait()
        if self._failures:
            self._failures -= 1
            raise Unavailable
        self.handled.append(change.sequence)


async def followed(pages: Pages, handler: Handler) -> None:
    leases = MemoryLeases()
    await leases.create(LEASE)
    follower = ShardFollower(
        LEASE, pages, leases, handler, FollowerSettings(), leased_s=0.0, clock=lambda: 0.0
    )
    async with asyncio.timeout(30):
        await follower.run()
    assert (await leases.all())["s1"].ended


async def test_the_next_page_is_asked_for_before_a_batch_is_handled() -> None:
    pages = Pages({})
    handler = Handler(pages, 0)
    await followed(pages, handler)
    assert handler.handled == pages.asked == [0, 1, 2]


async def test_a_page_that_could_not_be_read_ahead_is_asked_for_again() -> None:
    pages = Pages({1: Unavailable()})
    handler = Handler(pages, 0)
    await followed(pages, handler)
    assert handler.handled == [0, 1, 2]
    assert pages.asked == [0, 1, 1, 2]


async def test_a_batch_that_was_not_handled_comes_again_before_what_was_read_ahead() -> None:
    pages = Pages({})
    handler = Handler(pages, 1)
    await followed(pages, handler)
    assert handler.handled == [0, 1, 2]


async def test_what_ends_a_reader_comes_once_the_batch_in_hand_is_handled() -> None:
    pages = Pages({1: LogTrimmed()})
    handler = Handler(pages, 0)
    with pytest.raises(LogTrimmed):
        await followed(pages, handler)
    assert handler.handled == [0]
