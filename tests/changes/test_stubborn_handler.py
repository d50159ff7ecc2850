"""A handler that resists cancellation does not stop other readers."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from rowtide.client.changes.leases import MemoryLeases
from rowtide.client.changes.start import rewind
from rowtide.client.changes.worker import Batch, ChangeWorker
from tests.changes.one_shard import OneShard
from tests.simulation.virtual_time import in_virtual_time

CHANGES = 10**6
BEGUN_AGAIN_S_MAX = 30.0


def test_a_rewound_reader_goes_back_though_its_handler_swallows_the_cancellation() -> None:
    """It read on in the former epoch, renewed its lease there, and the rewind was never seen."""
    in_virtual_time(_rewound())


async def _rewound() -> None:
    source, leases = OneShard(CHANGES), MemoryLeases()
    first, again = asyncio.Event(), asyncio.Event()

    async def handle(batch: Batch) -> None:
        [change] = batch
        if change.sequence == 0:
            (again if first.is_set() else first).set()
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(0.3)

    clock = asyncio.get_running_loop().time
    worker = ChangeWorker(source, leases, handle, clock=clock)
    async with asyncio.timeout(BEGUN_AGAIN_S_MAX), asyncio.TaskGroup() as tasks:
        tasks.create_task(worker.run())
        await first.wait()
        await rewind(source, leases, "oldest")
        await again.wait()
        worker.stop()
