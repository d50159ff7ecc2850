"""What a slot does about its closed shards.

It checks their logs again at an interval, because a deposed broker may have reported an old end. An
operator may accept what a log has lost; then the shard is served with what is left.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial

from rowtide.core.values.errors import Unavailable, invalid
from rowtide.core.values.schema import ShardRange, Table
from rowtide.stream.shard.owner import ShardOwner
from rowtide.stream.shard.row_store import RowStore
from rowtide.stream.slot.changelog.slot_flush import SlotFlush
from rowtide.stream.slot.failures import log_failures
from rowtide.stream.slot.life import OwnedSlot, SlotLife, StartedSlot
from rowtide.stream.slot.opening.shard_repair import Loss, fill_log, find_loss, hold_rows
from rowtide.stream.slot.opening.shard_runner import ShardRunner

__all__ = ["ClosedCare"]


class ClosedCare:
    """The closed shards of one slot. One is repaired at a time.

    ``owner_id`` names this worker in the records that fill a log.
    """

    def __init__(
        self, life: SlotLife, runner: ShardRunner, flush: SlotFlush, owner_id: bytes
    ) -> None:
        self._life = life
        self._runner = runner
        self._flush = flush
        self._owner_id = owner_id
        self._repairing = asyncio.Lock()

    async def look_again(self, rows: RowStore) -> None:
        """Check the closed shards again; read ended shards that could not be read before.

        Raises ``Unavailable`` if no log lacks entries any more: then the slot must open again.
        """
        runner, closed = self._runner, self._runner.shards.closed
        known = len(closed)
        if runner.reshapes.unread:
            await runner.reshapes.open_what_answers(rows)
        if len(closed) > known:  # As for shards that are closed while the slot opens.
            await runner.changelog.require_read()
        can_reopen = False
        with log_failures(f"slot {self._flush.number}: logs of closed shards"):
            has_all_entries = partial(
                runner.opener.has_all_entries, self._list_shards_with_logs(), rows
            )
            can_reopen = await closed.can_reopen(has_all_entries)
        if can_reopen:
            raise Unavailable("the logs of closed shards lack no entries any more")

    def _list_shards_with_logs(self) -> list[tuple[Table, ShardRange]]:
        """Return the slot's shards, with ended ones that still have a log."""
        return self._flush.links.list_shards_with_logs(self._flush.number)

    async def repair(self, shard_id: str, *, accept: bool) -> Loss:
        """Return what a closed shard's log has lost; with ``accept`` serve the rest.

        Raises ``Rejected`` if the shard is not closed, or is closed although its log lacks nothing.
        Raises ``Unavailable`` if the log does not exist.
        """
        shards, number = self._runner.shards, self._flush.number
        if (why := shards.begun.find_gone(shard_id)) is not None:
            raise Unavailable(why)
        async with self._repairing:  # A second caller finds it served.
            tables = self._flush.links.tables(number)
            found = [pair for pair in tables if pair[1].shard_id == shard_id]
            state = self._life.state
            waits = shard_id in shards.closed and shard_id not in shards.begun
            can_repair = self._runner.changelog.is_open and waits and bool(found)
            if not isinstance(state, OwnedSlot) or not can_repair:
                raise invalid(f"Shard '{shard_id}' is not closed.")
            [(table, shard)] = found
            owner = self._runner.opener.arriving(table, shard, state.rows)
            loss = await find_loss(owner)
            if accept:
                await self._accept(owner, loss, state)
                self._runner.begin(shard, state)
                with suppress(Unavailable):  # The loss is accepted; the shard opens later.
                    within_s = self._flush.settings.shard.write_s_max
                    await shards.begun.wait_until_served([shard_id], within_s=within_s)
            return loss

    async def _accept(self, owner: ShardOwner, loss: Loss, owned: OwnedSlot) -> None:
        """Accept a loss: flush the rows that are left, and fill the log with no-ops."""
        await self._runner.require_claim()
        hold_rows(owner, loss)
        await self._flush.flush(owner)
        await fill_log(owner, loss, owned.claim, self._owner_id)
        state = self._life.state
        is_same = isinstance(state, StartedSlot) and state.rows is owner.rows
        if not is_same or self._runner.shards.closed.pop(owner.shard.shard_id, None) is None:
            raise Unavailable(f"slot {self._flush.number} was opened again")
