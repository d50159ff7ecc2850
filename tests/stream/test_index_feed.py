"""An index that has just been made finds where its table's log begins, though that is trimmed."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rowtide.core.records.record import (
    SINGLE,
    Body,
    Envelope,
    IndexBuild,
    NoOp,
    encode_body,
    encode_record,
)
from rowtide.core.values.errors import Elsewhere, LogTrimmed, Unavailable
from rowtide.core.values.limits import Limits
from rowtide.core.values.schema import GLOBAL, Index, ShardRange
from rowtide.stream.api.index import IndexOperations, State
from rowtide.stream.log.log import Entry
from rowtide.stream.shard import index_feed
from rowtide.stream.shard.index_feed import IndexFeeder, IndexProgress
from rowtide.stream.shard.owner import ShardOwner
from tests.contract.memory_log import MemoryLog
from tests.core.shard_model import NOW_US, table
from tests.stream.test_owned_transactions import running
from tests.support.waiting import SOON_S

SOURCE = ShardRange("s9", 1)


class TrimmedLog(MemoryLog):
    """A log that its owner trims once, right after a read of its bounds."""

    async def bounds(self) -> tuple[int, int]:
        bounds = await super().bounds()
        if bounds[0] == 0:
            await self.trim(2)
        return bounds


def make_record(at: int, body: Body | None = None) -> tuple[bytes, bytes]:
    """Return a record of the table's log that has nothing for the index, or the one given."""
    envelope = Envelope(at, 1, b"ownerid9", NOW_US + at, SINGLE)
    return b"", encode_record(envelope, encode_body(body or NoOp()))


ABOUT = IndexBuild(table().table_id, None, ())
"""That the table has gone through its rows for the index, which had nothing to learn of them."""


def elsewhere(_shard_id: str) -> ShardOwner:
    raise Elsewhere(1)


async def test_a_log_that_is_trimmed_meanwhile_is_read_from_its_new_beginning(
    tmp_path: Path,
) -> None:
    log = TrimmedLog()
    await log.append([make_record(at) for at in range(4)], deadline_s=1.0)
    async with running(tmp_path) as owned:
        noted = asyncio.Event()
        owned.owner.readers.follow(noted)
        feeder = IndexFeeder(owned.owner, lambda: [SOURCE], elsewhere, lambda _shard_id: log)
        async with asyncio.timeout(SOON_S), asyncio.TaskGroup() as tasks:
            run = tasks.create_task(feeder.run())
            await noted.wait()
            run.cancel()
        assert feeder.find_progress()["s9"].noted == 4


async def test_an_index_follows_a_log_that_was_trimmed_above_where_it_was_to_begin(
    tmp_path: Path,
) -> None:
    """The trim had been decided before there was an index, and was done after."""
    log = MemoryLog()
    await log.append([make_record(at) for at in range(4)], deadline_s=1.0)
    async with running(tmp_path) as owned:
        feeder = IndexFeeder(owned.owner, lambda: [SOURCE], elsewhere, lambda _shard_id: log)
        await feeder.begin("s9", 1)
        await log.trim(2)
        async with asyncio.timeout(SOON_S), asyncio.TaskGroup() as tasks:
            run = tasks.create_task(feeder.run())
            while feeder.find_progress()["s9"].following < 4:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            run.cancel()


async def test_an_index_follows_a_log_that_was_trimmed_above_what_it_has_read_in_vain(
    tmp_path: Path,
) -> None:
    """The trim had been decided before there was an index, and was done as it was followed."""
    log = MemoryLog()
    await log.append([make_record(0)], deadline_s=1.0)
    async with running(tmp_path) as owned:
        for end, trimmed in ((1, 0), (4, 3)):
            await log.trim(trimmed)
            feeder = IndexFeeder(owned.owner, lambda: [SOURCE], elsewhere, lambda _shard_id: log)
            async with asyncio.timeout(SOON_S), asyncio.TaskGroup() as tasks:
                run = tasks.create_task(feeder.run())
                await wait_until_followed(feeder, "s9", end)
                run.cancel()
            await log.append(
                [make_record(at) for at in range(end, 4)] or [make_record(4)], deadline_s=1.0
            )


@pytest.mark.parametrize("body", [ABOUT, NoOp()], ids=["learned", "nothing for it yet"])
async def test_an_index_that_lost_a_log_says_why_and_goes_on_with_others_and_once_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, body: Body
) -> None:
    """A broker lost entries of the log; a deposed one that reported this may be gone later."""
    monkeypatch.setattr(index_feed, "STUCK_S", 0.01)
    monkeypatch.setattr(index_feed, "IDLE_S", 0.001)
    lost, other = LostLog(), MemoryLog()
    for log in (lost, other):
        entries = [make_record(0), make_record(1, body), make_record(2), make_record(3)]
        await log.append(entries, deadline_s=1.0)
    logs = {"s9": lost, "s10": other}
    async with running(tmp_path) as owned:
        sources = [SOURCE, ShardRange("s10", 1)]
        feeder = IndexFeeder(owned.owner, lambda: sources, elsewhere, logs.__getitem__)
        async with asyncio.timeout(SOON_S), asyncio.TaskGroup() as tasks:
            run = tasks.create_task(feeder.run())
            await wait_until_followed(feeder, "s9", 4)
            lost.is_lost = True
            for log in (lost, other):
                await log.append([make_record(4)], deadline_s=1.0)
            await wait_until_followed(feeder, "s10", 5)
            while lost.refused < 3:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            progress = feeder.find_progress()
            assert (progress["s9"].following, progress["s9"].failed) == (4, "the log is trimmed")
            assert progress["s10"].failed == ""
            lost.is_lost = False
            await wait_until_followed(feeder, "s9", 5)
            assert feeder.find_progress()["s9"].failed == ""
            run.cancel()
    assert len([r for r in caplog.records if r.levelname == "CRITICAL"]) == 1


def test_operators_are_told_why_an_index_stands_still() -> None:
    index = Index("i", 2, GLOBAL, ("b",), (), 0, shards=(ShardRange("s10", 0),))
    state = State(
        {"s9": (5, 100)}, {}, {"s10": {"s9": IndexProgress(4, 90, 4, "the log is trimmed")}}
    )
    [lag] = state.lags(replace(table(), shards=(SOURCE,)), index)
    assert lag is not None
    assert (lag["behind"], lag["failed"]) == (1, "the log is trimmed")


async def test_a_feeder_that_ends_leaves_nothing_at_the_shards_that_it_followed(
    tmp_path: Path,
) -> None:
    """They outlive it: an index is dropped, and the slot of an index is opened again."""
    async with running(tmp_path / "index") as owned, running(tmp_path / "table") as source:
        assert await source.write("P a=1") == "ok"
        feeder = IndexFeeder(
            owned.owner,
            lambda: [SOURCE],
            lambda _shard_id: source.owner,
            lambda _shard_id: source.log,
        )
        async with asyncio.timeout(SOON_S), asyncio.TaskGroup() as tasks:
            run = tasks.create_task(feeder.run())
            await wait_until_followed(feeder, "s9", 1)
            assert source.owner.readers.has_followers
            run.cancel()
        assert not source.owner.readers.has_followers


class LostLog(MemoryLog):
    """A log that lacks, while it ``is_lost``, the entries after its beginning."""

    is_lost = False
    refused = 0

    async def read(self, offset: int, *, bytes_max: int, wait_s: float = 0.0) -> list[Entry]:
        if self.is_lost:
            self.refused += 1
            raise LogTrimmed("the log is trimmed")
        return await super().read(offset, bytes_max=bytes_max, wait_s=wait_s)


async def wait_until_followed(feeder: IndexFeeder, source: str, offset: int) -> None:
    """Return once a log was followed up to an offset."""
    while feeder.find_progress()[source].following < offset:  # noqa: ASYNC110
        await asyncio.sleep(0.001)


async def test_an_end_that_was_read_before_the_catalog_told_of_it_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read of a log is noted now and then, and its end always: else it is kept for us."""
    monkeypatch.setattr(index_feed, "IDLE_S", 0.001)
    log = MemoryLog()
    await log.append([make_record(at) for at in range(2)], deadline_s=1.0)
    sources = [SOURCE]
    async with running(tmp_path) as owned:
        feeder = IndexFeeder(owned.owner, lambda: sources, elsewhere, lambda _shard_id: log)
        async with asyncio.timeout(SOON_S), asyncio.TaskGroup() as tasks:
            run = tasks.create_task(feeder.run())
            await wait_until_followed(feeder, "s9", 2)
            await log.append([make_record(at) for at in range(2, 4)], deadline_s=1.0)
            await wait_until_followed(feeder, "s9", 4)
            sources[:] = [replace(SOURCE, sealed_at=3, sealed_us=NOW_US + 3)]
            while feeder.find_progress()["s9"].noted < 4:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            run.cancel()


async def test_a_log_that_has_ended_is_kept_for_an_index_that_is_made_after() -> None:
    before = table()
    index = Index("i", 2, GLOBAL, ("b",), (), 0, shards=(ShardRange("s10", 0),))
    catalog = SimpleNamespace(tables_by_id={before.table_id: replace(before, indexes=(index,))})

    async def others(_operation: str, _body: bytes) -> list[bytes]:
        return []

    def shut(_number: int) -> None:
        raise Unavailable

    around: Any = SimpleNamespace(
        catalog=catalog, limits=Limits(), others=others, slot=shut, shard=shut
    )
    operations = IndexOperations(around, around, around, around, around, around)
    ended: Any = SimpleNamespace(shard=SimpleNamespace(table=before, shard_id="s9"))
    assert await operations.pin(ended) == 0


async def test_an_index_passes_over_a_log_that_ended_and_was_trimmed_whole_before_it(
    tmp_path: Path,
) -> None:
    log = MemoryLog()
    await log.append([make_record(at) for at in range(4)], deadline_s=1.0)
    await log.trim(4)
    ended = replace(SOURCE, sealed_at=3, sealed_us=NOW_US + 3)
    child = ShardRange("s10", 1, parents=("s9",))
    logs = {"s9": log, "s10": MemoryLog()}
    await logs["s10"].append([make_record(at) for at in range(2)], deadline_s=1.0)
    async with running(tmp_path) as owned:
        feeder = IndexFeeder(owned.owner, lambda: [ended, child], elsewhere, logs.__getitem__)
        async with asyncio.timeout(SOON_S), asyncio.TaskGroup() as tasks:
            run = tasks.create_task(feeder.run())
            await wait_until_followed(feeder, "s10", 2)
            run.cancel()
        assert feeder.find_progress()["s9"].noted == 4
