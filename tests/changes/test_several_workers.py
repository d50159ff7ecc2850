"""A copy made of rows and changes of shards that several workers have, one of which is killed."""

from __future__ import annotations

import asyncio
import random
from functools import partial

import pytest

from rowtide.cli.client import ProtocolClient
from rowtide.client.changes.api import ApiSource
from rowtide.client.endpoint import Endpoint
from rowtide.client.wire_row import Put
from tests.api.calls import key
from tests.api.conftest import KEY
from tests.changes.conftest import STREAM
from tests.changes.test_current_rows import encode_key
from tests.changes.test_snapshot import Copy, Rewritten, copiers, wait_until_same
from tests.workers.conftest import SLOTS, Workers, repeat, workers

__all__ = ["workers"]

pytestmark = pytest.mark.system

SHORT_LEASE = ("--lease-ms", "1500")
PATIENCE_S = 30.0
"""A worker that is busy for longer than its lease gives its shards away."""
TABLE = "spread"


async def spread(world: Rewritten) -> None:
    """Split the table, and put its shards into as many slots."""
    for at in ("b", "d", "f"):
        await world.reshape("RowtideSplitShard", {"shard": (await world.living())[-1], "at": at})
    for slot, shard in enumerate(await world.living()):
        fields = {"shard": shard, "slot": SLOTS - 1 - slot}
        await world.reshape("RowtideMoveShard", fields)


def put_again(client: ProtocolClient) -> None:
    for letter in "abcdefgh":
        at = key(f"{letter}0", 100)
        repeat(partial(client.put_row, TABLE, at, [Put("n", -1)]))


async def test_rows_and_changes_of_all_workers_make_the_table(workers: Workers) -> None:
    for _ in range(2):
        await asyncio.to_thread(workers.start, *SHORT_LEASE)
    await asyncio.to_thread(workers.wait_until_divided)
    staying = workers.clients[1]
    await asyncio.to_thread(staying.create_table, TABLE, KEY, stream=STREAM)
    world = Rewritten(staying, TABLE, random.Random(1))
    await world.fill()
    await spread(world)
    copy = Copy()
    async with Endpoint(**workers.ready(1)) as endpoint, asyncio.TaskGroup() as tasks:
        readers = copiers(tasks, lambda: ApiSource(endpoint, TABLE), endpoint, copy)
        readers.start()
        await world.write(20)
        await wait_until_same(readers, copy, world)
        await asyncio.to_thread(put_again, staying)
        keys = [encode_key(f"{letter}0", 100) for letter in "abcdefgh"]
        async with Endpoint(**workers.ready(1), patience_s=PATIENCE_S) as patient:
            found = await ApiSource(patient, TABLE).current(keys)
        assert [row.cells is not None for row in found.values()] == [True] * len(keys)
        await asyncio.to_thread(workers.running[0].kill)
        await asyncio.to_thread(put_again, staying)
        await wait_until_same(readers, copy, world)
        await readers.stop_all()
    assert copy.covered
