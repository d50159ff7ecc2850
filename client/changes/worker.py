"""Reads a table's stream together with the other readers of the same consumer.

Each takes leases of shards and follows them; parents are finished before their children. A reader
that stops hands its shards over where it is; those of one that crashes are taken when their leases
have ended. See docs/guides/change-reader.md for what may come twice, and when.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Mapping, Sequence

from rowtide.client.changes.clock import lease_clock
from rowtide.client.changes.lease_balance import planned, readable
from rowtide.client.changes.leases import START, Leases, ReaderLease
from rowtide.client.changes.shard_follower import Batch, FollowerSettings, Handle, ShardFollower
from rowtide.client.changes.source import ChangeSource, SourceShard
from rowtide.client.changes.start import NOWHERE, Begin, Start, start_at, unread_of
from rowtide.core.values.errors import (
    LogTrimmed,
    OutcomeUnknown,
    StoreError,
    Unavailable,
    first_failure,
)

__all__ = ["Batch", "ChangeWorker", "FollowerSettings", "Handle"]

logger = logging.getLogger(__name__)

DRIFT = 1.1
"""An observer waits this much longer than the owner of a lease relies on it."""


class ChangeWorker:
    """One reader of the consumer that ``leases`` are of.

    ``handle`` is called with batches, of one shard one at a time. ``begin`` is for a consumer that
    is new: its first reader decides it, for good.
    """

    def __init__(
        self,
        source: ChangeSource,
        leases: Leases,
        handle: Handle,
        *,
        begin: Begin = "oldest",
        settings: FollowerSettings | None = None,
        clock: Callable[[], float] = lease_clock,
    ) -> None:
        self.consumer = leases.consumer
        self.id = secrets.token_hex(8)
        self.lost = 0
        """Leases that ended while a shard was followed here: what was in hand comes again."""
        self._source = source
        self._leases = leases
        self._handle = handle
        self._settings = settings or FollowerSettings()
        self._clock = clock
        self._begin = begin
        self._start = NOWHERE
        self._epoch = 0
        self._followers: dict[str, ShardFollower] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._seen: dict[str, tuple[int, float]] = {}
        """Each row's counter, and since when we have seen it."""
        self._missing: dict[str, float] = {}
        self._wake = asyncio.Event()
        self._stopping = False

    @property
    def shards(self) -> list[str]:
        """Return the shards that are followed here now."""
        return sorted(self._followers)

    def stop(self) -> None:
        """Let ``run`` end once the batches in hand are finished and the leases given up."""
        self._stopping = True
        for follower in self._followers.values():
            follower.stop()
        self._wake.set()

    async def run(self) -> None:
        """Read until stopped. What ``handle`` raises ends it, as does what no retry mends.

        Cancelled, it leaves its leases to end by themselves, as a crash would.
        """
        await self._find_start()
        try:
            async with asyncio.TaskGroup() as tasks:
                await self._balance(tasks)
        except BaseExceptionGroup as group:
            raise first_failure(group) from group

    async def _find_start(self) -> None:
        """Find or decide where the consumer begins."""
        while not self._stopping:
            try:
                await self._leases.open(await self._source.table_name())
                started = await self._found_start()
                self._start, self._epoch = Start.parsed(started.position), started.epoch
                return
            except (Unavailable, OutcomeUnknown) as error:
                logger.debug("consumer %s: %s", self.consumer, error)
                await asyncio.sleep(self._beat_s)

    async def _found_start(self) -> ReaderLease:
        """Return where the consumer began, or begin: one row says it for every shard at once.

        A shard that is listed later holds only what came later, and is read from its beginning.
        """
        started = (await self._leases.all()).get(START)
        if started is None:
            start = await start_at(self._source, self._begin)
            started = await self._leases.create(ReaderLease(START, position=start.text()))
        return started

    @property
    def _beat_s(self) -> float:
        return self._settings.lease_s / 5

    async def _balance(self, tasks: asyncio.TaskGroup) -> None:
        while not self._stopping or self._followers:
            self._wake.clear()
            try:
                async with asyncio.timeout(2 * self._beat_s):
                    await self._renew()
                    if not self._stopping:
                        await self._take(tasks)
                    await self._tell_positions()
            except (Unavailable, OutcomeUnknown, TimeoutError) as error:
                logger.debug("consumer %s: %s", self.consumer, error)
            self._drop_lost()
            try:
                async with asyncio.timeout(self._beat_s):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def _renew(self) -> None:
        """Renew every lease, each for itself."""
        async with asyncio.TaskGroup() as renewing:
            for follower in self._followers.values():
                renewing.create_task(self._renew_one(follower), name=f"renew {follower.shard_id}")

    async def _tell_positions(self) -> None:
        """Tell those who watch; that it fails is no reason to read any less."""
        positions = [f.position for f in self._followers.values() if f.position]
        try:
            if positions:
                await self._source.finished(self.consumer, positions)
        except StoreError as error:
            logger.info("consumer %s: its positions are not told: %s", self.consumer, error)

    async def _renew_one(self, follower: ShardFollower) -> None:
        try:
            await follower.renew()
        except StoreError as error:
            logger.debug("shard %s is renewed later: %s", follower.shard_id, error)
        if follower.lease.wanted and follower.lease.owner == self.id:
            follower.stop()

    def _drop_lost(self) -> None:
        """Stop at once what may be another reader's by now."""
        for shard_id, follower in self._followers.items():
            if not follower.holds:
                self._cancel(shard_id)

    def _cancel(self, shard_id: str) -> None:
        """Stop following a shard, also where the handler swallows that it is cancelled."""
        self._followers[shard_id].stop()
        self._running[shard_id].cancel()

    async def _take(self, tasks: asyncio.TaskGroup) -> None:
        """Take what is our share, and ask for what is missing of it."""
        # The rows first: whatever they name was listed before.
        rows = await self._leases.all()
        shards = await self._source.shards()
        over = self._expired(rows) | {
            lease.shard_id
            for lease in rows.values()
            if lease.owner == self.id and lease.shard_id not in self._followers
        }
        if not await self._same_epoch(rows, over):
            return
        leases = self._start.leases(self._epoch)
        leases |= {name: lease for name, lease in rows.items() if lease.epoch == self._epoch}
        self._require_listed(leases, shards)
        plan = planned(self.id, readable(shards, leases), leases, over)
        for shard in plan.take:
            if shard.shard_id not in self._followers:
                await self._take_one(tasks, shard, rows.get(shard.shard_id), leases, shards)
        if plan.ask is not None:
            await self._leases.change(plan.ask, plan.ask._replace(wanted=self.id))
        await self._forget(rows, shards)

    async def _same_epoch(self, rows: Mapping[str, ReaderLease], over: set[str]) -> bool:
        """True if all readers are in the consumer's epoch; join it, and release the leases.

        Only then is anything taken in it, so that nobody is given what is old between what is new.
        """
        started = rows.get(START)
        if started is not None and started.epoch > self._epoch:
            self._start, self._epoch = Start.parsed(started.position), started.epoch
            for shard_id in self._followers:
                self._cancel(shard_id)
            logger.info("consumer %s was rewound", self.consumer)
            self._wake.set()
            return False
        old = [row for row in rows.values() if row.epoch < self._epoch and row.owner]
        for row in old:
            if row.owner == self.id and row.shard_id not in self._followers:
                await self._leases.change(row, row._replace(owner=""))
        return all(row.shard_id in over for row in old)

    async def _take_one(
        self,
        tasks: asyncio.TaskGroup,
        shard: SourceShard,
        row: ReaderLease | None,
        leases: Mapping[str, ReaderLease],
        shards: Sequence[SourceShard],
    ) -> None:
        lease = leases.get(shard.shard_id) or await self._first_lease(shard, leases, shards)
        if row is None:
            row = await self._leases.create(lease)
            if row != lease:
                return  # Somebody was faster.
        leased_s = self._clock()
        mine = lease._replace(counter=row.counter, owner=self.id, wanted="")
        if await self._leases.change(row, mine) != mine._replace(counter=row.counter + 1):
            return
        follower = ShardFollower(
            mine._replace(counter=row.counter + 1),
            self._source,
            self._leases,
            self._handle,
            self._settings,
            leased_s=leased_s,
            clock=self._clock,
        )
        if self._stopping:
            follower.stop()  # It came while we asked: the lease is given up again at once.
        self._followers[shard.shard_id] = follower
        following = tasks.create_task(follower.run(), name=f"shard {shard.shard_id}")
        # Called also where the task is cancelled before it has begun.
        following.add_done_callback(lambda _: self._left(follower))
        self._running[shard.shard_id] = following

    def _left(self, follower: ShardFollower) -> None:
        """Note that a shard is followed no more."""
        del self._followers[follower.shard_id], self._running[follower.shard_id]
        self._wake.set()
        if not follower.given_up:
            self.lost += 1
            if follower.holds:
                # Cancelled, rewound, or failed in its handler: nobody took it away.
                logger.info("consumer %s leaves shard %s", self.consumer, follower.shard_id)
            else:
                logger.warning("consumer %s lost shard %s", self.consumer, follower.shard_id)

    async def _first_lease(
        self, shard: SourceShard, leases: Mapping[str, ReaderLease], shards: Sequence[SourceShard]
    ) -> ReaderLease:
        """Return what the row of a shard says that nobody has read in this epoch."""
        position = self._start.positions.get(shard.shard_id)
        if position is None:
            self._require_parents(shard, leases, shards)
            position = await self._source.position(shard.shard_id, None)
        pending = unread_of(shard, self._start, leases, shards)
        return ReaderLease(shard.shard_id, position=position, pending=pending, epoch=self._epoch)

    def _expired(self, leases: Mapping[str, ReaderLease]) -> set[str]:
        """Return the shards whose rows nobody has touched for the length of a lease."""
        now_s = self._clock()
        seen: dict[str, tuple[int, float]] = {}
        for shard_id, lease in leases.items():
            known = self._seen.get(shard_id)
            unmoved = known is not None and known[0] == lease.counter
            seen[shard_id] = known if unmoved and known else (lease.counter, now_s)
        self._seen = seen
        lease_s = self._settings.lease_s * DRIFT
        return {shard_id for shard_id, (_, since_s) in seen.items() if now_s - since_s >= lease_s}

    def _require_listed(
        self, leases: Mapping[str, ReaderLease], shards: Sequence[SourceShard]
    ) -> None:
        """Raise ``LogTrimmed`` where a shard is gone that was not read to its end."""
        listed = {shard.shard_id for shard in shards} | {START}
        now_s = self._clock()
        gone = [lease.shard_id for lease in leases.values() if not lease.ended]
        # Another worker may list a new shard a moment later than the one that was asked before.
        self._missing = {
            shard_id: self._missing.get(shard_id, now_s)
            for shard_id in gone
            if shard_id not in listed
        }
        for shard_id, since_s in self._missing.items():
            if now_s - since_s > self._settings.lease_s:
                raise LogTrimmed(
                    f"Consumer {self.consumer} has not read shard {shard_id} to its end, and it is "
                    f"kept no more."
                )

    def _require_parents(
        self, shard: SourceShard, leases: Mapping[str, ReaderLease], shards: Sequence[SourceShard]
    ) -> None:
        """Raise ``LogTrimmed`` where a parent is gone that nobody had begun to read.

        With a snapshot nothing is missed: all rows of the shard are read.
        """
        listed = {other.shard_id for other in shards}
        for parent in shard.parents:
            lease = leases.get(parent)
            if parent not in listed and lease is None and not self._start.snapshot:
                raise LogTrimmed(
                    f"Consumer {self.consumer} has not read shard {parent}, and it is kept no more."
                )

    async def _forget(self, rows: Mapping[str, ReaderLease], shards: Sequence[SourceShard]) -> None:
        """Remove the rows of shards that are read and kept no more, by whoever reads anything."""
        listed = {shard.shard_id for shard in shards} | {START}
        needed = {parent for shard in shards for parent in shard.parents}
        for row in rows.values():
            done = row.ended or row.epoch < self._epoch
            if done and row.shard_id not in listed | needed:
                await self._leases.remove(row)
