"""A reader to which only changes are of use is never sent to the present rows instead.

The fan-out of timelines is one: of a message whose row was read in place of its change, no inbox
would ever know.
"""

from __future__ import annotations

import asyncio

from rowtide.client.changes.leases import MemoryLeases
from rowtide.client.changes.shard_follower import FollowerSettings
from rowtide.client.changes.start import rewind
from rowtide.client.changes.worker import Batch, ChangeWorker
from tests.changes.one_shard import OneShard
from tests.simulation.virtual_time import in_virtual_time

CHANGES = 20
SOON_S = 60.0


def test_it_reads_the_oldest_changes_at_first_and_when_rewound_to_rows() -> None:
    in_virtual_time(_begin_with_rows())


async def _begin_with_rows() -> None:
    source, leases = OneShard(CHANGES), MemoryLeases()
    came: list[int] = []
    once, twice = asyncio.Event(), asyncio.Event()

    async def handle(batch: Batch) -> None:
        assert batch.covers is None, "rows, which it skips"
        came.extend(change.sequence for change in batch)
        if came.count(CHANGES - 1):
            (once if came.count(CHANGES - 1) == 1 else twice).set()

    worker = ChangeWorker(
        source,
        leases,
        handle,
        begin="rows",
        settings=FollowerSettings(skips_rows=True),
        clock=asyncio.get_running_loop().time,
    )
    async with asyncio.timeout(SOON_S), asyncio.TaskGroup() as tasks:
        tasks.create_task(worker.run(), name="worker")
        await once.wait()
        await rewind(source, leases, "rows")  # By a user who does not know the reader.
        await twice.wait()
        worker.stop()
    assert came == 2 * list(range(CHANGES))
