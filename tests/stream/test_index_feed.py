"""An index that has just been made finds where its table's log begins, though that is trimmed."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from rowtide.core.errors import Elsewhere, Unavailable
from rowtide.core.limits import Limits
from rowtide.core.record import SINGLE, Envelope, NoOp, encode_body, encode_record
from rowtide.core.schema import GLOBAL, Index, ShardRange
from rowtide.stream.operations.index import IndexOperations
from rowtide.stream.shards.index_feed import IndexFeeder
from rowtide.stream.shards.owner import ShardOwner
from tests.contract.memory_log import MemoryLog
from tests.core.shard_model import NOW_US, table
from tests.stream.test_owned_transactions import running

SOURCE = ShardRange("s9", 1)


class TrimmedLog(MemoryLog):
    """A log that its owner trims right after somebody has asked for its bounds, once."""

    async def bounds(self) -> tuple[int, int]:
        bounds = await super().bounds()
        if bounds[0] == 0:
            await self.trim(2)
        return bounds


def logged(at: int) -> tuple[bytes, bytes]:
    """Return a record of the table's log that has nothing for the index."""
    envelope = Envelope(at, 1, b"ownerid9", NOW_US + at, SINGLE)
    return b"", encode_record(envelope, encode_body(NoOp()))


def elsewhere(_shard_id: str) -> ShardOwner:
    raise Elsewhere(1)


async def test_a_log_that_is_trimmed_meanwhile_is_read_from_its_new_beginning(
    tmp_path: Path,
) -> None:
    log = TrimmedLog()
    await log.append([logged(at) for at in range(4)], deadline_s=1.0)
    async with running(tmp_path) as owned:
        noted = asyncio.Event()
        owned.owner.followers.add(noted)
        feeder = IndexFeeder(owned.owner, lambda: [SOURCE], elsewhere, lambda _shard_id: log)
        async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
            run = tasks.create_task(feeder.run())
            await noted.wait()
            run.cancel()
        assert feeder.followed()["s9"].noted == 4


async def test_an_index_follows_a_log_that_was_trimmed_above_where_it_was_to_begin(
    tmp_path: Path,
) -> None:
    """The trim had been decided before there was an index, and was done after."""
    log = MemoryLog()
    await log.append([logged(at) for at in range(4)], deadline_s=1.0)
    async with running(tmp_path) as owned:
        feeder = IndexFeeder(owned.owner, lambda: [SOURCE], elsewhere, lambda _shard_id: log)
        await feeder.begin("s9", 1)
        await log.trim(2)
        async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
            run = tasks.create_task(feeder.run())
            while feeder.followed()["s9"].following < 4:  # noqa: ASYNC110
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
