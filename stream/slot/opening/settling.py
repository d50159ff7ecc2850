"""Brings the open shards of a slot in line with the catalog, each in its own task.

A shard is out of line in three cases: its log has other options than its table; it may
have rows of an index that was dropped; its table is gone. A shard whose log does not
answer delays no other: a change of a table waits only for that table's shards. Times are
seconds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection

from rowtide.core.shard.reshape import Sealed
from rowtide.core.shard.shard_state import has_current_options, options_body
from rowtide.core.values.errors import OutcomeUnknown, StoreError, Unavailable
from rowtide.core.values.schema import Table
from rowtide.stream.shard.owner import ShardOwner
from rowtide.stream.slot.opening.slot_shards import SlotShards

__all__ = ["ShardSettling", "is_shard_of"]

logger = logging.getLogger(__name__)

RETRY_S = 0.2

SEAL_S = 5.0
"""Time limit for sealing a shard whose table is gone. The client that dropped it waits."""


def is_shard_of(table: Table, tables: Collection[int]) -> bool:
    """True if a shard of ``table``, which may be a global index, is one of ``tables``."""
    return table.table_id in tables or table.main in tables


class ShardSettling:
    """The open ``shards`` of one slot that are being brought in line.

    ``is_gone`` is true if a shard, by its id, has left the slot. ``seal`` seals one,
    which closes it. ``dropped`` has the owners that may have rows of a dropped index.
    ``request_sweep`` is called when rows are left to be swept.
    """

    def __init__(
        self,
        shards: SlotShards,
        *,
        is_gone: Callable[[str], bool],
        seal: Callable[[ShardOwner, str], Awaitable[Sealed]],
        dropped: set[ShardOwner],
        request_sweep: Callable[[], None],
    ) -> None:
        self._shards = shards
        self._is_gone_by_id = is_gone
        self._seal = seal
        self._dropped = dropped
        self._request_sweep = request_sweep
        self._under_way: dict[ShardOwner, asyncio.Task[None]] = {}

    def clear(self) -> None:
        """Forget everything: the slot closes."""
        self._under_way = {}  # Tasks of the ended life remove themselves from the old dictionary.

    def begin(self, tasks: asyncio.TaskGroup, gone: Collection[str]) -> None:
        """Start to bring lagging shards in line. ``gone`` are the shards to be removed."""
        # The next opening of shards that closed meanwhile sweeps the rows of dropped
        # indexes.
        self._dropped.intersection_update(self._shards.open.values())
        for shard_id, owner in list(self._shards.open.items()):
            if owner not in self._under_way and (shard_id in gone or self._is_behind(owner)):
                work = self._settle(owner)
                self._under_way[owner] = tasks.create_task(work, name=f"settle[{shard_id}]")

    async def wait_until_settled(self, tables: Collection[int], *, within_s: float) -> None:
        """Wait until the open shards of ``tables`` are in line. Raises ``Unavailable``."""
        found = [
            task
            for owner, task in self._under_way.items()
            if is_shard_of(owner.shard.table, tables)
        ]
        if not found:
            return
        done, left = await asyncio.wait(found, timeout=within_s)
        if left or any(task.cancelled() or task.exception() for task in done):
            raise Unavailable(f"{len(left)} shards are not in line with the catalog yet")

    def _is_behind(self, owner: ShardOwner) -> bool:
        """True if a log lacks its table's options, or rows of a dropped index are left."""
        return owner in self._dropped or not has_current_options(
            owner.shard.state, owner.shard.table
        )

    async def _settle(self, owner: ShardOwner) -> None:
        """Bring one shard in line, with retries, while it is open here."""
        under_way = self._under_way
        try:
            while self._is_open(owner) and (self._is_gone(owner) or self._is_behind(owner)):
                try:
                    await self._bring_in_line(owner)
                except StoreError as error:
                    shard_id = owner.shard.shard_id
                    logger.info(
                        "shard %s: not in line with the catalog yet, retrying: %s", shard_id, error
                    )
                    await asyncio.sleep(RETRY_S)
        finally:
            under_way.pop(owner, None)

    def _is_open(self, owner: ShardOwner) -> bool:
        return self._shards.open.get(owner.shard.shard_id) is owner

    def _is_waiting(self, owner: ShardOwner) -> bool:
        """True if a shard that stays open has a hidden record without an outcome."""
        return owner.has_barrier and self._is_open(owner) and not self._is_gone(owner)

    def _is_gone(self, owner: ShardOwner) -> bool:
        return self._is_gone_by_id(owner.shard.shard_id)

    async def _bring_in_line(self, owner: ShardOwner) -> None:
        if self._is_gone(owner):
            await self._remove(owner)
            return
        dropped = owner in self._dropped
        try:
            # The options of the latest change, even if it came meanwhile, so none undoes
            # another.
            await owner.submit_hidden(options_body(owner.shard.table))
        except OutcomeUnknown:
            # They still wait, and come before all others: a second record would only be
            # one more.
            while self._is_waiting(owner):  # noqa: ASYNC110  # Rarely, and without an event.
                await asyncio.sleep(RETRY_S)
            raise
        if dropped:
            self._dropped.discard(owner)
            self._request_sweep()

    async def _remove(self, owner: ShardOwner) -> None:
        """Seal a shard and forget it: the last valid record in its log marks its end.

        If its log does not answer, it ends without a seal: its table is gone, and its log
        will be.
        """
        shard_id = owner.shard.shard_id
        opening = self._shards.begun.get(shard_id)
        try:
            async with asyncio.timeout(SEAL_S):
                await self._seal(owner, "{}")
        except (TimeoutError, StoreError) as error:
            logger.warning("shard %s of a dropped table was not sealed: %r", shard_id, error)
            self._shards.open.pop(shard_id, None)
            if opening is not None:
                opening.cancel()  # A change that waits there gets its known outcome.
        self._request_sweep()
