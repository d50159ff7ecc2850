"""A shard that gets a write of keys that it does not have: the caller knows other shards."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from rowtide.core.records import record
from rowtide.core.shard.source_batch import SourceBatch
from rowtide.core.values import key, variant
from rowtide.core.values.schema import ShardRange
from tests.core.shard_model import change, table
from tests.stream.test_owned_transactions import P, Q, running

LEFT = ShardRange("s1", 1, b"", key.encode([variant.encode("q")]))
"""It holds p, and neither q nor r."""

RIGHT = ShardRange("s2", 1, LEFT.end, b"")
HALF = replace(table(), shards=(LEFT, RIGHT))


async def test_a_key_of_another_shard_is_refused_and_may_be_tried_again(tmp_path: Path) -> None:
    async with running(tmp_path, of=HALF) as owned:
        assert await owned.write("P a=1") == "ok"
        for partition in ("q", "r"):
            assert await owned.write("P a=2", partition) == "OTSPartitionUnavailable"
            assert await owned.write("D a", partition) == "OTSPartitionUnavailable"
        assert owned.rows == "a=1"
        assert (await owned.log.bounds())[1] == 1, "the row"
        assert await owned.write("P a=3") == "ok", "it serves on"


async def test_within_a_transaction_and_an_atomic_batch_too(tmp_path: Path) -> None:
    async with running(tmp_path, of=HALF) as owned:
        assert await owned.begin(1, Q) == "ok"
        assert owned.apply(1, "P a=1", "q") == "OTSPartitionUnavailable"
        assert await owned.begin(2, P) == "ok"
        assert owned.apply(2, "P a=1") == "ok"
        assert await owned.commit(2) == "ok"
        assert await owned.batch("P b=1", "P c=1") == "ok"
        assert owned.rows == "a=1 b=1 c=1"


async def test_of_a_sources_rows_none_is_written(tmp_path: Path) -> None:
    async with running(tmp_path, of=HALF) as owned:

        async def give(*partitions: str) -> str:
            changes = [change("P a=1", partition) for partition in partitions]
            positions = [number.to_bytes(2, "big") for number in range(1, len(changes) + 1)]
            batch = SourceBatch("m", changes, positions)
            return await owned.ask(lambda tell: owned.owner.submit_group(batch, tell))

        assert await give("o", "p", "q") == "OTSPartitionUnavailable"
        assert owned.rows == "-"
        assert await give("o", "p") == "ok", "the position has passed nothing"
        assert owned.rows == "a=1"


async def test_behind_what_is_under_way_too(tmp_path: Path) -> None:
    """It is evaluated when its turn comes: behind a hidden record, by the task that appends."""
    async with running(tmp_path, of=HALF) as owned:
        hidden = owned.owner.submit_hidden(record.NoOp())
        async with asyncio.TaskGroup() as tasks:
            other, own = [tasks.create_task(owned.write("P a=1", name)) for name in ("r", "p")]
        assert hidden.done()
        assert (other.result(), own.result()) == ("OTSPartitionUnavailable", "ok")
