"""An appender on a log that reports less than it had acknowledged."""

from __future__ import annotations

from unittest.mock import patch

import pytest

from rowtide.core.values.errors import Unavailable
from rowtide.stream.log.log import Entry
from rowtide.stream.shard import appender
from rowtide.stream.shard.appender import Appender, LogShortened, read_known
from tests.contract.memory_log import MemoryLog

BATCH = [(b"", b"one"), (b"", b"two"), (b"", b"three")]


class NewLeader(MemoryLog):
    """A log whose new leader knows its end, and returns no entry for a while."""

    silent = 0

    async def read(self, offset: int, *, bytes_max: int, wait_s: float = 0.0) -> list[Entry]:
        """Return entries from ``offset`` on, see ``Log.read``."""
        if self.silent:
            self.silent -= 1
            return []
        return await super().read(offset, bytes_max=bytes_max, wait_s=wait_s)


async def make_filled_log() -> NewLeader:
    log = NewLeader()
    await log.append(BATCH, deadline_s=1.0)
    return log


async def test_an_empty_answer_is_asked_about_again() -> None:
    log = await make_filled_log()
    log.silent = 2
    entries = await Appender(log, lambda _at: (b"", b"no-op")).read(0, 3)
    assert [(entry.key, entry.value) for entry in entries] == BATCH


async def test_a_log_is_short_where_it_says_so_itself() -> None:
    log = await make_filled_log()
    log.truncate(2)
    with pytest.raises(LogShortened, match="ends at 2, expected 3"):
        await read_known(log, 2, 3)


async def test_one_that_tells_nothing_for_long_is_not_short() -> None:
    log = await make_filled_log()
    log.silent = 100
    with (
        patch.object(appender, "PAGE_S", 0.0),
        pytest.raises(Unavailable, match="returns no entry"),
    ):
        await read_known(log, 2, 3)


@pytest.mark.parametrize("lost", [1, 2, 3])
async def test_a_batch_that_lands_where_entries_were_lost_is_told_as_that(lost: int) -> None:
    log = await make_filled_log()
    log.truncate(3 - lost)
    with pytest.raises(LogShortened, match="are lost"):
        await Appender(log, lambda _at: (b"", b"no-op")).append(BATCH, 3)
