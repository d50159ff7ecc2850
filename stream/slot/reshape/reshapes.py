"""Splits, merges and moves of a slot's shards.

The owner of the parents carries out a change that the catalog plans. It creates the logs
of the children and seals each parent. Then the catalog puts the children in their place.
A worker may end after any step: the next owner finds the plan in the catalog and the
seals in the logs, and continues. A parent that has ended stays here. Its rows are flushed
up to its seal before its log may be deleted, and its stream is read until it has expired.

Children of the same slot share the parents' rows, so nothing is copied. A move copies
them into the child's log first (``stream/shard/copy.py``).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from functools import partial

from rowtide.core.records import record
from rowtide.core.shard.reshape import MOVE, Reshape, Sealed, plan_of
from rowtide.core.values.errors import OutcomeUnknown, StoreError, Unavailable
from rowtide.core.values.schema import ShardRange, Table
from rowtide.stream.log.log import Log
from rowtide.stream.measures.counts import Counts
from rowtide.stream.shard.appender import LogShortened
from rowtide.stream.shard.copy import Range, ShardCopy, came_back, is_complete, row_ranges
from rowtide.stream.shard.owner import ShardOwner
from rowtide.stream.shard.row_store import RowStore
from rowtide.stream.shard.single_task import SingleTask
from rowtide.stream.slot.failures import log_failures
from rowtide.stream.slot.opening.shard_opening import ShardOpener
from rowtide.stream.slot.opening.slot_shards import SlotShards
from rowtide.stream.slot.reshape.reshape_links import ReshapeLinks

__all__ = ["SlotReshapes"]

logger = logging.getLogger(__name__)

RETRY_S = 0.05
RETRY_S_MAX = 2.0

QUIET_S = 5.0
"""Time for which a shard's end waits for its open transactions; then they are ended."""

QUIET_LOOK_S = 0.05

LEFT_ENTRIES = 500
LEFT_RECORDS = 3
"""Bounds of what a move may leave to copy, and the other slot to fold, while no client may write.
"""

SEALS_MAX = 10
SEAL_AGAIN_S = 1.0
"""A shard that cannot be sealed is served for this long; after this many failures a move
copies anew.
"""

ROUND_S = 0.05
ROUNDS_MAX = 2000
"""After this many rounds in which the other slot folded something, or everything, a move
continues anyway: writes come faster than they are copied.
"""


class SlotReshapes:
    """The changes of one slot's ``shards``.

    ``seal`` seals an open one: the slot has its own part in that.
    """

    def __init__(
        self,
        number: int,
        links: ReshapeLinks,
        opener: ShardOpener,
        shards: SlotShards,
        *,
        seal: Callable[[ShardOwner, str], Awaitable[Sealed]],
        log_of: Callable[[str], Log],
        counts: Counts,
    ) -> None:
        self.ended: dict[str, ShardOwner] = {}
        """Sealed shards, by shard id, while the catalog has them."""
        self.unread: dict[str, StoreError] = {}
        """Sealed shards that could not be read the last time, each with its error."""
        self._number = number
        self._links = links
        self._opener = opener
        self._shards = shards
        self._seal = seal
        self._log_of = log_of
        self._counts = counts
        self._carried: set[str] = set()
        self._opening = asyncio.Lock()
        self._reading = SingleTask()
        """The task that reads the shards that have ended since the slot opened, in turn."""

    @property
    def known(self) -> set[str]:
        """The shards of the slot that were read, are being read, or cannot be read."""
        return {*self.ended, *self._shards.closed, *self._shards.begun}

    def clear(self) -> None:
        """Forget everything: the slot closes."""
        self.ended.clear()
        self.unread.clear()
        self._carried = set()  # Tasks of the ended life remove themselves from the old set.

    async def open_ended(self, rows: RowStore) -> None:
        """Bring the rows up to the seal of every ended shard, where their children continue.

        Shards that end meanwhile are included: a former owner may still carry out a
        change. A shard that is being opened finds its seal itself, so its children are
        skipped. A shard that cannot be read for good is recorded as closed, with the
        reason. One that cannot be read now blocks only its children. ``Unavailable`` is
        raised for it once all others are read.
        """
        async with self._opening:
            failed = self.unread = {}
            while left := self._due(failed):
                for table, shard in left:
                    try:
                        self._require_whole(shard)
                        others = partial(self._others, table, shard)
                        owner = await self._opener.open_ended(table, shard, rows, others)
                    except (LogShortened, record.CorruptRecord) as error:
                        self._shards.closed.close(shard.shard_id, error)
                    except StoreError as error:
                        failed[shard.shard_id] = error
                        break  # Its children are no longer due.
                    else:
                        self.ended[shard.shard_id] = owner
        for shard_id, failure in failed.items():
            raise Unavailable(f"shard {shard_id} is not read to its end: {failure}") from failure

    async def open_what_answers(self, rows: RowStore) -> None:
        """Do the same, but keep the shards that cannot be read now in ``unread``."""
        try:
            await self.open_ended(rows)
        except Unavailable as error:
            logger.warning("slot %d: %s", self._number, error)

    async def read_ended(self, rows: RowStore) -> None:
        """Do the same as far as possible now: later callers read the rest."""
        with log_failures(f"slot {self._number}: shards that have ended"):
            await self.open_ended(rows)

    async def require_parents(self, shard: ShardRange, rows: RowStore) -> None:
        """Return once the rows have everything from a shard's parents.

        Raises ``LogShortened`` if a parent cannot be read for good, ``Unavailable`` if it
        cannot be read yet.
        """
        self._require_whole(shard)
        # A catalog may have many shards, and most were read or are forgotten: skip them
        # cheaply.
        if not any(self._links.is_known(p) and p not in self.ended for p in shard.parents):
            return
        # Parents in another slot are read there: their rows came in the shard's own log.
        if not self._unread_of(shard):
            return
        await self.open_what_answers(rows)  # One that does not answer may be another's parent.
        self._require_whole(shard)
        if missing := self._unread_of(shard):
            why = self.unread.get(missing[0], "it is not read to its end")
            raise Unavailable(f"its parent, shard {missing[0]}: {why}")

    def has_only_changelog(self, rows: RowStore, open_: Iterable[tuple[Table, ShardRange]]) -> bool:
        """True if only the changelog can have the entries of a shard's parents.

        This is so if the parents are forgotten, their logs are gone, and the changelog as
        read does not have the shard: its mark never comes later than its parents' rows.
        """
        return any(
            rows.find_flushed(shard.shard_id) < 0
            and not all(map(self._links.is_known, shard.parents))
            for _, shard in (*self._links.list_ended(self._number), *open_)
        )

    def _due(self, failed: Collection[str] = ()) -> list[tuple[Table, ShardRange]]:
        """Return the ended shards that must be read now, parents first.

        Shards that have ``failed``, and their children, are left out.
        """
        due: list[tuple[Table, ShardRange]] = []
        waited_for = {*self._shards.begun, *failed}.difference(self.ended)
        for table, shard in self._unread(self.known.union(failed)):
            # Entries of a parent would be skipped beneath those of its children.
            if waited_for.intersection(shard.parents):
                waited_for.add(shard.shard_id)
            else:
                due.append((table, shard))
        return due

    def _unread_of(self, shard: ShardRange) -> list[str]:
        """Return a shard's parents that ended in this slot and are not read to their end."""
        unread = {parent.shard_id for _, parent in self._unread(self.ended)}
        return sorted(unread.intersection(shard.parents))

    def _unread(self, known: Collection[str]) -> list[tuple[Table, ShardRange]]:
        """Return the ended shards that are not ``known`` here, parents first."""
        return [
            pair for pair in self._links.list_ended(self._number) if pair[1].shard_id not in known
        ]

    def _others(self, table: Table, shard: ShardRange) -> list[Range]:
        """Return the keys for which an ended shard's log is no longer valid."""
        number = table.table_id
        held = self._links.list_held(self._number, number)
        ended = [s for of, s in self._links.list_ended(self._number) if of.table_id == number]
        coming = [s for s in held if s.copied and self._links.is_arriving(s)]
        found = came_back(table, shard, [*held, *ended])
        return [*found, *(keys for s in coming for keys in row_ranges(table, s))]

    def _require_whole(self, shard: ShardRange) -> None:
        """Raise ``LogShortened`` if a shard's parent cannot be read."""
        for parent in shard.parents:
            if parent in self._shards.closed:
                reason = self._shards.closed[parent]
                raise LogShortened(f"its parent, shard {parent}, is lost: {reason}")

    def settle(self, tasks: asyncio.TaskGroup, rows: RowStore, claim: int) -> None:
        """Carry out the changes that the catalog plans, and drop those that it has forgotten."""
        if self._due():
            self._reading.start(partial(self.read_ended, rows), tasks, f"ended[{self._number}]")
        planned = list(self._links.list_planned(self._number))
        kept = {shard.shard_id for _, shard in self._links.list_ended(self._number)}
        self._tell_readers(kept)
        kept.update(parent for reshape in planned for parent in reshape.parents)
        for shard_id in self.ended.keys() - kept:
            del self.ended[shard_id]
        for reshape in planned:
            if reshape.id not in self._carried:
                self._carried.add(reshape.id)
                name = f"{reshape.kind}[{reshape.id}]"
                tasks.create_task(self._carry(reshape.id, claim), name=name)

    def _tell_readers(self, listed: Collection[str]) -> None:
        """Wake readers that wait for the end of a shard: its children are listed, and open."""
        for shard_id in listed:
            if (owner := self.ended.get(shard_id)) is not None:
                owner.readers.wake()

    async def _carry(self, reshape_id: str, claim: int) -> None:
        """Carry out one change, with retries, until the catalog no longer plans it."""
        wait_s = RETRY_S
        carried, again = self._carried, False
        try:
            while (reshape := self._links.plan(reshape_id)) is not None:
                logger.info("starting %s of %s", reshape.kind, ", ".join(reshape.parents))
                try:
                    await self._through(reshape, claim, again=again)
                except (StoreError, record.CorruptRecord) as error:
                    logger.info("%s of %s failed, retrying: %s", reshape.kind, reshape_id, error)
                again = True
                await asyncio.sleep(wait_s)
                wait_s = min(wait_s * 2, RETRY_S_MAX)
        finally:
            carried.discard(reshape_id)

    async def _through(self, reshape: Reshape, claim: int, *, again: bool) -> None:
        owners = self._parents(reshape)
        if reshape.kind == MOVE:
            await self._move(reshape, owners[0], claim)
            return
        await self._links.prepare(reshape)
        await self._wait_until_idle(owners, asyncio.get_running_loop().time() + QUIET_S)
        if again or len(owners) > 1:
            await self._require_appending(owners)
        await self._finish(reshape, owners)

    async def _require_appending(self, owners: Sequence[ShardOwner]) -> None:
        """Raise the error that keeps a log from taking its seal, while all of them still serve."""
        for owner in owners:
            # A seal with a late answer is the last record: no other is accepted.
            if owner.shard.shard_id not in self.ended and owner.shard.state.seal is None:
                await owner.submit_hidden(record.NoOp())

    async def _finish(self, reshape: Reshape, owners: Sequence[ShardOwner]) -> None:
        seals = {owner.shard.shard_id: await self._seal_parent(owner, reshape) for owner in owners}
        await self._links.finish(reshape, seals)
        self._counts.reshapes[reshape.kind] += 1

    async def _seal_parent(self, owner: ShardOwner, reshape: Reshape) -> Sealed:
        shard_id = owner.shard.shard_id
        if shard_id in self.ended:
            if (seal := owner.shard.state.seal) is None:
                # The copy, or the wait, was the former owner's.
                raise Unavailable(f"shard {shard_id} was opened again meanwhile")
            return seal
        try:
            seal = await self._seal(owner, plan_of(reshape))
        except StoreError:
            await owner.drain()  # Until it is known if the seal is valid.
            if not owner.is_closed and owner.shard.state.seal is None:
                owner.open()  # It serves until the next try.
            raise
        # Before any other task runs: a flush finds it among the open or the ended.
        self.ended[shard_id] = owner
        return seal

    # A move.

    async def _move(self, reshape: Reshape, owner: ShardOwner, claim: int) -> None:
        if owner.shard.state.seal is not None and reshape.copier >= 0:
            await self._links.prepare(reshape)
            if await is_complete(self._log_of(reshape.children[0].shard_id)):
                await self._finish(reshape, [owner])
                return
        reshape = await self._links.begin_copy(reshape, claim)
        await self._links.prepare(reshape)
        [child] = reshape.children
        log = self._log_of(child.shard_id)
        copy = ShardCopy(owner, row_ranges(owner.shard.table, child), log, self._counts)
        try:
            await copy.base()
            await self._copy_and_seal(owner, reshape, copy)
            await copy.complete()
        finally:
            copy.stop()
            await log.disconnect()
        await self._finish(reshape, [owner])

    async def _copy_and_seal(self, owner: ShardOwner, reshape: Reshape, copy: ShardCopy) -> None:
        """Seal a shard whose copy is nearly complete; if the seal fails, it serves meanwhile."""
        for left in reversed(range(SEALS_MAX)):
            until_s = asyncio.get_running_loop().time() + QUIET_S
            await self._catch_up(copy, reshape, reshape.children[0])
            while await self._wait_until_idle([owner], until_s):
                await self._catch_up(copy, reshape, reshape.children[0])
            try:
                await self._seal_parent(owner, reshape)
            except StoreError as error:
                if owner.is_closed or not left:
                    raise
                logger.info("shard %s: seal failed, retrying: %s", owner.shard.shard_id, error)
                await asyncio.sleep(SEAL_AGAIN_S)
            else:
                return

    async def _catch_up(self, copy: ShardCopy, reshape: Reshape, child: ShardRange) -> None:
        """Copy the latest writes until few are left, in the other slot too.

        A slot that folds nothing might never open the child, so its progress is waited
        for. Raises ``Unavailable`` if the move is no longer planned, or another owner
        copies anew.
        """
        before, rounds = -1, 0
        while rounds < ROUNDS_MAX:
            copied = await copy.delta()
            received = await self._find_received(child)
            little = copied <= LEFT_ENTRIES and copy.end - received <= LEFT_RECORDS
            if little and received >= 0:  # Nothing of a small shard may have been folded yet.
                return
            rounds += received > before or received >= copy.end - 1
            before = max(before, received)
            await asyncio.sleep(ROUND_S)
            planned = self._links.plan(reshape.id)
            if planned is None or planned.children != reshape.children:
                raise Unavailable(f"the plan of the move of {reshape.id} has changed")

    async def _find_received(self, child: ShardRange) -> int:
        """Return the other slot's progress; -1 if it cannot be read, so that we wait."""
        try:
            return await self._links.find_received(child)
        except (Unavailable, OutcomeUnknown) as error:
            logger.debug(
                "shard %s: cannot read the other slot's progress: %s", child.shard_id, error
            )
            return -1

    def _parents(self, reshape: Reshape) -> list[ShardOwner]:
        """Return the parents, open or ended. Raises ``Unavailable``."""
        found = [self.ended.get(name) or self._shards.open.get(name) for name in reshape.parents]
        owners = [owner for owner in found if owner is not None]
        if len(owners) != len(found):
            raise Unavailable(f"not all of {', '.join(reshape.parents)} are open")
        return owners

    async def _wait_until_idle(self, owners: Sequence[ShardOwner], until_s: float) -> bool:
        """Wait a limited time for the parents' transactions to end. True if it waited.

        ``until_s`` is in the event loop's time.
        """
        clock, waited = asyncio.get_running_loop().time, False
        while any(owner.transactions.count for owner in owners) and clock() < until_s:
            waited = True
            await asyncio.sleep(QUIET_LOOK_S)
        return waited
