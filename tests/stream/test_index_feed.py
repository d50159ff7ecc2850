"""An index that has just been made finds where its table's log begins, though that is trimmed."""

from __future__ import annotations

import asyncio
from pathlib import Path

from rowtide.core.errors import Elsewhere
from rowtide.core.record import SINGLE, Envelope, NoOp, encode_body, encode_record
from rowtide.core.schema import ShardRange
from rowtide.stream.index_feed import IndexFeeder
from rowtide.stream.memory_log import MemoryLog
from rowtide.stream.shard_owner import ShardOwner
from tests.core.shard_model import NOW_US
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
