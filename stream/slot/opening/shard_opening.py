"""Opens one shard: its rows are brought to the log's end before any request is served.

The log must begin at or below the end of the rows, and must have the last entry that they
have. A no-op is appended by the append rule, and the log up to it replayed. So no earlier
owner's append can become valid later.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial

from rowtide.core.records import record
from rowtide.core.shard.mark import entry_digest
from rowtide.core.shard.shard_state import has_current_options, options_body
from rowtide.core.values.errors import StoreError, Unavailable
from rowtide.core.values.schema import ShardRange, Table
from rowtide.stream.log.log import Entry, Log
from rowtide.stream.shard.appender import LogShortened, read_known
from rowtide.stream.shard.owner import ShardOwner
from rowtide.stream.shard.read_lease import ReadLease
from rowtide.stream.shard.replay import Range, shard_at_mark
from rowtide.stream.shard.row_store import RowStore
from rowtide.stream.slot.lease.lease_keeper import LeaseKeeper
from rowtide.stream.slot.standby.standby_shard import Unflushed
from rowtide.stream.slot.surroundings import Surroundings

__all__ = ["ShardOpener"]

ANSWER_S = 10.0
"""A log that has not answered by then is retried later: nothing else waits for its shard."""

EXISTS_S = 2.0
"""Time limit of the check that follows, if the log exists."""


class ShardOpener:
    """Opens the shards of one slot. ``owner`` is the worker's random id.

    ``table_known`` is true if a table or an index, by its number, may exist.
    """

    def __init__(
        self,
        surroundings: Surroundings,
        leases: LeaseKeeper,
        number: int,
        table_known: Callable[[int], bool],
    ) -> None:
        self.starts: dict[str, int] = {}
        """The first offset of each shard's log, as of its opening."""
        self.unflushed: Mapping[str, Unflushed] = {}
        """The knowledge of a standby that kept the rows until now, by shard."""
        self._surroundings = surroundings
        self._clock_us = surroundings.clock_us
        self._counts = surroundings.counts
        self._owner = leases.owner
        self._lease = ReadLease(
            partial(leases.is_readable, number), partial(leases.unreadable, number)
        )
        self._table_known = table_known

    async def open(
        self,
        table: Table,
        shard: ShardRange,
        rows: RowStore,
        claim: int,
        *,
        warm: ShardOwner | None = None,
    ) -> ShardOwner:
        """Return a shard's owner under ``claim``, its rows complete up to our own no-op.

        ``warm`` is an owner that has folded a part of the log in this life of the slot.
        Raises ``LogShortened`` and ``record.CorruptRecord`` if the shard cannot be served
        for good, and other errors if it cannot be served now.
        """
        owner = warm or self._owner_of(table, shard, rows)
        await self._recover(owner, rows, claim, warm=warm is not None)
        owner.shard.take_stamp(shard.floor_us)
        owner.shard.adopt_claim(claim, self._owner)
        return owner

    async def put_in_force(
        self, owner: ShardOwner, require_claim: Callable[[], Awaitable[None]]
    ) -> None:
        """Append the options of a shard's table if its log has others: a crash prevented
        the append.

        The client that changed them may have its answer, so nothing is read under the
        former ones. An owner with a successor may know only the former ones. So
        ``require_claim`` runs before each append: an append of a successor since then
        makes ours void.
        """
        shard = owner.shard
        while not has_current_options(shard.state, shard.table):
            await require_claim()
            at = shard.state.applied + 1
            options = shard.control(options_body(shard.table), self._clock_us())
            record = options.log_key, shard.encode_record(options, at)
            async with _answering(owner):
                appended = await owner.appender.append([record], at)
            shard.discard()
            ours = [Entry(at, *record)] if appended.is_valid else []
            owner.fold.replay([*ours, *appended.entries])

    def arriving(self, table: Table, shard: ShardRange, rows: RowStore) -> ShardOwner:
        """Return the future owner of a shard whose log another worker still writes."""
        return self._owner_of(table, shard, rows)

    async def open_ended(
        self,
        table: Table,
        shard: ShardRange,
        rows: RowStore,
        others: Callable[[], Sequence[Range]] = tuple,
    ) -> ShardOwner:
        """Return the owner of a sealed shard, its rows complete up to its seal.

        Its log is read if the rows or the changelog lack entries of it. Its changes of
        keys among ``others`` are skipped. Raises like ``open``.
        """
        owner = self._owner_of(table, shard, rows)
        owner.fold.others = others
        state = owner.shard.state
        async with _answering(owner):
            start, end = await owner.log.bounds()
        if state.seal is None or rows.find_flushed(shard.shard_id) < state.applied:
            start, end = await self._require_whole(owner)
            first = min(owner.end, rows.find_flushed(shard.shard_id) + 1)
            await self._replay(owner, max(start, first), end)
        if state.seal is None:
            raise LogShortened(f"{owner.log.name} ends at {end} without its seal")
        owner.ledger.is_complete = True
        self.starts[shard.shard_id] = start
        return owner

    async def has_all_entries(
        self, shards: Iterable[tuple[Table, ShardRange]], rows: RowStore, shard_id: str
    ) -> bool:
        """True if the log of one of ``shards`` has every acknowledged entry that the rows have.

        A shard that is not among them lacks nothing that is needed.
        """
        for table, shard in shards:
            if shard.shard_id == shard_id:
                owner = self._owner_of(table, shard, rows)
                try:
                    _, end = await self._require_whole(owner)
                    if owner.shard.state.seal is None and shard.sealed_at >= 0:
                        return await _has_seal(owner.log, shard.sealed_at, end)
                except (LogShortened, record.CorruptRecord):
                    return False
        return True

    async def is_missing(self, shard: ShardRange) -> bool:
        """True if a broker reports that a shard has no log."""
        around = self._surroundings
        with suppress(StoreError, TimeoutError):
            async with asyncio.timeout(EXISTS_S):
                return not await around.cluster.exists(around.topics.shard(shard.shard_id))
        return False

    def _owner_of(self, table: Table, shard: ShardRange, rows: RowStore) -> ShardOwner:
        """Return a shard's owner as of the rows' mark."""
        around = self._surroundings
        machine = shard_at_mark(table, shard, rows, around.limits)
        owner = ShardOwner(
            machine,
            around.cluster.log(around.topics.shard(shard.shard_id)),
            rows,
            clock_us=around.clock_us,
            lease=self._lease,
            settings=around.settings.shard,
            steady_s=around.steady_s,
            counts=around.counts,
        )
        owner.fold.index_known = self._table_known
        return owner

    async def _recover(self, owner: ShardOwner, rows: RowStore, claim: int, *, warm: bool) -> None:
        """Replay a shard's log up to our own no-op."""
        shard, began_s = owner.shard, time.monotonic()
        async with _answering(owner):
            start, _ = await self._require_whole(owner)
        shard.adopt_claim(claim, self._owner)
        async with _answering(owner):
            end = await owner.appender.fence()
        shard.adopt_claim(-1, self._owner)
        # A warm one that reads entries of an earlier life again does not know yet which
        # are dirty.
        known = (warm and owner.ledger.is_complete) or self._has_full_note(owner)
        first = owner.end if known else rows.find_flushed(shard.shard_id) + 1
        replayed = await self._replay(owner, max(start, min(owner.end, first)), end)
        owner.ledger.is_complete = True
        self.starts[shard.shard_id] = start
        self._counts.recoveries.add(time.monotonic() - began_s)
        self._counts.recovered_records += replayed

    def _has_full_note(self, owner: ShardOwner) -> bool:
        """True if a standby noted all chunks that the rows have and the changelog may lack."""
        shard_id = owner.shard.shard_id
        noted = self.unflushed.get(shard_id)
        if noted is None or not noted.is_complete(
            flushed=owner.rows.find_flushed(shard_id), applied=owner.shard.state.applied
        ):
            return False
        owner.ledger.add(noted.keys)
        return True

    async def _require_whole(self, owner: ShardOwner) -> tuple[int, int]:
        """Return the log's start and end. Raises ``LogShortened`` if it lacks entries.

        A log that lost its end may have been filled since. Then it has another entry in
        the place of the last one in the rows. If that entry was trimmed, or never noted,
        only the ends can be checked.
        """
        applied, noted = owner.shard.state.applied, owner.shard.state.entry
        name = owner.log.name
        start, end = await owner.log.bounds()
        if end <= applied:
            raise LogShortened(
                f"{name} ends at {end}, but entries up to {applied} were acknowledged"
            )
        if start > applied + 1:
            raise LogShortened(
                f"{name} begins at {start}, but the rows end at {applied}: "
                f"entries {applied + 1} to {start - 1} are gone"
            )
        if noted is not None and start <= applied:
            last = (await read_known(owner.log, applied, end))[0]
            if entry_digest(last.value) != noted:
                raise LogShortened(
                    f"{name} lost its end, and was filled since: "
                    f"another entry stands at {applied} than was acknowledged"
                )
        return start, end

    async def _replay(self, owner: ShardOwner, first: int, end: int) -> int:
        """Replay a log from ``first`` up to ``end``; return the number of entries that
        were read.
        """
        never = owner.rows.find_flushed(owner.shard.shard_id) < 0
        at = first
        while at < end:
            entries = await read_known(owner.log, at, end)
            at = entries[-1].offset + 1
            owner.fold.recover([e for e in entries if e.offset < end], never=never)
            await asyncio.sleep(0)
        owner.fold.find_unflushed()
        return at - first


async def _has_seal(log: Log, at: int, end: int) -> bool:
    """True if a log still has the seal that the catalog names."""
    if end <= at:
        return False
    [entry, *_] = await read_known(log, at, end)
    envelope, body = record.decode_record(entry.value)
    return envelope.at == at and isinstance(body, record.Seal)


@asynccontextmanager
async def _answering(owner: ShardOwner) -> AsyncIterator[None]:
    """Limit the time in which a shard's log must answer. Raises ``Unavailable`` after it.

    An abandoned append may still be written. It names its offset: it lies before the next
    fence, or is void. Its owner is not used again.
    """
    try:
        async with asyncio.timeout(ANSWER_S):
            yield
    except TimeoutError as error:
        met = owner.appender.refusal
        message = f"{owner.log.name} has not answered in {ANSWER_S:.0f} s"
        raise Unavailable(f"{message}: {met}" if met else message) from error
