"""When a slot flushes its changelog, and which of its shards a flush writes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from rowtide.stream.measures.counts import Counts
from rowtide.stream.measures.ticks import sleep_to_tick
from rowtide.stream.shard.owner import ShardOwner
from rowtide.stream.slot.changelog.changelog import SlotChangelog
from rowtide.stream.slot.changelog.flush_scope import FlushScope, flush_scope
from rowtide.stream.slot.failures import log_failures
from rowtide.stream.slot.opening.slot_shards import SlotShards
from rowtide.stream.slot.reshape.intakes import SlotIntakes
from rowtide.stream.slot.reshape.reshapes import SlotReshapes
from rowtide.stream.slot.settings import SlotSettings
from rowtide.stream.slot.surroundings import SlotLinks

__all__ = ["SlotFlush"]


@dataclass(slots=True, kw_only=True)
class SlotFlush:
    """The flushes of one slot: of its open, ended and arriving shards."""

    number: int
    links: SlotLinks
    settings: SlotSettings
    counts: Counts
    changelog: SlotChangelog
    shards: SlotShards
    reshapes: SlotReshapes
    intakes: SlotIntakes

    async def flush(self, *held: ShardOwner) -> int:
        """Flush the changelog now; return the number of entries. ``held`` are closed shards.

        Raises like ``ChangelogWriter.flush``, and ``Unavailable`` if the slot closes meanwhile.
        """
        return await self.changelog.flush(partial(self.scope, *held), held)

    def scope(self, *held: ShardOwner) -> FlushScope:
        """Return what a flush may write now."""
        links, number = self.links.reshapes, self.number
        owners = {**self.reshapes.ended, **self.intakes.arriving, **self.shards.open}
        owners |= {owner.shard.shard_id: owner for owner in held}
        shards = [*links.list_ended(number), *links.arriving(number), *self.links.tables(number)]
        return flush_scope(owners, shards)

    async def wait(self) -> None:
        """Return after the flush interval, or earlier if there is much to flush."""
        for _ in range(10):
            await sleep_to_tick(self.settings.flush_s / 10)
            if self.is_large():
                break

    def is_large(self) -> bool:
        """True if a flush must not wait: it is one transaction, whose time is limited."""
        scope, settings = self.scope(), self.settings
        return scope.dirty > settings.dirty_max or scope.dirty_bytes > settings.dirty_bytes_max

    async def run(self) -> None:
        """Flush, and note the age of the rows. Logs errors."""
        failed = True
        with log_failures(f"slot {self.number}: flush"):
            await self.flush()
            failed = False
        self.counts.flush_failures += failed
        with log_failures(f"slot {self.number}: the age of its rows"):
            await self.changelog.touch()
