"""The regular jobs of an open slot, and their intervals."""

from __future__ import annotations

from functools import partial

from rowtide.stream.shard.row_store import RowStore
from rowtide.stream.slot.changelog.slot_flush import SlotFlush
from rowtide.stream.slot.failures import log_failures
from rowtide.stream.slot.opening.closed_care import ClosedCare
from rowtide.stream.slot.reshape.sweep import SlotSweep
from rowtide.stream.slot.surroundings import SlotLinks, Surroundings
from rowtide.stream.slot.upkeep.jobs import UpkeepJob, every
from rowtide.stream.slot.upkeep.reclaimer import Reclaimer
from rowtide.stream.slot.upkeep.trim import SlotTrim

__all__ = ["SlotUpkeep"]

LOOK_AGAIN_S = 10.0


class SlotUpkeep:
    """The upkeep of one slot. ``starts`` gets the new start of each log."""

    def __init__(
        self,
        surroundings: Surroundings,
        links: SlotLinks,
        flush: SlotFlush,
        sweep: SlotSweep,
        starts: dict[str, int],
    ) -> None:
        self.flush = flush
        self.sweep = sweep
        self.commits = commits = surroundings.old_commits()
        self.trim = SlotTrim(links.indexes, links.reshapes, starts, surroundings.clock_us, commits)
        self.reclaimer = Reclaimer(
            flush.shards.open.values,
            partial(flush.changelog.bury, flush.scope),
            clock_us=surroundings.clock_us,
            settings=surroundings.settings.reclaim,
        )
        self._settings = surroundings.settings

    def jobs(self, rows: RowStore, closed: ClosedCare) -> tuple[UpkeepJob, ...]:
        """Return the jobs of an open slot: name, interval, job."""
        settings, sweep, flush = self._settings, self.sweep, self.flush
        return (
            UpkeepJob("flush", flush.wait, flush.run),
            UpkeepJob("look", every(LOOK_AGAIN_S), partial(closed.look_again, rows)),
            UpkeepJob(
                "sweep", sweep.wait, partial(sweep.run, rows, flush.intakes), is_due_first=True
            ),
            UpkeepJob("trim", every(settings.trim_s), partial(self._trim_logs, rows)),
            UpkeepJob("reclaim", every(settings.reclaim.pause_s), self.reclaimer.go_through),
        )

    async def _trim_logs(self, rows: RowStore) -> None:
        flush = self.flush
        await self.trim.trim_logs(flush.number, flush.shards.open, flush.reshapes.ended)
        with log_failures(f"slot {flush.number}: old commits"):
            await self.sweep.commits(rows, self.commits.before_us)
