"""What a slot remembers of shards that are out of line, once they are open here no more."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

from rowtide.core.shard.reshape import Sealed
from rowtide.stream.shard.owner import ShardOwner
from rowtide.stream.slot.opening.opening_shards import OpeningShards
from rowtide.stream.slot.opening.settling import ShardSettling
from tests.stream.test_owned_transactions import running


async def test_a_shard_that_closed_before_the_rows_of_a_dropped_index_went_is_forgotten(
    tmp_path: Path,
) -> None:
    """Whoever opens it next has them swept: its owner of before would be held for ever."""

    async def seal(*_of: Any) -> Sealed:
        raise AssertionError("nothing is open")

    async with running(tmp_path) as owned, asyncio.TaskGroup() as tasks:
        dropped = {owned.owner}
        shards: dict[str, ShardOwner] = {}
        begun = cast(OpeningShards, {})
        settling = ShardSettling(shards, begun, lambda _: False, seal, dropped, lambda: None)
        settling.begin(tasks, [])
        assert not dropped
