"""Opens the shards of a slot and runs them, each in its own task.

A shard that fails is opened again, after a pause that grows. One whose log lost
acknowledged entries stays closed until an operator decides.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from rowtide.core.records import record
from rowtide.core.shard.shard_state import has_current_options
from rowtide.core.values.errors import StoreError
from rowtide.core.values.schema import ShardRange, Table
from rowtide.stream.shard.appender import LogShortened
from rowtide.stream.shard.owner import ShardOwner
from rowtide.stream.shard.row_store import StoreFailed
from rowtide.stream.slot.changelog.changelog import SlotChangelog
from rowtide.stream.slot.life import OwnedSlot
from rowtide.stream.slot.opening.opening_shards import Opening
from rowtide.stream.slot.opening.shard_opening import ShardOpener
from rowtide.stream.slot.opening.slot_shards import SlotShards
from rowtide.stream.slot.reshape.intakes import SlotIntakes
from rowtide.stream.slot.reshape.reshapes import SlotReshapes
from rowtide.stream.slot.reshape.sweep import SlotSweep
from rowtide.stream.slot.upkeep.indexes import SlotIndexes
from rowtide.stream.slot.upkeep.long_ago import LongAgo

__all__ = ["ShardRunner"]

logger = logging.getLogger(__name__)

BACKOFF_S = 0.2
BACKOFF_S_MAX = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardRunner:
    """Runs the shards of one slot.

    ``table_of`` returns the present table of a shard in the catalog. ``is_open`` is true
    while the slot is open. ``require_claim`` raises ``Unavailable`` after a later claim.
    """

    shards: SlotShards
    opener: ShardOpener
    changelog: SlotChangelog
    reshapes: SlotReshapes
    intakes: SlotIntakes
    indexes: SlotIndexes
    sweep: SlotSweep
    commits: LongAgo
    table_of: Callable[[ShardRange], Table | None]
    is_open: Callable[[], bool]
    require_claim: Callable[[], Awaitable[None]]

    def begin(self, shard: ShardRange, owned: OwnedSlot) -> None:
        """Open and serve a shard in the background."""
        self.shards.begun[shard.shard_id] = Opening(
            lambda opening: self._serve(shard, opening, owned),
            owned.tasks,
            f"shard[{shard.shard_id}]",
            asyncio.get_running_loop().time,
        )

    async def _serve(self, shard: ShardRange, opening: Opening, owned: OwnedSlot) -> None:
        """Open one shard and run it; open it again after a temporary failure."""
        try:
            await self._serve_on(shard, opening, owned)
        finally:
            self.shards.begun.pop(shard.shard_id, None)
        # The table was dropped, or the log has ended, perhaps before it was read here.
        await self.reshapes.read_ended(owned.rows)
        opening.note_decided()

    async def _serve_on(self, shard: ShardRange, opening: Opening, owned: OwnedSlot) -> None:
        backoff_s = BACKOFF_S
        while (table := self.table_of(shard)) is not None:
            try:
                owner = await self._open(table, shard, owned)
                if opening.why or shard.copied:
                    self.commits.restart()  # Its commits were timed by another worker's clock.
            except (LogShortened, record.CorruptRecord) as error:
                if self.is_open():  # Or did a deposed broker report the changelog's end?
                    await self.changelog.require_read()
                self.shards.closed.close(shard.shard_id, error)
                opening.note_decided()
                return
            except StoreError as error:
                logger.warning("shard %s: open failed, retrying: %s", shard.shard_id, error)
                missing = await self.opener.is_missing(shard)
                opening.note_failure(str(error), missing=missing)
            else:
                # A later owner's fence lies before ours or comes after this check. In
                # both cases nothing is acknowledged here that its readers miss.
                await self.require_claim()
                if owner.shard.state.seal is not None:
                    self.reshapes.ended[shard.shard_id] = owner
                    break
                # A later change of the table finds the shard.
                table = self.table_of(shard)
                if table is None:
                    break
                owner.shard.retable(table)
                if not has_current_options(owner.shard.state, table):
                    continue  # The table was changed just now.
                self.shards.open[shard.shard_id] = owner
                owner.open()
                self.indexes.follow(owner, owned.tasks)
                # Its replay may have brought rows of an index that was dropped meanwhile.
                self.sweep.request()
                logger.debug("shard %s of table %s is open", shard.shard_id, table.name)
                opening.note_decided()
                backoff_s = BACKOFF_S
                await owner.run()
                self.shards.open.pop(shard.shard_id, None)
                self.indexes.feeders.pop(shard.shard_id, None)
                await self.require_claim()
                if owner.is_retired:
                    return
                if isinstance(owner.failed, LogShortened):
                    # If the log was filled meanwhile, its ends would not show it.
                    self.shards.closed.close(shard.shard_id, owner.failed)
                    return
                if isinstance(owner.failed, StoreFailed):
                    raise owner.failed
            await asyncio.sleep(backoff_s)
            backoff_s = min(backoff_s * 2, BACKOFF_S_MAX)

    async def _open(self, table: Table, shard: ShardRange, owned: OwnedSlot) -> ShardOwner:
        rows = owned.rows
        await self.reshapes.require_parents(shard, rows)
        warm = await self.intakes.take_arrived(table, shard, rows) if shard.copied else None
        owner = await self.opener.open(table, shard, rows, owned.claim, warm=warm)
        await self.opener.put_in_force(owner, self.require_claim)
        return owner
