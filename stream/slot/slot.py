"""One slot that this worker owns: claimed, recovered, served, flushed, trimmed.

The steps of an opening:

1. Open the local rows and bring them up to date, while another worker may still serve.
2. Have that worker hand the slot over, and claim it.
3. Fence the changelog, prove that the claim is still the last, and read to the stable end.
4. Open each shard: its log must begin at or below the end of the rows. A no-op is appended
   by the append rule, and the log up to it replayed.

A shard whose log lost acknowledged entries, or cannot be read, is closed, alone, with its reason
(``ClosedShards``). Everything else is retried with back-off. Times are seconds.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from rowtide.core.shard.reshape import Sealed
from rowtide.core.values.errors import LogTrimmed, StoreError, Unavailable, first_failure
from rowtide.core.values.schema import ShardRange, Table
from rowtide.stream.log.changelog import Fenced
from rowtide.stream.log.log import Log
from rowtide.stream.measures.ticks import sleep_to_tick
from rowtide.stream.shard.index_feed import IndexFeeder
from rowtide.stream.shard.owner import ShardOwner
from rowtide.stream.shard.row_store import RowStore, StoreFailed, destroy
from rowtide.stream.slot.changelog.changelog import SlotChangelog
from rowtide.stream.slot.changelog.recovery import StartPassed, recover_rows
from rowtide.stream.slot.changelog.slot_flush import SlotFlush
from rowtide.stream.slot.failures import StoreBehind, log_failures
from rowtide.stream.slot.life import (
    ClaimedSlot,
    ClaimingSlot,
    ClosedSlot,
    DrainingSlot,
    LifeEvent,
    PreparingSlot,
    ServingSlot,
    SlotLife,
    StartedSlot,
)
from rowtide.stream.slot.local_rows import find_known_shards, local_rows
from rowtide.stream.slot.opening.closed_care import ClosedCare
from rowtide.stream.slot.opening.openings import Openings
from rowtide.stream.slot.opening.settling import ShardSettling, is_shard_of
from rowtide.stream.slot.opening.shard_opening import ShardOpener
from rowtide.stream.slot.opening.shard_repair import Loss
from rowtide.stream.slot.opening.shard_runner import ShardRunner
from rowtide.stream.slot.opening.slot_shards import SlotShards
from rowtide.stream.slot.reshape.closed_shards import ClosedShards
from rowtide.stream.slot.reshape.intakes import SlotIntakes
from rowtide.stream.slot.reshape.reshapes import SlotReshapes
from rowtide.stream.slot.reshape.sweep import SlotSweep
from rowtide.stream.slot.standby.standby_shard import Unflushed
from rowtide.stream.slot.surroundings import SlotLinks, Surroundings
from rowtide.stream.slot.tasks import LifeTasks
from rowtide.stream.slot.upkeep.indexes import SlotIndexes
from rowtide.stream.slot.upkeep.jobs import UpkeepJob, start_jobs
from rowtide.stream.slot.upkeep.reclaimer import Reclaimer
from rowtide.stream.slot.upkeep.slot_upkeep import SlotUpkeep

__all__ = ["Slot"]

logger = logging.getLogger(__name__)

BACKOFF_S = 0.2
BACKOFF_S_MAX = 5.0
WATCH_S = 0.5
LAST_FLUSH_S = 5.0


class Slot:
    """A slot and its shards on this worker. ``run`` is its one task."""

    def __init__(
        self, number: int, path: Path, surroundings: Surroundings, links: SlotLinks
    ) -> None:
        self.number = number
        self.openings = Openings()
        self._life = SlotLife()
        self._path = path
        self._around = surroundings
        self._links = links
        self._of_life = shards = SlotShards()
        writer = surroundings.cluster.changelog_writer(
            surroundings.topics.changelog, number, surroundings.topics.transactional_id(number)
        )
        self._changelog = SlotChangelog(number, writer, self._require_claim, surroundings.counts)
        self._index_work = SlotIndexes(links.indexes, self._log_of)
        opener = ShardOpener(surroundings, links.leases, number, links.table_known)
        self._reshapes = SlotReshapes(
            number,
            links.reshapes,
            opener,
            shards,
            seal=self._seal,
            log_of=self._log_of,
            counts=surroundings.counts,
        )
        self._intakes = SlotIntakes(number, links.reshapes, opener, self._make_room, self._log_of)
        self._upkeep = self._assemble_upkeep(opener)
        self._settling = ShardSettling(
            shards,
            is_gone=self._is_gone,
            seal=self._seal,
            dropped=self._index_work.dropped,
            request_sweep=self._upkeep.sweep.request,
        )
        self._runner = ShardRunner(
            shards=shards,
            opener=opener,
            changelog=self._changelog,
            reshapes=self._reshapes,
            intakes=self._intakes,
            indexes=self._index_work,
            sweep=self._upkeep.sweep,
            commits=self._upkeep.commits,
            table_of=self._table_of,
            is_open=self.opened.is_set,
            require_claim=self._require_claim,
        )
        self._closed_care = ClosedCare(
            self._life, self._runner, self._upkeep.flush, links.leases.owner
        )

    def _assemble_upkeep(self, opener: ShardOpener) -> SlotUpkeep:
        """Build the parts that do the regular work on the open shards."""
        around, links = self._around, self._links
        flush = SlotFlush(
            number=self.number,
            links=links,
            settings=around.settings,
            counts=around.counts,
            changelog=self._changelog,
            shards=self._of_life,
            reshapes=self._reshapes,
            intakes=self._intakes,
        )
        sweep = SlotSweep(self.number, self._changelog.remove, links.table_known)
        return SlotUpkeep(around, links, flush, sweep, opener.starts)

    def use_standby_notes(self, unflushed: Mapping[str, Unflushed]) -> None:
        """Note, per shard, which chunks the standby wrote since the last flush.

        The next opening need not read them again.
        """
        self._runner.opener.unflushed = unflushed

    # Serving.

    @property
    def shards(self) -> dict[str, ShardOwner]:
        """The open shards, by id."""
        return self._of_life.open

    @property
    def closed(self) -> ClosedShards:
        """The closed shards, with the reason."""
        return self._of_life.closed

    @property
    def claim(self) -> int:
        """The last claim of this worker; -1 before the first."""
        return self._life.claim

    @property
    def opened(self) -> asyncio.Event:
        """Set while the slot serves."""
        return self._life.opened

    @property
    def starts(self) -> dict[str, int]:
        """The first offset of each shard's log, as last seen."""
        return self._runner.opener.starts

    @property
    def feeders(self) -> dict[str, IndexFeeder]:
        """The feeders of the shards of global indexes, by shard id."""
        return self._index_work.feeders

    @property
    def reclaimer(self) -> Reclaimer:
        """The job that removes invisible versions."""
        return self._upkeep.reclaimer

    @property
    def is_foreign(self) -> bool:
        """True if another worker may serve the slot: this one does not have it yet."""
        return self._life.state.is_foreign

    @property
    def rows(self) -> RowStore | None:
        """The open rows, or None in a closed slot."""
        state = self._life.state
        return state.rows if isinstance(state, StartedSlot) else None

    def owner(self, shard_id: str) -> ShardOwner:
        """Return the open shard. Raises ``Unavailable``, with the reason if it stays closed."""
        return self._of_life.owner(shard_id)

    @property
    def all_closed(self) -> dict[str, str]:
        """Why shards are closed, by id, including those whose logs do not exist."""
        return self._of_life.all_closed()

    @property
    def opening(self) -> dict[str, str]:
        """Why shards are not open yet, by id: each is retried."""
        return self._of_life.begun.waiting()

    def find_followable(self, shard_id: str) -> ShardOwner:
        """Return a shard whose log may be read, open or ended. Raises ``Unavailable``."""
        return self._reshapes.ended.get(shard_id) or self.owner(shard_id)

    @property
    def flushed_s(self) -> float | None:
        """When the changelog last had everything, in seconds of ``time.monotonic``."""
        return self._changelog.flushed_s

    @property
    def ended(self) -> int:
        """The number of ended shards whose logs are kept."""
        return len(self._reshapes.ended)

    @property
    def arriving(self) -> int:
        """The number of shards that are being moved here."""
        return len(self._intakes.arriving)

    def find_received(self, shard_id: str) -> int:
        """Return the last folded offset of a shard that is being moved here; -1 for none."""
        owner = self._intakes.arriving.get(shard_id)
        return -1 if owner is None else owner.shard.state.applied

    def is_readable(self) -> bool:
        """True if strong reads may be served now."""
        return self._links.leases.is_readable(self.number)

    def is_served_elsewhere(self) -> bool:
        """True if the lease names another live worker while this one prepares."""
        return self.is_foreign and self._links.leases.others.holder(self.number) is not None

    async def run(self) -> None:
        """Open and serve until cancelled; open again after any failure."""
        backoff_s = BACKOFF_S
        while True:
            # A task for each life: a group that fails as it is left leaves a cancellation.
            async with asyncio.TaskGroup() as lives:
                life = lives.create_task(self._live(), name=f"life[{self.number}]")
            if life.result():
                backoff_s = BACKOFF_S
            if self._links.leases.is_lost(self.number) and self._links.handover.give_way(
                self.number
            ):
                await asyncio.Event().wait()  # Until we are stopped.
            if self.openings.are_for_others():
                await self._leave_to_others()
            await asyncio.sleep(backoff_s)
            backoff_s = min(backoff_s * 2, BACKOFF_S_MAX)

    async def _live(self) -> bool:
        """Open and serve until something fails; return True if the slot was open."""
        opened = False
        try:
            async with LifeTasks() as tasks:
                serving = await self._open(tasks)
                opened = True
                self.openings.note_success()
                self.begin_settling()  # The catalog may have changed meanwhile.
                jobs = self._upkeep.jobs(serving.rows, self._closed_care)
                start_jobs(jobs, tasks, self.number)
        except* (StoreError, StoreFailed, Fenced, StoreBehind, LogTrimmed) as failures:
            failure = first_failure(failures)
            logger.warning("slot %d: failed, opening again: %s", self.number, failure)
            self.openings.note_end(failure, opened=opened)
        finally:
            self._close()
        return opened

    async def _leave_to_others(self) -> None:
        """Release a lease that is renewed although the slot is not served; keep trying to open.

        When our rows are ready, we ask the slot's present owner to hand it over.
        """
        if self._links.leases.is_readable(self.number):
            logger.warning(
                "slot %d: open failed; lease released so that another worker can take over",
                self.number,
            )
            if isinstance(self._life.state, ClosedSlot):
                self._life.move(LifeEvent.LEAVE, ClosedSlot(is_foreign=True))
            await self._links.leases.release(self.number)

    async def drain(self) -> None:
        """Flush the changelog while the slot serves; then answer all requests, release the lease.

        The next owner reads the writes during the flush from the logs: that is faster.
        """
        if type(state := self._life.state) is ServingSlot:
            draining = DrainingSlot(state.tasks, state.rows, state.claim)
            self._life.move(LifeEvent.DRAIN, draining)
        if self._changelog.is_open:
            with log_failures(f"slot {self.number}: last flush"), suppress(TimeoutError):
                async with asyncio.timeout(LAST_FLUSH_S):
                    await self.flush()
        async with asyncio.TaskGroup() as tasks:
            for owner in list(self.shards.values()):
                tasks.create_task(owner.drain(), name=f"drain[{owner.shard.shard_id}]")
        await self._links.leases.release(self.number)

    def begin_settling(self) -> None:
        """Start to bring the shards in line with the catalog, each independently.

        If the slot is not open yet, this affects only the shards that it serves: the others
        open by the present catalog. Raises ``Unavailable`` while the slot closes.
        """
        state = self._life.state
        if not isinstance(state, StartedSlot):
            return
        gone: list[str] = []
        if isinstance(state, ServingSlot):
            wanted = {shard.shard_id: shard for _, shard in self._links.tables(self.number)}
            known = self._reshapes.known
            for shard_id in [name for name in wanted if name not in known]:
                self._runner.begin(wanted[shard_id], state)
            gone = [name for name in self.shards if name not in wanted]
            if self.closed:
                ended = {
                    shard.shard_id for _, shard in self._links.reshapes.list_ended(self.number)
                }
                self.closed.keep(ended.union(wanted))
            self._reshapes.settle(state.tasks, state.rows, state.claim)
            self._intakes.settle(state.tasks, state.rows)
        self._settling.begin(state.tasks, gone)

    async def wait_until_settled(self, tables: Collection[int]) -> None:
        """Return once the shards of these tables, by number, are in line with the catalog.

        Then new shards are open, removed ones are sealed, and changes are in force. Raises
        ``Unavailable``; then call it again.
        """
        within_s = self._around.settings.shard.write_s_max
        if self.opened.is_set():
            here = [
                s.shard_id for t, s in self._links.tables(self.number) if is_shard_of(t, tables)
            ]
            await self._of_life.begun.wait_until_served(here, within_s=within_s)
        await self._settling.wait_until_settled(tables, within_s=within_s)

    def _is_gone(self, shard_id: str) -> bool:
        """True if an open shard no longer belongs to the slot."""
        here = self._links.tables(self.number)
        return self.opened.is_set() and all(shard.shard_id != shard_id for _, shard in here)

    async def _seal(self, owner: ShardOwner, plan: str) -> Sealed:
        """Seal a shard's log, which closes the shard."""
        shard_id = owner.shard.shard_id
        self._index_work.stop(shard_id)
        seal = await owner.seal(plan)
        self.shards.pop(shard_id, None)
        return seal

    def retable(self) -> None:
        """Pass the catalog's present tables to the open shards."""
        state = self._life.state
        if not isinstance(state, StartedSlot):
            return
        tables = {shard.shard_id: table for table, shard in self._links.tables(self.number)}
        for shard_id, owner in self.shards.items():
            table = tables.get(shard_id)
            if table is not None and table != owner.shard.table:
                with suppress(Unavailable):  # The slot closes; it opens with its newest tables.
                    self._index_work.retable(owner, table, state.tasks)

    async def repair(self, shard_id: str, *, accept: bool) -> Loss:
        """Return what a closed shard's log has lost; see ``ClosedCare.repair``.

        Raises ``Rejected`` if the shard is not closed, or is closed although its log lacks nothing.
        """
        return await self._closed_care.repair(shard_id, accept=accept)

    async def flush(self) -> int:
        """Flush the changelog now; return the number of entries.

        Raises like ``ChangelogWriter.flush``, and ``Unavailable`` if the slot closes meanwhile.
        """
        return await self._upkeep.flush.flush()

    # Opening.

    async def _open(self, tasks: LifeTasks) -> ServingSlot:
        """Claim the slot and open its shards; return its new state."""
        move = self._life.move
        move(LifeEvent.LEAVE, ClosedSlot(is_foreign=True))  # Also if the rows cannot be opened.
        rows = self._open_rows()
        move(LifeEvent.OPEN_ROWS, PreparingSlot(tasks, rows))
        known = find_known_shards(rows)
        if known is None:  # Reading everything takes long, and another worker may have a copy.
            await self._leave_to_others()
        # The catalog shows which removed rows came back.
        await self._links.reshapes.catalog_read()
        await self._read_changelog(rows)  # Most of the work, before the slot is ours.
        if why := self._intakes.unusable(rows, known, self._links.tables(self.number)):
            raise self._behind(why)  # The present owner serves while they are rebuilt.
        await self._changelog.prepare()
        await self._links.handover.obtain(self.number)
        move(LifeEvent.HAND_OVER, ClaimingSlot(tasks, rows))
        claim = await self._links.leases.claim(self.number)
        owned = ClaimedSlot(tasks, rows, claim)
        move(LifeEvent.CLAIM, owned)
        await self._changelog.fence()  # A later read of the catalog has all that was flushed.
        async with asyncio.TaskGroup() as reads:  # In parallel: writers wait for this.
            reads.create_task(self._links.before_open(claim), name=f"catalog[{self.number}]")
            await self._read_changelog(rows)
        if why := self._intakes.unusable(rows, known, self._links.tables(self.number)):
            raise self._behind(why)
        self._changelog.open(rows)
        if self._reshapes.has_only_changelog(rows, self._links.tables(self.number)):
            await self._changelog.require_read()
        start_jobs([self._watch(rows)], tasks, self.number)
        await self._reshapes.open_what_answers(rows)
        for _, shard in self._links.tables(self.number):
            self._runner.begin(shard, owned)
        await self._of_life.begun.wait_until_tried()
        if self.closed or self._of_life.begun.waiting() or self._reshapes.unread:
            # Perhaps a deposed broker reported the changelog's end. A flush would hide that.
            await self._changelog.require_read()
        serving = ServingSlot(tasks, rows, claim)
        move(LifeEvent.OPEN_SHARDS, serving)
        self._upkeep.commits.restart()
        self._changelog.flushed_s = self.flushed_s or time.monotonic()
        logger.info("slot %d is open, %d shards", self.number, len(self.shards))
        return serving

    def _open_rows(self) -> RowStore:
        return local_rows(self._path, kept_s=self._around.settings.changelog_kept_s)

    async def _require_claim(self) -> None:
        """Raise ``Unavailable`` if a later claim has taken the slot."""
        if not await self._links.leases.is_still_last(self.number):
            raise Unavailable(f"slot {self.number} was claimed by another worker")

    async def _read_changelog(self, rows: RowStore) -> None:
        try:
            topic = self._around.topics.changelog
            reader = self._around.cluster.changelog_reader(topic, self.number)
            kept = self._links.list_shards_with_logs(self.number)
            await recover_rows(rows, reader, self._links.table_known, kept)
        except StartPassed as error:
            raise self._behind(str(error)) from error

    def _behind(self, why: str) -> StoreBehind:
        """Delete the local rows; the next opening rebuilds them."""
        if isinstance(state := self._life.state, StartedSlot):
            self._life.move(LifeEvent.DISCARD_ROWS, ClosedSlot(is_foreign=state.is_foreign))
            with suppress(StoreFailed):  # It still writes its buffers if it can.
                state.rows.close(flush=False)
        destroy(self._path)
        return StoreBehind(f"{self._path}: {why}; rebuilding from Kafka")

    def _table_of(self, shard: ShardRange) -> Table | None:
        """Return a shard's table as the catalog has it now."""
        here = self._links.tables(self.number)
        return next((table for table, s in here if s.shard_id == shard.shard_id), None)

    # Upkeep.

    def _watch(self, rows: RowStore) -> UpkeepJob:
        """Return the job that starts before the shards open."""
        return UpkeepJob(
            "watch", partial(sleep_to_tick, WATCH_S), partial(self._watch_shards, rows)
        )

    async def _watch_shards(self, rows: RowStore) -> None:
        """Answer clients that waited too long; end the life if it cannot continue.

        It cannot continue after a later claim, or if the rows cannot be read.
        """
        for owner in self.shards.values():
            owner.expire()
        if self._links.leases.is_lost(self.number):
            raise Unavailable(f"slot {self.number} was claimed by another worker")
        if rows.damaged:
            raise StoreBehind(f"{self._path}: {rows.damaged}")

    async def _make_room(self, ranges: Sequence[tuple[bytes, bytes]]) -> int:
        """Remove some of the rows within ranges; return the number of chunks."""
        rows = self.rows
        if rows is None:
            raise Unavailable(f"slot {self.number} is not open")
        return await self._upkeep.sweep.within(rows, ranges)

    def _log_of(self, shard_id: str) -> Log:
        """Return a separate handle on a shard's log."""
        return self._around.cluster.log(self._around.topics.shard(shard_id))

    def _close(self) -> None:
        # A task that was cancelled before it started has removed nothing.
        for of_life in (self._of_life, self.feeders, self._settling):
            of_life.clear()
        self._reshapes.clear()
        self._intakes.clear()
        self._changelog.close()
        with log_failures(f"closing {self._path}"):
            state = self._life.state
            if isinstance(state, StartedSlot) and state.rows.damaged:
                # The next life would meet the damage too.
                logger.warning("%s", self._behind(state.rows.damaged))
            elif isinstance(state, StartedSlot):
                self._life.move(LifeEvent.CLOSE, ClosedSlot(is_foreign=state.is_foreign))
                state.rows.close()
