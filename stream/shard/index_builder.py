"""Builds the new indexes of a shard from the rows that existed before them.

Each slice of rows is a hidden record in the shard's log, evaluated in order with the
mutations around it. The record has the index's entries and the builder's progress. After
a crash the build continues from there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from rowtide.core.records.record import IndexBuild
from rowtide.core.shard.index import BUILT, build_key
from rowtide.core.shard.shard_state import options_body
from rowtide.core.values.errors import StoreError
from rowtide.core.values.schema import Index
from rowtide.stream.shard.owner import ShardOwner

__all__ = ["build_index", "is_built"]

logger = logging.getLogger(__name__)

RETRY_S = 0.2
RETRY_S_MAX = 5.0

Built = Callable[[int], Awaitable[None]]
"""Called with a table's number once a shard of it has gone through its rows for an index."""


def is_built(owner: ShardOwner, index: Index) -> bool:
    """True if a shard has built an index from all of its older rows."""
    value = owner.rows.get(build_key(index.table_id, owner.shard.shard_id))
    return value is not None and value >= BUILT


async def build_index(owner: ShardOwner, number: int, built: Built) -> None:
    """Build an index in a shard until all shards have built it, it is dropped, or the
    shard closes.
    """
    wait_s = RETRY_S
    while not owner.is_closed and (index := _new_index(owner, number)) is not None:
        try:
            if not is_built(owner, index):
                await _build(owner, index)
            await built(owner.shard.table.table_id)
        except StoreError as error:
            where = owner.shard.shard_id
            logger.warning("index %s in %s: build failed, retrying: %s", index.name, where, error)
        if _new_index(owner, number) is None:
            return
        await asyncio.sleep(wait_s)
        wait_s = min(wait_s * 2, RETRY_S_MAX)


def _new_index(owner: ShardOwner, number: int) -> Index | None:
    """Return an index of the shard's table while it is being built."""
    found = (index for index in owner.shard.table.indexes if index.table_id == number)
    return next((index for index in found if index.building), None)


async def _build(owner: ShardOwner, index: Index) -> None:
    """Go through the shard's rows, from the progress of an earlier attempt on."""
    place = build_key(index.table_id, owner.shard.shard_id)
    logger.info("building index %s in shard %s", index.name, owner.shard.shard_id)
    if owner.rows.get(place) is None:
        # The options in the log decide which rows are visible. After a crash it may lack
        # the last options, under which alone the index may be built.
        await owner.submit_hidden(options_body(owner.shard.table))
    while (value := owner.rows.get(place) or b"\x00") < BUILT:
        if _new_index(owner, index.table_id) is None:
            return
        await owner.submit_hidden(IndexBuild(index.table_id, value[1:] or None, ()))
        await asyncio.sleep(0)
