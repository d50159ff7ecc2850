"""One slot that this worker owns: claimed, recovered, served, flushed, trimmed.

Opening goes: open the local rows and bring them up to date while another worker may still serve;
have that one hand the slot over; claim it; fence the changelog and see that the claim is still the
last; read the changelog to its stable end; then each shard: its log must begin at or
below what the rows hold, a no-op is appended by the append rule, and the log up to it replayed.

A shard that cannot be served for good (its log lost acknowledged entries) stays closed, alone, with
its reason; everything else is tried again with back-off. Times are seconds.
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
from rowtide.core.values.errors import LogTrimmed, StoreError, Unavailable, first_failure, invalid
from rowtide.core.values.schema import ShardRange, Table
from rowtide.stream.log.changelog import Fenced
from rowtide.stream.log.log import Log
from rowtide.stream.shard.index_links import IndexLinks
from rowtide.stream.shard.owner import ShardOwner
from rowtide.stream.shard.row_store import RowStore, StoreFailed, destroy
from rowtide.stream.slot.changelog.changelog import SlotChangelog
from rowtide.stream.slot.changelog.flush_scope import FlushScope, flush_scope
from rowtide.stream.slot.changelog.recovery import StartPassed, recover_rows
from rowtide.stream.slot.failures import StoreBehind, log_failures
from rowtide.stream.slot.life import (
    ClaimedSlot,
    ClaimingSlot,
    ClosedSlot,
    DrainingSlot,
    LifeEvent,
    OwnedSlot,
    PreparingSlot,
    ServingSlot,
    SlotLife,
    StartedSlot,
)
from rowtide.stream.slot.local_rows import find_known_shards, local_rows
from rowtide.stream.slot.opening.openings import Openings
from rowtide.stream.slot.opening.settling import ShardSettling, concerns
from rowtide.stream.slot.opening.shard_opening import ShardOpener
from rowtide.stream.slot.opening.shard_repair import Loss, fill_log, find_loss, hold_rows
from rowtide.stream.slot.opening.shard_runner import ShardRunner
from rowtide.stream.slot.opening.slot_shards import SlotShards
from rowtide.stream.slot.reshape.intakes import SlotIntakes
from rowtide.stream.slot.reshape.reshapes import SlotReshapes
from rowtide.stream.slot.reshape.sweep import SlotSweep
from rowtide.stream.slot.standby.standby_shard import Unflushed
from rowtide.stream.slot.surroundings import SlotLinks, Surroundings
from rowtide.stream.slot.tasks import LifeTasks
from rowtide.stream.slot.upkeep.indexes import SlotIndexes
from rowtide.stream.slot.upkeep.jobs import UpkeepJob, every, start_jobs
from rowtide.stream.slot.upkeep.reclaimer import Reclaimer
from rowtide.stream.slot.upkeep.trim import SlotTrim

__all__ = ["Slot"]

logger = logging.getLogger(__name__)

BACKOFF_S = 0.2
BACKOFF_S_MAX = 5.0
WATCH_S = 0.5
LAST_FLUSH_S = 5.0
LOOK_AGAIN_S = 10.0


class Slot:
    """A slot and its shards on this worker. ``run`` is its one task."""

    def __init__(
        self, number: int, path: Path, surroundings: Surroundings, links: SlotLinks
    ) -> None:
        self.number = number
        self._of_life = SlotShards()
        self.shards = self._of_life.open
        self.closed = self._of_life.closed
        self.claim = -1
        """The last claim that was made here; -1 before the first."""
        self._life = SlotLife()
        self.opened = self._life.opened
        self.openings = Openings()
        self._path = path
        self._counts = surroundings.counts
        self._cluster = cluster = surroundings.cluster
        self._topics = topics = surroundings.topics
        self._clock_us = surroundings.clock_us
        self._settings = surroundings.settings
        self._leases = links.leases
        self._handover = links.handover
        self._before_open = links.before_open
        self._tables = links.tables
        known = self._table_known = links.table_known
        self._links = links.reshapes
        self._opener = ShardOpener(surroundings, self._leases, number, known)
        self.starts = self._opener.starts
        writer = cluster.changelog_writer(topics.changelog, number, topics.transactional_id(number))
        self._changelog = SlotChangelog(number, writer, self._require_claim, self._counts)
        self._repairing = asyncio.Lock()
        self._commits = surroundings.old_commits()
        self._assemble(links.indexes)

    def _assemble(self, indexes: IndexLinks) -> None:
        """Build what works on the shards beside their owners."""
        number, links, opener = self.number, self._links, self._opener
        self._index_work = SlotIndexes(indexes, self._log_of)
        self.feeders = self._index_work.feeders
        self._sweep = SlotSweep(number, self._changelog.remove, self._table_known)
        self._trim = SlotTrim(indexes, links, self.starts, self._clock_us, self._commits)
        self._reshapes = SlotReshapes(
            number,
            links,
            opener,
            self._of_life,
            seal=self._seal,
            log_of=self._log_of,
            counts=self._counts,
        )
        self._intakes = SlotIntakes(number, links, opener, self._make_room, self._log_of)
        self._settling = ShardSettling(
            self._of_life,
            is_gone=self._is_gone,
            seal=self._seal,
            dropped=self._index_work.dropped,
            request_sweep=self._sweep.request,
        )
        self._runner = ShardRunner(
            shards=self._of_life,
            opener=opener,
            changelog=self._changelog,
            reshapes=self._reshapes,
            intakes=self._intakes,
            indexes=self._index_work,
            sweep=self._sweep,
            commits=self._commits,
            table_of=self._table_of,
            is_open=self.opened.is_set,
            require_claim=self._require_claim,
        )
        self.reclaimer = Reclaimer(
            self.shards.values,
            partial(self._changelog.bury, self._flush_scope),
            clock_us=self._clock_us,
            settings=self._settings.reclaim,
        )

    def opens_on(self, unflushed: Mapping[str, Unflushed]) -> None:
        """Open on rows of which a standby knew so much, by shard."""
        self._opener.unflushed = unflushed

    # Serving.

    @property
    def foreign(self) -> bool:
        """Whether another worker may serve the slot: this one does not have it yet."""
        return self._life.state.is_foreign

    @property
    def rows(self) -> RowStore | None:
        """The open rows, or None in a closed slot."""
        state = self._life.state
        return state.rows if isinstance(state, StartedSlot) else None

    def owner(self, shard_id: str) -> ShardOwner:
        """Return the open shard. Raises ``Unavailable``, with the reason where it is for good."""
        return self._of_life.owner(shard_id)

    @property
    def all_closed(self) -> dict[str, str]:
        """Why shards are closed, by id, those among them whose logs do not exist."""
        return self._of_life.all_closed()

    @property
    def opening(self) -> dict[str, str]:
        """Why shards are not open yet, by id: each is tried again and again."""
        return self._of_life.begun.waiting()

    def find_followable(self, shard_id: str) -> ShardOwner:
        """Return a shard whose log may be read, open or ended. Raises ``Unavailable``."""
        return self._reshapes.ended.get(shard_id) or self.owner(shard_id)

    @property
    def flushed_s(self) -> float | None:
        """When the changelog had everything last, in seconds of ``time.monotonic``."""
        return self._changelog.flushed_s

    @property
    def ended(self) -> int:
        """How many shards have ended whose logs are kept."""
        return len(self._reshapes.ended)

    @property
    def arriving(self) -> int:
        """How many shards are being moved here."""
        return len(self._intakes.arriving)

    def find_received(self, shard_id: str) -> int:
        """Return the last offset folded of a shard that is being moved here; -1 for none."""
        owner = self._intakes.arriving.get(shard_id)
        return -1 if owner is None else owner.shard.state.applied

    def readable(self) -> bool:
        """True if strong reads may be served now."""
        return self._leases.readable(self.number)

    def served_elsewhere(self) -> bool:
        """True if the lease names another live worker while we prepare."""
        return self.foreign and self._leases.holder(self.number) is not None

    async def run(self) -> None:
        """Open and serve until cancelled; open again after whatever fails."""
        backoff_s = BACKOFF_S
        while True:
            # A task for each life: a group that fails as it is left leaves a cancellation behind.
            async with asyncio.TaskGroup() as lives:
                life = lives.create_task(self._live(), name=f"life[{self.number}]")
            if life.result():
                backoff_s = BACKOFF_S
            if self._leases.is_lost(self.number) and self._handover.give_way(self.number):
                await asyncio.Event().wait()  # Until we are stopped.
            if self.openings.are_for_others():
                await self._leave_to_others()
            await asyncio.sleep(backoff_s)
            backoff_s = min(backoff_s * 2, BACKOFF_S_MAX)

    async def _live(self) -> bool:
        """Open and serve until something fails; return whether it was open."""
        opened = False
        try:
            async with LifeTasks() as tasks:
                serving = await self._open(tasks)
                opened = True
                self.openings.note_success()
                self.begin_settling()  # The catalog may have learned more meanwhile.
                start_jobs(self._upkeep(serving.rows), tasks, self.number)
        except* (StoreError, StoreFailed, Fenced, StoreBehind, LogTrimmed) as failures:
            failure = first_failure(failures)
            logger.warning("slot %d opens again: %s", self.number, failure)
            self.openings.note_end(failure, opened=opened)
        finally:
            self._close()
        return opened

    async def _leave_to_others(self) -> None:
        """Release a lease that is renewed though nothing is served under it; we go on trying.

        Once we are ready to serve we ask for the slot whoever has it by then.
        """
        if self._leases.readable(self.number):
            logger.warning("slot %d is left to others until it opens here", self.number)
            if isinstance(self._life.state, ClosedSlot):
                self._life.move(LifeEvent.LEAVE, ClosedSlot(is_foreign=True))
            await self._leases.release(self.number)

    async def drain(self) -> None:
        """Flush the changelog while all is served; then answer what was taken, release the lease.

        What is written during the flush, the next owner reads from the logs: that is faster.
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
        await self._leases.release(self.number)

    def begin_settling(self) -> None:
        """Begin to bring the shards in line with the catalog, each on its own.

        Where the slot is not open yet, only what it serves: the rest opens by the catalog as it is
        read by now. Raises ``Unavailable`` where the slot closes just now.
        """
        state = self._life.state
        if not isinstance(state, StartedSlot):
            return
        gone: list[str] = []
        if isinstance(state, ServingSlot):
            wanted = {shard.shard_id: shard for _, shard in self._tables(self.number)}
            known = self._reshapes.known
            for shard_id in [name for name in wanted if name not in known]:
                self._runner.begin(wanted[shard_id], state)
            gone = [name for name in self.shards if name not in wanted]
            if self.closed:
                ended = {shard.shard_id for _, shard in self._links.list_ended(self.number)}
                self.closed.keep(ended.union(wanted))
            self._reshapes.settle(state.tasks, state.rows, state.claim)
            self._intakes.settle(state.tasks, state.rows)
        self._settling.begin(state.tasks, gone)

    async def wait_until_settled(self, tables: Collection[int]) -> None:
        """Return once the shards of these tables, by number, are in line with the catalog.

        Then those that are new are open, those that are gone are sealed, and what changed is in
        force. Raises ``Unavailable``; then it is to be called again.
        """
        within_s = self._settings.shard.write_s_max
        if self.opened.is_set():
            here = [s.shard_id for t, s in self._tables(self.number) if concerns(t, tables)]
            await self._of_life.begun.wait_until_served(here, within_s=within_s)
        await self._settling.wait_until_settled(tables, within_s=within_s)

    def _is_gone(self, shard_id: str) -> bool:
        """True if an open shard no longer belongs to the slot."""
        here = self._tables(self.number)
        return self.opened.is_set() and all(shard.shard_id != shard_id for _, shard in here)

    async def _seal(self, owner: ShardOwner, plan: str) -> Sealed:
        """End a shard's log; it is open no more."""
        shard_id = owner.shard.shard_id
        self._index_work.stop(shard_id)
        seal = await owner.seal(plan)
        self.shards.pop(shard_id, None)
        return seal

    def retable(self) -> None:
        """Let the open shards know their tables as the catalog has them now."""
        state = self._life.state
        if not isinstance(state, StartedSlot):
            return
        tables = {shard.shard_id: table for table, shard in self._tables(self.number)}
        for shard_id, owner in self.shards.items():
            table = tables.get(shard_id)
            if table is not None and table != owner.shard.table:
                with suppress(Unavailable):  # The slot closes; it opens with its newest tables.
                    self._index_work.retable(owner, table, state.tasks)

    async def repair(self, shard_id: str, *, accept: bool) -> Loss:
        """Tell what a closed shard's log has lost; with ``accept`` serve what is left.

        Raises ``Rejected`` where it is not closed, or for another reason, and ``Unavailable`` where
        there is no log in which something might be left.
        """
        if (why := self._of_life.begun.find_gone(shard_id)) is not None:
            raise Unavailable(why)
        async with self._repairing:  # One at a time: whoever is second finds it served.
            found = [pair for pair in self._tables(self.number) if pair[1].shard_id == shard_id]
            state = self._life.state
            waits = shard_id in self.closed and shard_id not in self._of_life.begun
            can_repair = self._changelog.is_open and waits and bool(found)
            if not isinstance(state, OwnedSlot) or not can_repair:
                raise invalid(f"Shard '{shard_id}' is not closed.")
            [(table, shard)] = found
            owner = self._opener.arriving(table, shard, state.rows)
            loss = await find_loss(owner)
            if accept:
                await self._require_claim()
                hold_rows(owner, loss)
                await self.flush(owner)
                await fill_log(owner, loss, state.claim, self._leases.owner)
                if self.rows is not owner.rows or self.closed.pop(shard_id, None) is None:
                    raise Unavailable(f"slot {self.number} was opened again")
                self._runner.begin(shard, state)
                with suppress(Unavailable):  # It is accepted, and opens later.
                    await self._of_life.begun.wait_until_served(
                        [shard_id], within_s=self._settings.shard.write_s_max
                    )
            return loss

    async def flush(self, *held: ShardOwner) -> int:
        """Flush the changelog now; return the number of entries. ``held`` are closed shards.

        Raises as ``ChangelogWriter.flush``, and ``Unavailable`` where the slot closes meanwhile.
        """
        return await self._changelog.flush(partial(self._flush_scope, *held), held)

    def _flush_scope(self, *held: ShardOwner) -> FlushScope:
        """Return what a flush may write now."""
        links, number = self._links, self.number
        owners = {**self._reshapes.ended, **self._intakes.arriving, **self.shards}
        owners |= {owner.shard.shard_id: owner for owner in held}
        shards = [*links.list_ended(number), *links.arriving(number), *self._tables(number)]
        return flush_scope(owners, shards)

    # Opening.

    async def _open(self, tasks: LifeTasks) -> ServingSlot:
        """Claim the slot and open its shards; return the state that it has then."""
        move = self._life.move
        move(LifeEvent.LEAVE, ClosedSlot(is_foreign=True))  # Also if the rows don't open.
        rows = self._open_rows()
        move(LifeEvent.OPEN_ROWS, PreparingSlot(tasks, rows))
        known = find_known_shards(rows)
        if known is None:  # To read everything takes long, of which others may have a copy.
            await self._leave_to_others()
        await self._links.catalog_read()  # It tells which rows came back that were removed.
        await self._read_changelog(rows)  # Much of what there is to do, before it is ours.
        if why := self._intakes.unusable(rows, known, self._tables(self.number)):
            raise self._behind(why)  # Whoever serves it goes on while they are rebuilt.
        await self._changelog.prepare()
        await self._handover.obtain(self.number)
        move(LifeEvent.HAND_OVER, ClaimingSlot(tasks, rows))
        claim = self.claim = await self._leases.claim(self.number)
        owned = ClaimedSlot(tasks, rows, claim)
        move(LifeEvent.CLAIM, owned)
        await self._changelog.fence()  # The catalog read from now on knows all that was flushed.
        async with asyncio.TaskGroup() as reads:  # Side by side: writers wait for this.
            reads.create_task(self._before_open(claim), name=f"catalog[{self.number}]")
            await self._read_changelog(rows)
        if why := self._intakes.unusable(rows, known, self._tables(self.number)):
            raise self._behind(why)
        self._changelog.open(rows)
        if self._reshapes.rest_on_changelog(rows, self._tables(self.number)):
            await self._changelog.require_read()
        start_jobs([self._watch(rows)], tasks, self.number)
        await self._reshapes.open_what_answers(rows)
        for _, shard in self._tables(self.number):
            self._runner.begin(shard, owned)
        await self._of_life.begun.wait_until_tried()
        if self.closed or self._of_life.begun.waiting() or self._reshapes.unread:
            # Or was the changelog's end told by a deposed broker? After a flush nothing tells.
            await self._changelog.require_read()
        serving = ServingSlot(tasks, rows, claim)
        move(LifeEvent.OPEN_SHARDS, serving)
        self._commits.restart()
        self._changelog.flushed_s = self.flushed_s or time.monotonic()
        logger.info("slot %d is open, %d shards", self.number, len(self.shards))
        return serving

    def _open_rows(self) -> RowStore:
        return local_rows(self._path, kept_s=self._settings.changelog_kept_s)

    async def _require_claim(self) -> None:
        """Step down where a later claim has taken the slot: nothing more is done under ours."""
        if not await self._leases.still_last(self.number):
            raise Unavailable(f"slot {self.number} was claimed by another worker")

    def _list_shards(self) -> list[tuple[Table, ShardRange]]:
        """Return the slot's shards, with those that have ended and are not forgotten."""
        return [*self._links.list_ended(self.number), *self._tables(self.number)]

    async def _read_changelog(self, rows: RowStore) -> None:
        try:
            reader = self._cluster.changelog_reader(self._topics.changelog, self.number)
            await recover_rows(rows, reader, self._table_known, self._list_shards())
        except StartPassed as error:
            raise self._behind(str(error)) from error

    def _behind(self, why: str) -> StoreBehind:
        """Throw the local rows away; the next opening rebuilds them."""
        if isinstance(state := self._life.state, StartedSlot):
            self._life.move(LifeEvent.DISCARD_ROWS, ClosedSlot(is_foreign=state.is_foreign))
            with suppress(StoreFailed):  # It writes what it has all the same, if it can.
                state.rows.close(flush=False)
        destroy(self._path)
        return StoreBehind(f"{self._path}: {why}; rebuilding from Kafka")

    def _table_of(self, shard: ShardRange) -> Table | None:
        """Return a shard's table as the catalog has it now."""
        return next((t for t, s in self._tables(self.number) if s.shard_id == shard.shard_id), None)

    # Upkeep.

    def _watch(self, rows: RowStore) -> UpkeepJob:
        """Return the job that begins before the shards open."""
        return UpkeepJob("watch", every(WATCH_S), partial(self._watch_shards, rows))

    def _upkeep(self, rows: RowStore) -> tuple[UpkeepJob, ...]:
        """Return the jobs of an open slot: name, interval, job."""
        settings, sweep = self._settings, self._sweep
        return (
            UpkeepJob("flush", self._wait_for_flush, self._flush_changes),
            UpkeepJob("look", every(LOOK_AGAIN_S), partial(self._look_at_closed, rows)),
            UpkeepJob(
                "sweep", sweep.wait, partial(sweep.run, rows, self._intakes), is_due_first=True
            ),
            UpkeepJob("trim", every(settings.trim_s), partial(self._trim_logs, rows)),
            UpkeepJob("reclaim", every(settings.reclaim.pause_s), self.reclaimer.go_through),
        )

    async def _watch_shards(self, rows: RowStore) -> None:
        """Answer clients that waited too long; end the life where it cannot go on.

        It cannot after a later claim, and where the rows can't be read.
        """
        for owner in self.shards.values():
            owner.expire()
        if self._leases.is_lost(self.number):
            raise Unavailable(f"slot {self.number} was claimed by another worker")
        if rows.damaged:
            raise StoreBehind(f"{self._path}: {rows.damaged}")

    async def _look_at_closed(self, rows: RowStore) -> None:
        """Open again what a deposed broker had closed; read ended shards that were not read."""
        known = len(self.closed)
        if self._reshapes.unread:
            await self._reshapes.open_what_answers(rows)
        if len(self.closed) > known:  # As for those that are closed while the slot opens.
            await self._changelog.require_read()
        mistaken = False
        with log_failures(f"slot {self.number}: logs of closed shards"):
            lacks_nothing = partial(self._opener.lacks_nothing, self._list_shards(), rows)
            mistaken = await self.closed.were_mistaken(lacks_nothing)
        if mistaken:
            raise Unavailable("the logs of closed shards lack nothing")

    async def _wait_for_flush(self) -> None:
        """Return after the flush interval, or earlier where there is much to flush."""
        for _ in range(10):
            await asyncio.sleep(self._settings.flush_s / 10)
            if self._has_much_to_flush():
                break

    async def _flush_changes(self) -> None:
        failed = True
        with log_failures(f"slot {self.number}: flush"):
            await self.flush()
            failed = False
        self._counts.flush_failures += failed
        with log_failures(f"slot {self.number}: the age of its rows"):
            await self._changelog.touch()

    def _has_much_to_flush(self) -> bool:
        scope, settings = self._flush_scope(), self._settings
        return scope.dirty > settings.dirty_max or scope.dirty_bytes > settings.dirty_bytes_max

    async def _trim_logs(self, rows: RowStore) -> None:
        await self._trim.trim_logs(self.number, self.shards, self._reshapes.ended)
        with log_failures(f"slot {self.number}: old commits"):
            await self._sweep.commits(rows, self._commits.before_us)

    async def _make_room(self, ranges: Sequence[tuple[bytes, bytes]]) -> int:
        """Remove some of the rows within ranges; return how many chunks."""
        rows = self.rows
        if rows is None:
            raise Unavailable(f"slot {self.number} is not open")
        return await self._sweep.within(rows, ranges)

    def _log_of(self, shard_id: str) -> Log:
        """Return a handle of its own on a shard's log."""
        return self._cluster.log(self._topics.shard(shard_id))

    def _close(self) -> None:
        # A task that was ended before it began has taken nothing off.
        for of_life in (self._of_life, self.feeders, self._settling):
            of_life.clear()
        self._reshapes.clear()
        self._intakes.clear()
        self._changelog.close()
        with log_failures(f"closing {self._path}"):
            state = self._life.state
            if isinstance(state, StartedSlot) and state.rows.damaged:
                # The damage would be met in every life.
                logger.warning("%s", self._behind(state.rows.damaged))
            elif isinstance(state, StartedSlot):
                self._life.move(LifeEvent.CLOSE, ClosedSlot(is_foreign=state.is_foreign))
                state.rows.close()
