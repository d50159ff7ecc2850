"""Work in a worker's process that a test requests: done as far as possible."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from rowtide.core.protocol.authentication import Identity
from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.records import record
from rowtide.core.values.errors import StoreError
from rowtide.core.values.schema import Index
from rowtide.stream.api.index_requests import index_message
from rowtide.stream.log.changelog import Fenced
from rowtide.stream.shard.owner import ShardOwner
from rowtide.stream.shard.row_store import StoreFailed
from rowtide.stream.slot.slot import Slot
from tests.simulation.simulated_worker import SimulatedWorker
from tests.simulation.tables import ADMIN, PLAIN, tables

__all__ = [
    "create_index",
    "drop_index",
    "flush_slot",
    "log_options",
    "reclaim_slot",
    "standing_by",
    "trim_slot",
    "try_reshape",
]


async def standing_by(worker: SimulatedWorker, slots: frozenset[int]) -> None:
    """Keep copies of these slots."""
    worker.roster.stand_by(slots)


async def flush_slot(slot: Slot) -> None:
    """Flush a slot, if that takes no longer than a second."""
    with suppress(StoreError, Fenced, StoreFailed, TimeoutError):
        async with asyncio.timeout(1):
            await slot.flush()


async def reclaim_slot(slot: Slot, options: record.Options) -> None:
    """Keep versions by other options, and remove what is hidden of all rows."""
    with suppress(StoreError, StoreFailed, Fenced):
        for owner in list(slot.shards.values()):
            if options.time_to_live < 0 or owner.shard.table.name == PLAIN:
                await owner.submit_hidden(options)
                await slot.reclaimer.reclaim_now(owner)


async def trim_slot(slot: Slot) -> None:
    """Trim the logs of a slot, ended ones too."""
    with suppress(StoreError, StoreFailed):
        for owner in list(slot.shards.values()):
            if slot.shards.get(owner.shard.shard_id) is owner:
                await slot._upkeep.trim.trim(owner)
        for table, shard in slot._links.reshapes.list_ended(slot.number):
            await slot._upkeep.trim.trim_ended(table, shard, slot._reshapes.ended)


async def try_reshape(
    operation: Callable[[Identity, bytes], Awaitable[bytes]], asked: bytes
) -> None:
    """Split, merge or move, unless it is refused or a disk fails."""
    with suppress(StoreError, StoreFailed):
        await operation(ADMIN, asked)


async def create_index(worker: SimulatedWorker, index: Index) -> None:
    """Make an index of the rows there are, unless it is refused or a disk fails."""
    request = pb.CreateIndexRequest(
        main_table_name=PLAIN,
        index_meta=index_message(tables(1)[0], index),
        include_base_data=True,
    )
    with suppress(StoreError, StoreFailed):
        await worker.indexes.create_index(ADMIN, request.SerializeToString())


async def drop_index(worker: SimulatedWorker, index: Index) -> None:
    """Drop it, unless that is refused or a disk fails."""
    request = pb.DropIndexRequest(main_table_name=PLAIN, index_name=index.name)
    with suppress(StoreError, StoreFailed):
        await worker.indexes.drop_index(ADMIN, request.SerializeToString())


async def log_options(owner: ShardOwner, body: record.Options) -> None:
    """Log other options of a shard."""
    with suppress(StoreError, StoreFailed):
        await owner.submit_hidden(body)
