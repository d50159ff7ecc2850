"""A real table, a copy by a consumer, writers and splits: every difference is found, and
no other.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping

import pytest

from rowtide.cli.client import ProtocolClient
from rowtide.client.changes.api import ApiSource
from rowtide.client.changes.leases import TableLeases
from rowtide.client.changes.worker import ChangeWorker, FollowerSettings
from rowtide.client.endpoint import Endpoint
from rowtide.connectors.sinks.sink import HeldRow
from rowtide.connectors.verify.comparison import compare
from rowtide.connectors.verify.table_pages import TablePages
from rowtide.connectors.verify.table_rows import TableSide
from rowtide.core.values import key as key_order
from rowtide.core.values import variant
from rowtide.core.values.errors import Unavailable
from rowtide.core.values.variant import Scalar
from tests.changes.conftest import admin, client, endpoint, make_table, server, table
from tests.changes.test_readers_together import SEED
from tests.changes.test_snapshot import Copy, Rewritten

__all__ = ["admin", "client", "endpoint", "make_table", "server", "table"]

pytestmark = pytest.mark.system


class Target:
    """A copy that can be read back."""

    def __init__(self, copy: Copy) -> None:
        self.copy = copy

    def convert_columns(self, columns: Mapping[str, Scalar]) -> Mapping[str, Scalar]:
        """Return the columns: the copy converts nothing."""
        return columns

    async def read_rows(self, begin: bytes, end: bytes, *, limit: int) -> list[HeldRow]:
        """Return rows, see ``Comparable.read_rows``."""
        found = []
        for values, (stamp, columns) in self.copy.held.items():
            encoded = key_order.encode(variant.encode(value) for value in values)
            if columns is not None and encoded >= begin and (not end or encoded < end):
                found.append(HeldRow(encoded, stamp, columns))
        return sorted(found)[:limit]


async def writing(world: Rewritten, steps: int) -> None:
    """Write, split, merge and move for a while."""
    for _ in range(steps):
        await world.step(writes=4)


async def test_a_copy_is_equal_while_its_table_changes_and_a_spoilt_one_is_not(
    admin: ProtocolClient, endpoint: Endpoint, table: str
) -> None:
    world = Rewritten(admin, table, random.Random(SEED))
    await world.fill()
    copy = Copy()
    leases = TableLeases(endpoint, f"verified-{table}")
    settings = FollowerSettings(lease_s=2.0, checkpoint_s=0)
    worker = ChangeWorker(
        ApiSource(endpoint, table), leases, copy.take, begin="rows", settings=settings
    )
    pages = TablePages(ApiSource(endpoint, table), TableLeases(endpoint, leases.consumer))
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(worker.run(), name="copying")
        await pages.open()
        tasks.create_task(writing(world, steps=15), name="writing")
        verdict = await compare(pages, Target(copy))
        assert verdict.differences == [], f"ROWTIDE_CHANGES_SEED={SEED}"
        spoilt = next(k for k, (_, row) in copy.held.items() if row is not None)
        copy.held[spoilt] = copy.held[spoilt][0], {"n": -1}
        encoded = key_order.encode(map(variant.encode, spoilt))
        verdict = await compare(pages, Target(copy))
        # It may have been written again since, and so be right again.
        if copy.held[spoilt][1] == {"n": -1}:
            assert [d.key_bytes for d in verdict.differences] == [encoded], (
                f"ROWTIDE_CHANGES_SEED={SEED}"
            )
        worker.stop()


async def test_a_consumer_that_does_not_come_is_told(endpoint: Endpoint, table: str) -> None:
    pages = TablePages(ApiSource(endpoint, table), TableLeases(endpoint, "nobody"), wait_s=0)
    with pytest.raises(Unavailable, match="Consumer nobody has not caught up"):
        await pages.open()


async def test_a_table_is_read_whole_and_by_keys(
    admin: ProtocolClient, endpoint: Endpoint, table: str
) -> None:
    world = Rewritten(admin, table, random.Random(SEED))
    await world.fill()
    await world.write(20)
    side = TableSide(ApiSource(endpoint, table))
    expected = {
        key_order.encode(map(variant.encode, values)): columns
        for values, columns in (await world.rows()).items()
    }
    assert {k: columns async for k, columns in side.rows()} == expected
    some = sorted(expected)[::3]
    absent = key_order.encode([variant.encode("nobody"), variant.encode(1)])
    assert await side.look_up([*some, absent]) == {k: expected[k] for k in some}
