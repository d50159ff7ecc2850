"""Lets the new indexes of a shard learn of the rows that were there before.

Each slice of rows is a hidden record of the shard's log, evaluated in turn with the mutations
around it; it brings what the index learns and how far the builder is. After a crash building goes
on there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from rowtide.core.errors import OutcomeUnknown, StoreError, Unavailable
from rowtide.core.index import BUILT, build_key
from rowtide.core.record import IndexBuild
from rowtide.core.schema import Index
from rowtide.stream.shard_owner import ShardOwner

__all__ = ["build_indexes", "is_built"]

logger = logging.getLogger(__name__)

RETRY_S = 0.2
RETRY_S_MAX = 5.0

Built = Callable[[int], Awaitable[None]]
"""Called with a table's number when a shard of it has gone through its rows for an index."""


def is_built(owner: ShardOwner, index: Index) -> bool:
    """Say whether a shard has gone through all of its old rows for an index."""
    value = owner.rows.get(build_key(index.table_id, owner.shard.shard_id))
    return value is not None and value >= BUILT


async def build_indexes(owner: ShardOwner, built: Built) -> None:
    """Build what is to be built, until it is, or the shard closes."""
    wait_s = RETRY_S
    while not owner.closed:
        waiting = [index for index in owner.shard.table.indexes if index.building]
        if not waiting:
            return
        try:
            for index in waiting:
                if not is_built(owner, index):
                    await _build(owner, index)
            await built(owner.shard.table.table_id)
        except (Unavailable, OutcomeUnknown) as error:
            logger.warning("index build in %s goes on later: %s", owner.shard.shard_id, error)
        except StoreError as error:
            logger.warning("index build in %s: %s", owner.shard.shard_id, error)
        await asyncio.sleep(wait_s)
        wait_s = min(wait_s * 2, RETRY_S_MAX)


async def _build(owner: ShardOwner, index: Index) -> None:
    """Go through the shard's rows from where an earlier life was."""
    place = build_key(index.table_id, owner.shard.shard_id)
    logger.info("building index %s in shard %s", index.name, owner.shard.shard_id)
    while (value := owner.rows.get(place) or b"\x00") < BUILT:
        if owner.shard.table.index(index.name) is None:
            return
        await owner.submit_hidden(IndexBuild(index.table_id, value[1:] or None, ()))
        await asyncio.sleep(0)
