"""Faults planted in the product, to show that the simulation finds them.

Each is one thing that somebody might get wrong: a check left out, two steps in the wrong order, an
answer given too early. ``planted`` puts one in place for a while. Where a fault needs a method with
one line changed, the method stands here whole, with a remark at that line.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from rowtide.core.cluster.lease import LeaseView
from rowtide.core.records import record
from rowtide.core.rows.chunk import DELETED, header
from rowtide.core.rows.fold import Writes
from rowtide.core.shard import reshape, shard
from rowtide.core.shard.evaluated import Replayed
from rowtide.core.shard.mark import encode_mark, mark_key
from rowtide.core.shard.reshape import Sealed
from rowtide.core.shard.shard import Shard
from rowtide.core.shard.shard_state import options_body
from rowtide.core.shard.source_position import SourcePositions
from rowtide.core.values.errors import OutcomeUnknown, Rejected, StoreError, Unavailable
from rowtide.core.values.schema import ShardRange, Table
from rowtide.stream.cluster import catalog_owner
from rowtide.stream.log.changelog import Change
from rowtide.stream.log.log import Entry, Log
from rowtide.stream.shard import appender, row_store
from rowtide.stream.shard.appender import READ_BYTES, Appended, Appender, LogShortened
from rowtide.stream.shard.copy import ShardCopy
from rowtide.stream.shard.log_fold import LogFold
from rowtide.stream.shard.owner import ShardOwner
from rowtide.stream.shard.read_lease import ReadLease
from rowtide.stream.shard.row_store import RowStore
from rowtide.stream.shard.waiting import Waiter, answer
from rowtide.stream.slot import slot as slot_module
from rowtide.stream.slot.changelog import recovery as changelog_recovery
from rowtide.stream.slot.changelog import slot_flush
from rowtide.stream.slot.changelog.flush import ChangelogFlush, Gathered
from rowtide.stream.slot.changelog.flush_scope import FlushScope, flush_scope
from rowtide.stream.slot.lease.held_leases import HeldLease
from rowtide.stream.slot.lease.lease_keeper import LeaseKeeper
from rowtide.stream.slot.opening import shard_opening
from rowtide.stream.slot.reshape import reshapes as slot_reshapes
from rowtide.stream.slot.reshape.intakes import SlotIntakes
from rowtide.stream.slot.reshape.reshapes import SlotReshapes
from rowtide.stream.slot.standby.standby import Standby
from rowtide.stream.slot.standby.standby_reach import Reach
from rowtide.stream.slot.standby.standby_shard import FollowedLog, StandbyShard, Unflushed
from rowtide.stream.slot.upkeep.trim import SlotTrim
from tests.simulation.broker import Changelog
from tests.simulation.mutation import Mutation
from tests.simulation.program import COPIES_FROM, IGNORANT_FROM

__all__ = [
    "COPIES",
    "DEPOSED",
    "MUTATIONS",
    "RESHAPING",
    "SOURCES",
    "UNFOUND",
]


# The append rule.


async def _append_anywhere(
    self: Appender, batch: Sequence[tuple[bytes, bytes]], at: int
) -> Appended:
    try:
        await self.log.append(batch, deadline_s=10.0)
    except OutcomeUnknown:
        return await self._settle(batch, at)
    return Appended(True, (), at + len(batch))  # Whatever the base offset is.


_replay = Shard.replay


def _replay_void(self: Shard, offset: int, value: bytes) -> Replayed:
    envelope, body = record.decode_record(value)
    valid = record.encode_record(envelope._replace(at=offset), record.encode_body(body))
    return _replay(self, offset, valid)


async def _append_unknown_as_failed(
    self: Appender, batch: Sequence[tuple[bytes, bytes]], at: int
) -> Appended:
    try:
        base = await self.log.append(batch, deadline_s=10.0)
    except OutcomeUnknown as error:
        await self.log.disconnect()
        raise Unavailable("taken for failed") from error
    if base == at:
        return Appended(True, (), at + len(batch))
    end = base + len(batch)
    return self._compare(batch, at, await self.read(at, end), end)


def _report_not_written(
    _self: Appender, _batch: object, _at: int, entries: Sequence[Entry], end: int
) -> Appended:
    return Appended(False, entries, end)


async def _fence_without_noop(self: Appender) -> int:
    while True:
        try:
            return (await self.log.bounds())[1]
        except Unavailable:
            await asyncio.sleep(0.1)


async def _settle_without_fence(
    self: Appender, batch: Sequence[tuple[bytes, bytes]], at: int
) -> Appended:
    await self.log.disconnect()
    end = await _fence_without_noop(self)
    return self._compare(batch, at, await self.read(at, end), end)


def _replay_any_claim(self: LogFold, entries: Sequence[Entry]) -> None:
    writes: Writes = []
    for entry in entries:
        writes += self._shard.replay(entry.offset, entry.value).writes
        self.readers.add_applied((entry,))
    self.write(writes)


async def _append_without_evaluating_again(self: ShardOwner, evaluated: Sequence[Any]) -> bool:
    at = self.shard.state.applied + 1
    pairs = [(e.log_key, self.shard.encode_record(e, at + i)) for i, e in enumerate(evaluated)]
    while True:
        try:
            outcome = await self.appender.append(pairs, at)
            break
        except Unavailable as error:
            self._refuse_all(error)
            return False
    if outcome.is_valid:
        self._apply(evaluated, pairs, at)
    else:
        self._queue.take_back()
    if outcome.entries or not outcome.is_valid:
        self.shard.discard()
        self.fold.replay(outcome.entries)
        # What waits keeps what was evaluated on the old end.
    return outcome.is_valid


_append = ShardOwner._append


async def _answer_first(self: ShardOwner, evaluated: Sequence[Any]) -> bool:
    answer(self._queue.in_flight)
    return await _append(self, evaluated)


_evaluate = ShardOwner._evaluate


def _refuse_at_once(self: ShardOwner, waiting: Waiter) -> None:
    _evaluate(self, waiting)
    if isinstance(waiting.error, Rejected) and not waiting.is_answered:
        waiting.is_answered = True
        waiting.tell(waiting.error)  # Before what it saw is valid.


def _refuse_without_lease(self: ShardOwner, waiting: Waiter) -> None:
    with patch.object(self, "_lease", ReadLease(lambda: True)):
        _evaluate(self, waiting)


def _replay_without_stamp(self: Shard, offset: int, value: bytes) -> Replayed:
    stamp = self._stamp
    replayed = _replay(self, offset, value)
    self._stamp = stamp
    return replayed


# Leases.


def _renew_when_answered(
    self: LeaseKeeper, held: HeldLease, at: int, answer: int | StoreError, _sent_s: float
) -> bool:
    return _renewed(self, held, at, answer, self._clock_s())


_renewed = LeaseKeeper._record_renewal


def _release_hides_all(self: LeaseView, claim: int, lease_s: float, **_dead: object) -> float:
    if any(known.released for known in self._ownerships.values()):
        return 0.0  # A release ends but its own claim.
    waits = [k.seen_s + lease_s * 1.05 for k in self._ownerships.values() if k.claim < claim]
    return max(waits, default=0.0)


# Rows and changelog.


def _write_mark_first(self: LogFold, writes: Writes) -> None:
    shard = self._shard
    self._rows.write([], [(mark_key(shard.shard_id), encode_mark(shard.state))])
    self._rows.take(writes)
    self.ledger.add_writes(writes)
    shard.settle_writes(writes)


_chunks = ChangelogFlush._chunks


def _chunks_no_deletes(
    self: ChangelogFlush, get: Callable[[bytes], bytes | None], removed: Any, into: Gathered
) -> Iterator[Change | None]:
    for change in _chunks(self, get, removed, into):
        if change is not None:
            key, value, _headers = change
            if value is not None and key[:1] == b"r" and header(value)[1] & DELETED:
                continue
        yield change


def _chunks_live(
    self: ChangelogFlush, _get: object, removed: Any, into: Gathered
) -> Iterator[Change | None]:
    if not self._rows.closed:  # type: ignore[attr-defined]  # It is the simulation's.
        yield from _chunks(self, self._rows.get, removed, into)


_flush = ChangelogFlush.flush


async def _flush_forgets(self: ChangelogFlush, shards: Any, now_s: float, **left: Any) -> int:
    shards = list(shards)
    try:
        return await _flush(self, shards, now_s, **left)
    except BaseException:
        for owner in shards:
            owner.ledger.take()
        raise


async def _flush_early_mark(self: ChangelogFlush, shards: Any, now_s: float, **left: Any) -> int:
    shards = list(shards)
    flushed = {o.shard.shard_id: o.shard.state.applied for o in shards}
    self._rows.set_changelog_position(self._rows.changelog_position() or 0, now_s, flushed=flushed)
    return await _flush(self, shards, now_s, **left)


def _flush_all(owners: Mapping[str, ShardOwner], _held: object) -> FlushScope:
    return FlushScope(list(owners.values()), [])


def _flush_unaccounted(
    owners: Mapping[str, ShardOwner], held: list[tuple[Table, ShardRange]]
) -> FlushScope:
    unaccounted = [owner for owner in owners.values() if not owner.ledger.is_complete]
    try:
        for owner in unaccounted:
            owner.ledger.is_complete = True
        return flush_scope(owners, held)
    finally:
        for owner in unaccounted:
            owner.ledger.is_complete = False


async def _trim_to_end(_self: SlotTrim, owner: ShardOwner, _stream: object) -> int:
    await owner.log.trim(owner.end)
    return owner.end


def _take_chunk(_view: object, key: bytes, value: bytes | None) -> Writes:
    return [(key, value)]


def _take_mark(key: bytes, value: bytes, _stored: object) -> Writes:
    return [(key, value)]


async def _recover_position_first(
    rows: RowStore, reader: Any, table_known: Any, shards: Any
) -> None:
    position = rows.changelog_position() or 0
    rows.set_changelog_position(await reader.end(), time.time())
    settled = changelog_recovery.SettledStamps(rows, shards)
    async for entries in reader.read(position):
        rows.apply_changelog(changelog_recovery._page(entries, rows, table_known, settled))
        await asyncio.sleep(0.05)


async def _still_last(_self: LeaseKeeper, _slot: int) -> bool:
    return True


async def _read_on(self: LeaseKeeper, _slot: int, held: HeldLease) -> None:
    await self._read_to_end(held.log, held.view)
    self._is_overtaken(held)


def _nothing(*_arguments: object, **_named: object) -> None:
    return None


def _zero(*_arguments: object, **_named: object) -> float:
    return 0.0


def _true(*_arguments: object) -> bool:
    return True


# Split, merge and move.


async def _skip_seal(_self: SlotReshapes, owner: ShardOwner, _reshape: object) -> Sealed:
    return Sealed(owner.shard.state.applied, owner.shard.state.stamp)


def _no_plan(_reshape: object) -> str:
    return "{}"


async def _seal_without_drain(self: ShardOwner, plan: str) -> Sealed:
    if self.shard.state.seal is None:
        await self._submit_barrier(record.Seal(plan))
    await self.drain()
    self._life.is_retired = True
    self._queue.wake()
    assert self.shard.state.seal is not None
    return self.shard.state.seal


_reshaped = reshape.apply_reshape


def _no_floor(table: Table, change: reshape.Reshape, seals: Mapping[str, Sealed]) -> Table:
    changed = _reshaped(table, change, seals)
    return replace(changed, shards=tuple(replace(s, floor_us=0) for s in changed.shards))


async def _complete_early(self: ShardCopy) -> None:
    await self._append_rows([], complete=True)


def _same_child(change: reshape.Reshape, claim: int, _shard_id: str) -> reshape.Reshape:
    return replace(change, copier=claim)


async def _base_anywhere(self: ShardCopy) -> None:
    _, self.end = await self._log.bounds()
    self._source.fold.add_write_observer(self._note_writes)
    for low, high in self._ranges:
        at: bytes | None = low
        while at is not None:
            entries, at = self._slice(at, high)
            await self._append_rows(entries)


def _no_writes(*_arguments: object) -> list[Any]:
    return []


def _of_all_keys(_self: object, source: str, position: bytes) -> record.SourcePosition:
    return record.SourcePosition(source, b"", b"", position)


async def _base_of_rows(self: ShardCopy) -> None:
    self._source.fold.add_write_observer(self._note_writes)
    await self._append(options_body(self._source.shard.state))
    for low, high in self._ranges:  # And not the positions.
        at: bytes | None = low
        while at is not None:
            entries, at = self._slice(at, high)
            await self._append_rows(entries)


async def _pass(*_arguments: object, **_named: object) -> None:
    return None


async def _open_ended_before(self: SlotReshapes, rows: RowStore) -> None:
    before = [] if self._shards.begun else list(self._links.list_ended(self._number))
    for table, place in before:
        self.ended[place.shard_id] = await self._opener.open_ended(table, place, rows)


async def _forget_at_once(
    self: SlotTrim, _table: object, shard: ShardRange, _ended: object
) -> None:
    await self._reshapes.forget(shard)


async def _arrive_without_room(
    self: SlotIntakes, _table: object, shard: ShardRange, _rows: object
) -> ShardOwner | None:
    return self.arriving.pop(shard.shard_id, None)


async def _true_later(_self: Standby, _asked_s: float) -> bool:
    return True


def _holds_anyhow(_self: Unflushed, **_at: int) -> bool:
    return True


_take_entries = StandbyShard.take


def _take_as_fresh(self: StandbyShard, entries: Sequence[Entry], end: int, asked_s: float) -> None:
    _take_entries(self, entries, end, asked_s)
    if isinstance(self._state, FollowedLog):
        self.fresh_s = asked_s


async def _read_once(log: Log, start: int, end: int) -> Sequence[Entry]:
    entries = await log.read(start, bytes_max=READ_BYTES)
    if not entries:  # Without a look at the log's end.
        raise LogShortened(f"{log.name} ends at {start}, expected {end}")
    return entries


MUTATIONS = [
    Mutation("accept our batch at a wrong offset", [(Appender, "append", _append_anywhere)], 10),
    Mutation("fold a record at a wrong offset", [(Shard, "replay", _replay_void)], 10),
    Mutation(
        "answer an unknown outcome as failed", [(Appender, "append", _append_unknown_as_failed)]
    ),
    Mutation("apply a batch twice", [(Appender, "_compare", _report_not_written)], 10),
    Mutation("open without a no-op", [(Appender, "fence", _fence_without_noop)]),
    Mutation("settle without a no-op", [(Appender, "_settle", _settle_without_fence)]),
    Mutation(
        "ignore a later claim",
        [(LogFold, "replay", _replay_any_claim), (LeaseKeeper, "is_still_last", _still_last)],
    ),
    Mutation(
        "forget to evaluate again after a discarded batch",
        [(ShardOwner, "_append", _append_without_evaluating_again)],
    ),
    Mutation("answer before the log does", [(ShardOwner, "_append", _answer_first)], 10),
    Mutation("refuse before what was seen is valid", [(ShardOwner, "_evaluate", _refuse_at_once)]),
    Mutation("refuse without a lease", [(ShardOwner, "_evaluate", _refuse_without_lease)]),
    Mutation(
        "forget the stamps that were replayed", [(Shard, "replay", _replay_without_stamp)], 10
    ),
    Mutation("skip the lease wait", [(LeaseView, "safe_at", _zero)]),
    Mutation("serve reads without a lease", [(LeaseKeeper, "is_readable", _true)], 10),
    Mutation(
        "count a lease from the answer", [(LeaseKeeper, "_record_renewal", _renew_when_answered)]
    ),
    Mutation("let a release hide an older lease", [(LeaseView, "safe_at", _release_hides_all)]),
    Mutation("unfence the changelog", [(Changelog, "require", _nothing)]),
    Mutation("write the mark before the rows", [(LogFold, "write", _write_mark_first)]),
    Mutation(
        "lower a chunk's offset on recovery",
        [(row_store, "_fold_chunk", _take_chunk), (row_store, "_merge_mark", _take_mark)],
        10,
    ),
    Mutation("drop the stamped deletes", [(ChangelogFlush, "_chunks", _chunks_no_deletes)], 10),
    Mutation("flush chunks newer than the mark", [(ChangelogFlush, "_chunks", _chunks_live)], 200),
    Mutation("forget what a failed flush took", [(ChangelogFlush, "flush", _flush_forgets)], 10),
    Mutation("note a flush before it stands", [(ChangelogFlush, "flush", _flush_early_mark)], 10),
    Mutation(
        "flush a parent while its child's log is read", [(slot_flush, "flush_scope", _flush_all)]
    ),
    Mutation(
        "flush before all that is dirty is known",
        [(slot_flush, "flush_scope", _flush_unaccounted)],
    ),
    Mutation("trim above the flushed mark", [(SlotTrim, "_trim", _trim_to_end)], 10),
    Mutation("forget what was not flushed", [(LogFold, "find_unflushed", _nothing)]),
    Mutation(
        "note the changelog's end before its entries",
        [(slot_module, "recover_rows", _recover_position_first)],
    ),
    Mutation(
        "take an empty answer for a log's end",
        [(module, "read_known", _read_once) for module in (appender, catalog_owner, shard_opening)],
        60,
        behind=IGNORANT_FROM,
    ),
]

RESHAPING = [
    Mutation(
        "open children before their parents are sealed",
        [(SlotReshapes, "_seal_parent", _skip_seal)],
        10,
    ),
    Mutation("split without the plan in the seal", [(slot_reshapes, "plan_of", _no_plan)], 10),
    Mutation("take writes behind the seal", [(ShardOwner, "seal", _seal_without_drain)]),
    Mutation(
        "begin children below their parents' seals", [(reshape, "apply_reshape", _no_floor)], 10
    ),
    Mutation(
        "open children without their parents' logs", [(SlotReshapes, "open_ended", _pass)], 10
    ),
    Mutation(
        "read the logs of those alone that had ended before",
        [
            (SlotReshapes, "open_ended", _open_ended_before),
            (SlotReshapes, "require_parents", _pass),
        ],
    ),
    Mutation("let an ended log go before a flush", [(SlotTrim, "trim_ended", _forget_at_once)]),
]
"""Faults of split, merge and move."""

SOURCES = [
    Mutation("forget a source's position on recovery", [(shard, "further", _no_writes)], 10, 2),
    Mutation(
        "inherit no position of a source", [(SourcePositions, "_find_inherited", _no_writes)], 10, 2
    ),
    Mutation(
        "note a source's position for keys of other shards",
        [(SourcePositions, "record", _of_all_keys)],
        10,
        2,
    ),
    Mutation("copy no position of a source", [(ShardCopy, "base", _base_of_rows)], 60, 2),
]
"""Faults of what sources write."""

COPIES = [
    Mutation(
        "open on a copy as if it had noted all that is not flushed",
        [(Unflushed, "is_complete", _holds_anyhow)],
        10,
        behind=COPIES_FROM,
    ),
    Mutation(
        "note nothing of what a copy folds",
        [(StandbyShard, "_note", _nothing)],
        10,
        behind=COPIES_FROM,
    ),
    Mutation(
        "show a copy that lags behind its log's end",
        [(StandbyShard, "take", _take_as_fresh)],
        10,
        behind=COPIES_FROM,
    ),
]
"""Faults of copies that workers keep of each other's slots."""

DEPOSED = [
    Mutation(
        "believe what a deposed leader tells of the leases", [(LeaseKeeper, "_prove", _read_on)]
    ),
    Mutation(
        "believe what a deposed leader tells of the catalog",
        [(catalog_owner.CatalogOwner, "prove", catalog_owner.CatalogOwner.refresh)],
    ),
    Mutation("read the changelog further than a log", [(Reach, "require", _nothing)]),
    Mutation(
        "believe what a deposed leader tells of the changelog",
        [(ChangelogFlush, "require_read", _pass)],
    ),
]
"""Faults that show where brokers answer that were deposed."""

UNFOUND = [
    Mutation("complete a copy without what came last", [(ShardCopy, "complete", _complete_early)]),
    Mutation(
        "copy on into a log that another began",
        [(reshape, "begin_copy", _same_child), (ShardCopy, "base", _base_anywhere)],
    ),
    Mutation(
        "keep what was there before a copy",
        [(SlotIntakes, "_make_room", _pass), (SlotIntakes, "take_arrived", _arrive_without_room)],
    ),
    Mutation(
        "read the changelog of a copy before its logs",
        [(Standby, "_wait_for_logs", _true_later)],
        behind=COPIES_FROM,
    ),
]
"""Faults that 60 seeds did not find."""
