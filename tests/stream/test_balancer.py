"""What the balancer meets while it measures a shard ends no worker: it is one of its tasks."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

import pytest

from rowtide.core.cluster.balance import BalanceSettings
from rowtide.core.cluster.catalog import TABLE, Document, table_content, table_id
from rowtide.core.values.schema import ShardRange
from rowtide.stream.api.reshape import ReshapeOperations
from rowtide.stream.api.split_point import SplitPointOperations
from rowtide.stream.cluster.catalog_owner import CatalogOwner
from rowtide.stream.shard.row_store import StoreDamaged
from rowtide.stream.worker import balancer as module
from rowtide.stream.worker.balancer import Balancer
from tests.contract.memory_log import MemoryLog
from tests.core.shard_model import table
from tests.support.waiting import SOON_S

SHARD = ShardRange("s1", 0)
LARGE = 1 << 33


class Unreadable:
    """Rows of which a part can't be read."""

    def __init__(self) -> None:
        self.met = asyncio.Event()

    def files(self) -> list[Any]:
        return []

    def scan(self, _low: bytes, _high: bytes) -> Any:
        self.met.set()
        raise StoreDamaged("rows/0: not every entry can be read")


async def balancer_of(rows: Unreadable) -> Balancer:
    """Return the balancer of a cluster of one worker and one shard, whose rows these are."""
    log = MemoryLog()
    catalog = CatalogOwner(log, log.twin(), owner=b"ownerid1", clock_us=lambda: 1)
    await catalog.open(1)
    known = replace(table(), shards=(SHARD,))
    await catalog.change(lambda _c, _s: [Document(TABLE, table_id(known), table_content(known))])
    owner = SimpleNamespace(
        shard=SimpleNamespace(table=known), rows=rows, end=7, require_readable=lambda: None
    )
    slot = SimpleNamespace(rows=rows, shards={SHARD.shard_id: owner})
    directory: Any = SimpleNamespace(
        slots=lambda: [slot],
        shard=lambda _shard: owner,
        require_space=lambda: None,
        catalog=catalog.catalog,
        limits=None,
    )

    async def nobody(*_asked: object) -> list[bytes]:
        return []

    around, forward = cast(Any, SimpleNamespace(others=nobody)), cast(Any, nobody)
    splits = SplitPointOperations(directory, forward)
    reshapes = ReshapeOperations(directory, catalog, around, around, splits, forward)
    settings = BalanceSettings(split_bytes=1)
    owners = {0: "a:1"}
    return Balancer(directory, catalog, around, reshapes, forward, lambda: owners, settings)


async def test_rows_that_cannot_be_read_end_no_balancer(caplog: pytest.LogCaptureFixture) -> None:
    """A shard that was to be split could not be measured, and the process ended."""
    rows = Unreadable()
    balancer = await balancer_of(rows)
    with (
        patch.object(module, "LOOK_S", 0.0),
        patch.object(module, "bytes_between", lambda *_: LARGE),
    ):
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(balancer.run(), name="balancer")
            async with asyncio.timeout(SOON_S):
                await rows.met.wait()
            for _ in range(20):
                await asyncio.sleep(0)
            assert not running.done()
            running.cancel()
    assert "split of s1 failed: rows/0: not every entry can be read" in caplog.text
