"""Rows of a source that rowtide refuses: parked before anything passes them, each known again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import pytest

from rowtide.cli.client import ProtocolClient
from rowtide.client.endpoint import Endpoint
from rowtide.connectors.rows import Refused, SourceRow, TableShape
from rowtide.connectors.runtime.parking import RETRY, SKIP, ParkedRows, TooManyParked
from rowtide.connectors.runtime.progress import Progress
from rowtide.connectors.runtime.source_parking import ParkingTarget
from rowtide.connectors.runtime.table_target import TableTarget
from rowtide.connectors.sources.source import RowRefused
from rowtide.core.values.errors import Rejected, Unavailable, invalid
from rowtide.core.values.variant import Scalar
from tests.connectors.target.test_table_target import read_cells, row, shape

__all__ = ["shape"]

pytestmark = pytest.mark.system

WIDE: dict[str, Scalar | None] = {"v": "x" * (2 * 1024 * 1024 + 1)}


@asynccontextmanager
async def parking(
    endpoint: Endpoint, shape: TableShape, *, most: int = 9
) -> AsyncIterator[tuple[ParkingTarget, ParkedRows]]:
    """Give a process that becomes the source."""
    parked = ParkedRows(endpoint, shape.name)
    async with TableTarget(endpoint, shape.name, lease_s=2.0) as target:
        await parked.begin_term(target.term)
        await parked.load()
        progress = Progress()
        made = ParkingTarget(target, parked, progress, most=most, written=progress.count_changes)
        await made.ensure_table(shape)
        yield made, parked


class Copying:
    """A source with given rows."""

    def __init__(self, now: SourceRow) -> None:
        self.now = now
        self.runs = True

    async def copy_again(
        self, table: str, key: Sequence[Scalar], write: Callable[[SourceRow], Awaitable[None]]
    ) -> None:
        """See ``CopiesRows``."""
        if not self.runs:
            raise Unavailable("It does not run.")
        if (table, *key) != (self.now.table, *(value for _, value in self.now.key)):
            raise invalid("It is not followed.")
        await write(self.now)


class Stalling(ParkedRows):
    """The entries of a process that pauses just before it parks a row."""

    def __init__(self, endpoint: Endpoint, connector: str) -> None:
        super().__init__(endpoint, connector)
        self.stalls = asyncio.Event()
        self.goes_on = asyncio.Event()

    async def park(
        self, refused: Sequence[Refused], shard_id: str, *, most: int, position: str = ""
    ) -> None:
        self.stalls.set()
        await self.goes_on.wait()
        await super().park(refused, shard_id, most=most, position=position)


async def want_all(parked: ParkedRows, what: str) -> None:
    for entry in await parked.all():
        await parked.want(entry, what)


async def test_a_refused_row_holds_up_its_key_alone(endpoint: Endpoint, shape: TableShape) -> None:
    rows = [
        row(shape, "a", {"n": 1}, 1),
        row(shape, "bad", WIDE, 2),
        row(shape, "b", {"n": 2}, 3),
        row(shape, "worse", WIDE, 4),
        row(shape, "bad", {"n": 3}, 5),
        row(shape, "c", {"n": 4}, 6),
    ]
    async with parking(endpoint, shape) as (target, parked):
        await target.write(rows)
        await target.write([row(shape, "bad", {"n": 5}, 7)])
        assert sorted(await read_cells(endpoint, shape)) == ["a", "b", "c"]
        assert sorted(entry.later for entry in await parked.all()) == [0, 2]
    async with parking(endpoint, shape) as (target, parked):
        # A restart from earlier repeats what is parked, and gives new rows only after it.
        await target.write(rows)
        assert sorted(await read_cells(endpoint, shape)) == ["a", "b", "c"]
        assert sorted(entry.later for entry in await parked.all()) == [0, 3]


async def test_a_row_that_is_tried_again_is_copied_and_what_follows_flows(
    endpoint: Endpoint, shape: TableShape
) -> None:
    async with parking(endpoint, shape) as (target, parked):
        await target.write([row(shape, "bad", WIDE, 1), row(shape, "a", {"n": 1}, 2)])
        source = Copying(row(shape, "bad", WIDE, 3))
        await want_all(parked, RETRY)
        await target.retry_or_skip(source)
        [entry] = await parked.all()
        assert (entry.wanted, entry.position) == ("", source.now.position.hex())
        source.now = row(shape, "bad", {"n": 4}, 4)
        await target.retry_or_skip(source)
        assert await parked.all() == [entry], "nobody asked"
        await want_all(parked, RETRY)
        source.runs = False
        with pytest.raises(Unavailable):
            await target.retry_or_skip(source)
        assert await parked.all() == [entry._replace(wanted=RETRY)], "it is tried later"
        source.runs = True
        await target.retry_or_skip(source)
        assert await parked.all() == []
        await target.write([row(shape, "bad", {"m": 5}, 5, whole=False)])
    found = await read_cells(endpoint, shape)
    assert [(name, value) for name, value, _ in found["bad"]] == [("m", 5), ("n", 4)]


async def test_a_skip_loses_nothing_that_waits(endpoint: Endpoint, shape: TableShape) -> None:
    async with parking(endpoint, shape) as (target, parked):
        await target.write([row(shape, "bad", WIDE, 1)])
        await target.write([row(shape, "bad", {"n": 2}, 2)])
        await want_all(parked, SKIP)
        await target.retry_or_skip(Copying(row(shape, "other", {"n": 9}, 3)))
        [entry] = await parked.all()
        # What waited is copied with the table, should that ever be followed again.
        assert (entry.reason, entry.later) == ("It is not followed.", 0)
        await target.write([row(shape, "bad", {"n": 3}, 4)])
        await want_all(parked, SKIP)
        await target.retry_or_skip(Copying(row(shape, "bad", WIDE, 5)))
        [entry] = await parked.all()
        assert entry.later == 0
        await want_all(parked, SKIP)
        await target.retry_or_skip(object())
        assert await parked.all() == []
    assert await read_cells(endpoint, shape) == {}


async def test_keys_that_no_table_can_have(endpoint: Endpoint, shape: TableShape) -> None:
    long, large = row(shape, "x" * 2000, {"n": 1}, 1), row(shape, "large", {"n": 1}, 2)
    large = large._replace(key=(("name", "large"), ("id", 2**63)))
    text = row(shape, "text", {"n": 1}, 3)._replace(key=(("name", "text"), ("id", "9")))
    async with parking(endpoint, shape) as (target, parked):
        await target.write([long, large, text, row(shape, "a", {"n": 1}, 4)])
        await target.write([row(shape, "b", {"n": 1}, 5)])
        assert len(await parked.all()) == 3
        await want_all(parked, RETRY)
        await target.retry_or_skip(Copying(long))
        assert [entry.wanted for entry in await parked.all()] == ["", "", ""]
        # What comes behind one can't be copied either: it takes a second word to skip it.
        await target.write([long._replace(position=row(shape, "x", {}, 6).position)])
        assert sorted(entry.later for entry in await parked.all()) == [0, 0, 1]
        await want_all(parked, SKIP)
        await target.retry_or_skip(Copying(long))
        assert len(await parked.all()) == 1
        await want_all(parked, SKIP)
        await target.retry_or_skip(Copying(long))
        assert await parked.all() == []
    assert sorted(await read_cells(endpoint, shape)) == ["a", "b"]


async def test_too_many_and_what_is_not_about_the_row_end_the_source(
    client: ProtocolClient, endpoint: Endpoint, shape: TableShape
) -> None:
    bad = [row(shape, f"bad{n}", WIDE, n) for n in range(1, 4)]
    async with parking(endpoint, shape, most=2) as (target, parked):
        with pytest.raises(TooManyParked, match="parked_max is 2"):
            await target.write(bad)
        assert len(await parked.all()) == 2
        client.delete_table(shape.name)
        with pytest.raises(RowRefused, match="does not exist"):
            await target.write([row(shape, "a", {"n": 1}, 9)])
        assert len(await parked.all()) == 2
        await target.ensure_table(shape)


async def test_what_a_process_parks_late_that_is_the_source_no_more_is_refused(
    endpoint: Endpoint, shape: TableShape
) -> None:
    """It was paused for longer than its lease, and its successor has resolved the row."""
    bad = row(shape, "bad", WIDE, 1)
    async with TableTarget(endpoint, shape.name, lease_s=60.0) as target:
        late = Stalling(endpoint, shape.name)
        await late.begin_term(target.term)
        former = ParkingTarget(target, late, Progress(), most=9, written=lambda rows: None)
        await former.ensure_table(shape)

        async def writes() -> None:
            with pytest.raises(Rejected, match="Another process is responsible"):
                await former.write([bad])

        async with asyncio.TaskGroup() as tasks:
            writing = tasks.create_task(writes())
            await late.stalls.wait()
            await target._lease.release()  # As good as if it had ended.
            async with parking(endpoint, shape) as (successor, parked):
                await successor.write([bad])
                await want_all(parked, RETRY)
                await successor.retry_or_skip(Copying(row(shape, "bad", {"n": 2}, 2)))
                late.goes_on.set()
                await writing
                assert await parked.all() == []
    with pytest.raises(Rejected, match="Another process is the source"):
        await late.begin_term(target.term)
