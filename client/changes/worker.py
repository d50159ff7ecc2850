"""Reads a table's stream together with the other readers of the same consumer.

Each reader takes leases of shards and follows them. Parents are finished before their children. A
reader that stops hands its shards over at its position. Shards of a reader that crashes are taken
when their leases have expired. docs/guides/change-reader.md lists what may come twice, and when.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence

from rowtide.client.changes.clock import lease_clock
from rowtide.client.changes.lease_balance import Plan, plan_leases, readable
from rowtide.client.changes.leases import START, Leases, ReaderLease
from rowtide.client.changes.shard_follower import Batch, FollowerSettings, Handle, ShardFollower
from rowtide.client.changes.source import ChangeSource, SourceShard
from rowtide.client.changes.start import NOWHERE, Begin, Start, rewind, start_at, unread_of
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
"""An observer waits longer than the lease by this factor: clocks run at different speeds."""


class ChangeWorker:
    """One reader of the consumer of ``leases``.

    ``handle`` is called with batches, one at a time for each shard. ``begin`` is for a new
    consumer: its first reader decides it for good.
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
        """Leases that ended while their shard was followed here. Batches in hand come again.
        """
        self._source = source
        self._leases = leases
        self._handle = handle
        self._settings = settings or FollowerSettings()
        self._clock = clock
        skips_rows = begin == "rows" and self._settings.skips_rows
        self._begin: Begin = "oldest" if skips_rows else begin
        self._start = NOWHERE
        self._epoch = 0
        self._followers: dict[str, ShardFollower] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._seen: dict[str, tuple[int, float]] = {}
        """Each row's counter, and the time since when we have seen it."""
        self._missing: dict[str, float] = {}
        self._wake = asyncio.Event()
        self._stopping = False

    @property
    def shards(self) -> list[str]:
        """Return the shards that are followed here now."""
        return sorted(self._followers)

    def stop(self) -> None:
        """End ``run`` once the batches in hand are finished and the leases released."""
        self._stopping = True
        for follower in self._followers.values():
            follower.stop()
        self._wake.set()

    def plan(
        self,
        shards: Sequence[SourceShard],
        leases: Mapping[str, ReaderLease],
        over: Collection[str],
    ) -> Plan:
        """Return the shards to take of those that can be read; ``over`` names expired leases."""
        return plan_leases(self.id, shards, leases, over)

    def keeps(self, shard_id: str) -> bool:
        """True if a shard that is followed here may stay here."""
        return True

    async def run(self) -> None:
        """Read until stopped. A failure of ``handle``, or one that retries cannot fix, ends it.

        If cancelled, it leaves its leases to expire, as after a crash.
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
                started = await self._read_start()
                if await self._join(started):
                    return
            except (Unavailable, OutcomeUnknown) as error:
                logger.debug("consumer %s: %s", self.consumer, error)
                await asyncio.sleep(self._beat_s)

    async def _read_start(self) -> ReaderLease:
        """Return the row where the consumer began; create it for a new consumer.

        It decides for every shard at once. A shard that is listed later has only later changes, and
        is read from its beginning.
        """
        started = (await self._leases.all()).get(START)
        if started is None:
            start = await start_at(self._source, self._begin)
            started = await self._leases.create(ReaderLease(START, position=start.text()))
        return started

    async def _join(self, started: ReaderLease) -> bool:
        """Join the epoch of this row. False if it begins with rows, which would be skipped.

        Then the consumer is rewound to the oldest change, in one more epoch.
        """
        start = Start.parse(started.position)
        if start.snapshot and self._settings.skips_rows:
            await rewind(self._source, self._leases, "oldest")
            return False
        self._start, self._epoch = start, started.epoch
        return True

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
                    await self._report_positions()
            except (Unavailable, OutcomeUnknown, TimeoutError) as error:
                logger.debug("consumer %s: %s", self.consumer, error)
            self._drop_lost()
            try:
                async with asyncio.timeout(self._beat_s):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def _renew(self) -> None:
        """Renew every lease, independently of the others."""
        async with asyncio.TaskGroup() as renewing:
            for follower in self._followers.values():
                renewing.create_task(self._renew_one(follower), name=f"renew {follower.shard_id}")

    async def _report_positions(self) -> None:
        """Report the positions for monitoring. A failure is only logged."""
        positions = [f.position for f in self._followers.values() if f.position]
        try:
            if positions:
                await self._source.report_positions(self.consumer, positions)
        except StoreError as error:
            logger.info("consumer %s: positions not reported: %s", self.consumer, error)

    async def _renew_one(self, follower: ShardFollower) -> None:
        try:
            await follower.renew()
        except StoreError as error:
            logger.debug("shard %s: renewal failed, retried: %s", follower.shard_id, error)
        is_requested = follower.lease.wanted and follower.lease.owner == self.id
        if is_requested or not self.keeps(follower.shard_id):
            follower.stop()

    def _drop_lost(self) -> None:
        """Stop following shards whose lease may be another reader's by now."""
        for shard_id, follower in self._followers.items():
            if not follower.is_leased:
                self._cancel(shard_id)

    def _cancel(self, shard_id: str) -> None:
        """Stop following a shard, even if the handler suppresses the cancellation."""
        self._followers[shard_id].stop()
        self._running[shard_id].cancel()

    async def _take(self, tasks: asyncio.TaskGroup) -> None:
        """Take our share of the shards, and request a missing one."""
        # Read the rows first: any shard that they name was listed before.
        rows = await self._leases.all()
        shards = await self._source.shards()
        over = self._find_expired(rows) | {
            lease.shard_id
            for lease in rows.values()
            if lease.owner == self.id and lease.shard_id not in self._followers
        }
        if not await self._join_epoch(rows, over):
            return
        leases = self._start.leases(self._epoch)
        leases |= {name: lease for name, lease in rows.items() if lease.epoch == self._epoch}
        self._require_listed(leases, shards)
        plan = self.plan(readable(shards, leases), leases, over)
        for shard in plan.take:
            if shard.shard_id not in self._followers:
                await self._take_one(tasks, shard, rows.get(shard.shard_id), leases, shards)
        if plan.ask is not None:
            await self._leases.change(plan.ask, plan.ask._replace(wanted=self.id))
        await self._forget(rows, shards)

    async def _join_epoch(self, rows: Mapping[str, ReaderLease], over: set[str]) -> bool:
        """True if all readers are in the consumer's epoch. Joins it and releases old leases.

        Shards are taken only then, so that no reader passes on old changes between new ones.
        """
        started = rows.get(START)
        if started is not None and started.epoch > self._epoch:
            if not await self._join(started):
                return False
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
                return  # Another reader created the row first.
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
            follower.stop()  # Stopped during the request: release the lease at once.
        self._followers[shard.shard_id] = follower
        following = tasks.create_task(follower.run(), name=f"shard {shard.shard_id}")
        # Called also if the task is cancelled before it starts.
        following.add_done_callback(lambda _: self._forget_follower(follower))
        self._running[shard.shard_id] = following

    def _forget_follower(self, follower: ShardFollower) -> None:
        """Remove a follower that has ended."""
        del self._followers[follower.shard_id], self._running[follower.shard_id]
        self._wake.set()
        if not follower.is_released:
            self.lost += 1
            if follower.is_leased:
                # Cancelled, rewound, or failed in its handler: no other reader took it.
                logger.info("consumer %s stops reading shard %s", self.consumer, follower.shard_id)
            else:
                logger.warning("consumer %s lost shard %s", self.consumer, follower.shard_id)

    async def _first_lease(
        self, shard: SourceShard, leases: Mapping[str, ReaderLease], shards: Sequence[SourceShard]
    ) -> ReaderLease:
        """Return the first row of a shard that is not read yet in this epoch."""
        position = self._start.positions.get(shard.shard_id)
        if position is None:
            self._require_parents(shard, leases, shards)
            position = await self._source.position(shard.shard_id, None)
        pending = unread_of(shard, self._start, leases, shards)
        return ReaderLease(shard.shard_id, position=position, pending=pending, epoch=self._epoch)

    def _find_expired(self, leases: Mapping[str, ReaderLease]) -> set[str]:
        """Return the shards whose rows have not changed for the length of a lease."""
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
        """Raise ``LogTrimmed`` if a shard is gone that was not read to its end."""
        listed = {shard.shard_id for shard in shards} | {START}
        now_s = self._clock()
        gone = [lease.shard_id for lease in leases.values() if not lease.ended]
        # A worker may list a new shard a moment later than the worker that was called before.
        self._missing = {
            shard_id: self._missing.get(shard_id, now_s)
            for shard_id in gone
            if shard_id not in listed
        }
        for shard_id, since_s in self._missing.items():
            if now_s - since_s > self._settings.lease_s:
                raise LogTrimmed(
                    f"Consumer {self.consumer} has not read shard {shard_id} to its end, and it is "
                    f"no longer kept."
                )

    def _require_parents(
        self, shard: SourceShard, leases: Mapping[str, ReaderLease], shards: Sequence[SourceShard]
    ) -> None:
        """Raise ``LogTrimmed`` if a parent is gone that no reader had begun to read.

        With a snapshot nothing is missed: all rows of the shard are read.
        """
        listed = {other.shard_id for other in shards}
        for parent in shard.parents:
            lease = leases.get(parent)
            if parent not in listed and lease is None and not self._start.snapshot:
                raise LogTrimmed(
                    f"Consumer {self.consumer} has not read shard {parent}, and it is no longer "
                    f"kept."
                )

    async def _forget(self, rows: Mapping[str, ReaderLease], shards: Sequence[SourceShard]) -> None:
        """Remove the rows of shards that are read and no longer kept. Any reader does this."""
        listed = {shard.shard_id for shard in shards} | {START}
        needed = {parent for shard in shards for parent in shard.parents}
        for row in rows.values():
            done = row.ended or row.epoch < self._epoch
            if done and row.shard_id not in listed | needed:
                await self._leases.remove(row)
