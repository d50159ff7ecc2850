"""A stream's beginning is reported correctly while expired parts of its log are trimmed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rowtide.core.shard.shard_state import options_body
from rowtide.core.values.schema import StreamSettings
from rowtide.stream.shard.log_readers import LogReaders
from rowtide.stream.shard.stream_reader import find_stamp, horizon
from tests.contract.memory_log import MemoryLog
from tests.core.shard_model import NOW_US, table
from tests.stream.test_owned_transactions import Owned, running

HOUR_US = 3600 * 1_000_000
STREAM = StreamSettings("t_1", NOW_US - HOUR_US, 1)


class OvertakenLog(MemoryLog):
    """A log that its owner trims up to ``due`` right after a read of its bounds."""

    due = 0

    async def bounds(self) -> tuple[int, int]:
        bounds = await super().bounds()
        due, self.due = self.due, 0
        await self.trim(due)
        return bounds


async def write_rows(owned: Owned) -> list[int]:
    """Write some rows into a stream; return their stamps. None is in memory for readers."""
    await owned.owner.submit_hidden(options_body(replace(table(), stream=STREAM)))
    stamps: list[int] = []
    for number in range(6):
        assert await owned.write(f"P a={number}") == "ok"
        stamps.append(owned.owner.shard.state.stamp)
    owned.owner.fold.readers = LogReaders()
    return stamps


async def test_a_stream_whose_log_is_trimmed_meanwhile_begins_where_it_has_not_expired(
    tmp_path: Path,
) -> None:
    log = OvertakenLog()
    async with running(tmp_path, log) as owned:
        stamps = await write_rows(owned)
        log.due = 4
        now_us = stamps[3] + STREAM.expiration_hours * HOUR_US
        assert await horizon(owned.owner, STREAM, now_us) == 4


async def test_a_time_is_found_in_a_log_that_was_trimmed_meanwhile(tmp_path: Path) -> None:
    log = MemoryLog()
    async with running(tmp_path, log) as owned:
        stamps = await write_rows(owned)
        await log.trim(5)
        assert await find_stamp(owned.owner, stamps[5], 0) == 6
        assert await find_stamp(owned.owner, stamps[0], 0) == 5
