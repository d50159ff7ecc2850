"""What a slot remembers of shards that are out of line, once they are open here no more."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from rowtide.core.shard.reshape import Sealed
from rowtide.stream.slot.opening.settling import ShardSettling
from rowtide.stream.slot.opening.slot_shards import SlotShards
from tests.stream.test_owned_transactions import running


async def test_a_shard_that_closed_before_the_rows_of_a_dropped_index_went_is_forgotten(
    tmp_path: Path,
) -> None:
    """The next owner has them swept: a reference to the former owner would be kept for ever."""

    async def seal(*_of: Any) -> Sealed:
        raise AssertionError("nothing is open")

    async with running(tmp_path) as owned, asyncio.TaskGroup() as tasks:
        dropped = {owned.owner}
        settling = ShardSettling(
            SlotShards(),
            is_gone=lambda _: False,
            seal=seal,
            dropped=dropped,
            request_sweep=lambda: None,
        )
        settling.begin(tasks, [])
        assert not dropped
