"""Trims the entries of a slot's logs that no rebuild, stream or index needs any more.

The log of an ended shard is deleted once its last record is not needed, and no client
repeats a commit of it any more. A transaction's id names its shard, and an unknown one
counts as never committed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rowtide.core.values.schema import ShardRange, StreamSettings, Table
from rowtide.stream.shard.index_links import IndexLinks
from rowtide.stream.shard.owner import ShardOwner
from rowtide.stream.shard.stream_reader import HOUR_US, horizon
from rowtide.stream.slot.failures import log_failures
from rowtide.stream.slot.reshape.reshape_links import ReshapeLinks
from rowtide.stream.slot.upkeep.long_ago import LongAgo

__all__ = ["SlotTrim"]


class SlotTrim:
    """The trims of one slot. ``starts`` gets the new start of each log.

    ``commits`` has the bound below which no client repeats a commit.
    """

    def __init__(
        self,
        indexes: IndexLinks,
        reshapes: ReshapeLinks,
        starts: dict[str, int],
        clock_us: Callable[[], int],
        commits: LongAgo,
    ) -> None:
        self._indexes = indexes
        self._reshapes = reshapes
        self._starts = starts
        self._clock_us = clock_us
        self._commits = commits

    async def trim_logs(
        self, slot: int, shards: Mapping[str, ShardOwner], ended: Mapping[str, ShardOwner]
    ) -> None:
        """Trim the logs of a slot's shards, open and ended ones. Logs errors."""
        self._commits.look()
        for owner in list(shards.values()):
            with log_failures(f"trim of {owner.log.name}"):
                await self.trim(owner)
        for table, shard in self._reshapes.list_ended(slot):
            with log_failures(f"trim of {shard.shard_id}"):
                await self.trim_ended(table, shard, ended)

    async def trim(self, owner: ShardOwner) -> None:
        """Trim the log of an open shard."""
        await self._trim(owner, owner.shard.state.stream)

    async def trim_ended(
        self, table: Table, shard: ShardRange, ended: Mapping[str, ShardOwner]
    ) -> None:
        """Trim the log of an ended shard, or delete it."""
        owner = ended.get(shard.shard_id)
        if owner is None:
            return
        stream = table.stream
        if stream is not None and stream.enabled_at_us > shard.sealed_us:
            stream = None  # It began after the end.
        start = await self._trim(owner, stream)
        if table.enable_local_txn and shard.sealed_us >= self._commits.before_us:
            return
        kept_us = 0 if stream is None else stream.expiration_hours * HOUR_US
        if start > shard.sealed_at and self._clock_us() >= shard.sealed_us + kept_us:
            await self._reshapes.forget(shard)

    async def _trim(self, owner: ShardOwner, stream: StreamSettings | None) -> int:
        """Trim a log; return its new start."""
        before = owner.rows.find_flushed(owner.shard.shard_id) + 1
        if stream is not None:
            before = min(before, await horizon(owner, stream, self._clock_us()))
        pin = await self._indexes.pin(owner)
        if pin is not None:
            before = min(before, pin)
        start, _ = await owner.log.bounds()
        if before > start:
            await owner.log.trim(before)
            start = before
        self._starts[owner.shard.shard_id] = start
        return start
