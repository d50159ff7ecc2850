"""From a batch of changes to a sink that has it: rows are made, transformed, applied, or parked.

A sink that is not available is asked again, after a pause that grows, while the shard's lease is
kept; what else fails is the runner's to deal with. What the sink refuses, or the function before,
is parked with its key.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace

from rowtide.client.changes.api import ApiSource
from rowtide.client.changes.shard_follower import Unfinished
from rowtide.client.changes.worker import Batch
from rowtide.connectors.rows import Refused, SinkBatch, SinkRow
from rowtide.connectors.runtime.back_off import BackOff
from rowtide.connectors.runtime.parking import RETRY, SKIP, ParkedEntry, ParkedRows
from rowtide.connectors.runtime.progress import Progress
from rowtide.connectors.runtime.row_making import TOO_LARGE, RowMaker, newest, rows_since
from rowtide.connectors.runtime.transforms import Function, Transforms
from rowtide.connectors.sinks.sink import Sink, traits_of
from rowtide.core.records.change import DELETE, UPDATE
from rowtide.core.values import key as key_order
from rowtide.core.values import variant
from rowtide.core.values.errors import OutcomeUnknown, Rejected, Unavailable, invalid
from rowtide.core.values.key_ranges import holds

__all__ = ["Pipeline", "Target"]

logger = logging.getLogger(__name__)

OF_THE_KEY = frozenset({"OTSParameterInvalid", "OTSInvalidPK"})
"""Refusals to read a row whose table was made anew with another key."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where rows go: the sink, what is done to them before, and how many it may refuse."""

    sink: Sink
    transforms: Transforms
    function: Function | None
    parked: ParkedRows
    parked_max: int

    @property
    def every_change(self) -> bool:
        """True if the sink wants each row of a key."""
        return traits_of(self.sink).every_change


class Pipeline:
    """Passes batches to ``target`` until ``stopping`` is set; one shard's one after another."""

    def __init__(
        self, api: ApiSource, target: Target, progress: Progress, stopping: asyncio.Event
    ) -> None:
        self._api = api
        self._target = target
        self._progress = progress
        self._stopping = stopping
        self._makers: dict[str, RowMaker] = {}
        self._turns: dict[str, asyncio.Lock] = {}

    async def handle(self, batch: Batch) -> None:
        """Return when the sink has all that it takes of a batch, and the rest is parked."""
        async with self._turn(batch.shard_id):
            if batch.first:
                self._makers.pop(batch.shard_id, None)
                await self._target.parked.load()
            maker = self._makers.get(batch.shard_id)
            if maker is None:
                maker = RowMaker(self._api, every_change=self._target.every_change)
                self._makers[batch.shard_id] = maker
            async with maker.telling(batch) as made:
                await self._tell(batch, *made)
            self._progress.passed_on(batch)

    async def _tell(
        self, batch: Batch, rows: Sequence[SinkRow], refused: Sequence[Refused]
    ) -> None:
        parked, shard_id = self._target.parked, batch.shard_id
        waiting: list[SinkRow] = []
        if parked.keys:
            waiting = [row for row in rows if row.key_bytes in parked.keys]
            waiting += [row for row, _ in refused if row.key_bytes in parked.keys]
            refused = [r for r in refused if r.row.key_bytes not in parked.keys]
            rows = [row for row in rows if row.key_bytes not in parked.keys]
        left_out = {row.key_bytes for row in waiting}
        told = self.transformed(rows)
        told.refused.extend(refused)
        left_out |= {refusal.row.key_bytes for refusal in told.refused}
        covers = batch.covers if told.by_key else None
        for part in _around(
            SinkBatch(batch.table, shard_id, told.rows, covers, batch.stamp), left_out
        ):
            if part.rows or part.covers is not None:
                told.refused.extend(map(told.original, await self.applied(part)))
        if waiting:
            await parked.wait_behind(waiting, shard_id, every_change=self._target.every_change)
        if told.refused:
            await self._park(told.refused, shard_id)

    async def _park(self, refused: Sequence[Refused], shard_id: str) -> None:
        await self._target.parked.park(refused, shard_id, most=self._target.parked_max)
        for row, reason in refused:
            self._progress.failed(f"parked {dict(row.key)}: {reason}")
            logger.warning("shard %s: parked %s: %s", shard_id, dict(row.key), reason)

    def transformed(self, rows: Sequence[SinkRow]) -> TransformedRows:
        """Return what the sink gets of rows, and those that the function fails on."""
        target, told = self._target, TransformedRows(rows)
        made, function = target.transforms.made, target.function
        if not target.transforms.any:
            told.rows.extend(rows)
            return told
        for row in rows:
            try:
                several = made(row, function)
            except Exception as error:  # noqa: BLE001 - somebody else's code, on one row.
                reason = f"{type(error).__name__}: {error}"
                if function is not None:
                    reason = f"{target.transforms.function}: {reason}"
                told.refused.append(Refused(row, reason))
                continue
            for one in several:
                told.add(one, row)
        return told

    async def applied(self, batch: SinkBatch) -> Sequence[Refused]:
        """Return what the sink refuses. Raises ``Unfinished`` where it is not to be asked again."""
        back_off, waiting = BackOff(), self._progress.waiting
        try:
            while True:
                try:
                    return await self._target.sink.apply(batch)
                except (Unavailable, OutcomeUnknown) as error:
                    waiting.add(batch.shard_id)
                    self._progress.failed(f"shard {batch.shard_id}: {error}")
                    logger.warning("shard %s waits, the sink is away: %s", batch.shard_id, error)
                    if await back_off.pause(self._stopping):
                        raise Unfinished from error
        finally:
            waiting.discard(batch.shard_id)

    def _turn(self, shard_id: str) -> asyncio.Lock:
        return self._turns.setdefault(shard_id, asyncio.Lock())

    # Parked rows that somebody wants to be looked at.

    async def look_at_parked(self, held: Callable[[], Collection[str]]) -> bool:
        """Try again, or skip, what is wanted so; return whether some is to be looked at later."""
        parked = self._target.parked
        await parked.load()
        wanted = [entries for entries in parked.keys.values() if any(e.wanted for e in entries)]
        if not wanted:
            return False
        later = False
        shards = await self._api.shards()
        split = {parent for shard in shards for parent in shard.parents}
        for entries in wanted:
            key = entries[0].key_bytes
            shard_id = next(
                shard.shard_id
                for shard in shards
                if shard.shard_id not in split and holds(((shard.begin, shard.end),), key)
            )
            if shard_id in held():
                async with self._turn(shard_id):
                    later |= not await self._looked_at(key, shard_id)
            else:
                later = True
        return later

    async def _looked_at(self, key: bytes, shard_id: str) -> bool:
        """Try again, or skip, what is parked of a key; return False where more came meanwhile.

        Nothing is forgotten before what came after it is told: a crash between repeats it.
        """
        parked = self._target.parked
        entries = parked.keys.get(key, [])
        if self._target.every_change:
            return await self._told_each(entries, shard_id)
        if not entries:
            return True
        first, *others = entries
        skips = any(entry.wanted == SKIP for entry in entries)
        if not (skips and not first.later and not others):
            try:
                refused = await self._refused_now(first, shard_id)
            except Rejected as error:
                if error.code not in OF_THE_KEY:
                    raise
                await parked.refuse_again(first, str(error), alone=skips)
                return True
            if refused:
                for entry in others:
                    await parked.remove(entry)
                if skips:
                    await parked.replace(first, refused[0], shard_id)
                else:
                    await parked.refuse_again(first, refused[0].reason)
                return True
        return all([await parked.settle(entry) for entry in entries])

    async def _told_each(self, entries: Sequence[ParkedEntry], shard_id: str) -> bool:
        """Tell what waits of a key, one after another, up to one that is refused."""
        parked = self._target.parked
        for entry, following in zip(entries, [*entries[1:], None], strict=True):
            if entry is not entries[0] or entry.wanted != SKIP:
                if entry.row is None:
                    return True
                if refused := await self._refused(entry.row, shard_id):
                    await parked.refuse_again(entry, refused[0].reason)
                    return True
            if following is not None:
                await parked.want(following, RETRY)
            await parked.remove(entry)
        await parked.load()
        if not (more := parked.keys.get(entries[0].key_bytes) if entries else None):
            return True
        # Of a process that has the shard by now.
        await parked.want(more[0], RETRY)
        return False

    async def _refused_now(self, entry: ParkedEntry, shard_id: str) -> Sequence[Refused]:
        """Give the sink the row that a key has now; return what is refused of it.

        Raises ``Rejected`` where the table has another key by now.
        """
        key, maker = entry.key_bytes, self._makers.get(shard_id)
        names, parts = (await self._api.stream()).table.key_names, key_order.decode(key)
        if len(names) != len(parts):
            raise invalid(f"The table has a key of {len(names)} columns now.")
        # With all that waits behind the parked row, whichever process has put it there.
        stamp = max(entry.stamp, entry.last, maker.stamp if maker else 0)
        now = (await rows_since(self._api, {key: stamp}))[key]
        values = zip(names, parts, strict=True)
        row = SinkRow(
            tuple((name.decode(), variant.decode(value)) for name, value in values),
            key,
            now.stamp,
            None if now.cells is None else newest(now.cells),
            DELETE if now.cells is None else UPDATE,
        )
        return [Refused(row, TOO_LARGE)] if now.too_large else await self._refused(row, shard_id)

    async def _refused(self, row: SinkRow, shard_id: str) -> Sequence[Refused]:
        """Give a row to the sink out of its turn; return what is refused of it, as it was made."""
        # It may be from a shard that has split since.
        told = self.transformed([replace(row, sequence=-1)])
        if told.rows:
            table = await self._api.table_name()
            told.refused += await self.applied(SinkBatch(table, shard_id, told.rows))
        if not told.refused:
            logger.info("took a parked row: %s", dict(row.key))
        return [told.original(refused) for refused in told.refused]


@dataclass(slots=True)
class TransformedRows:
    """What a sink gets of ``made`` rows, and what is refused."""

    made: Sequence[SinkRow]
    rows: list[SinkRow] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    origins: dict[bytes, SinkRow] = field(default_factory=dict)
    """Of rows that got another key: what they were made of."""

    @property
    def by_key(self) -> bool:
        """True if rows have the keys that they had."""
        return not self.origins

    def add(self, row: SinkRow, origin: SinkRow) -> None:
        """Take a row that was made of another."""
        self.rows.append(row)
        if row.key_bytes != origin.key_bytes:
            self.origins[row.key_bytes] = origin

    def original(self, refused: Refused) -> Refused:
        """Return a refusal with the row as it was before it was transformed."""
        row, reason = refused
        origin = self.origins.get(row.key_bytes)
        if origin is None:
            same = (made for made in self.made if made.key_bytes == row.key_bytes)
            origin = next((made for made in same if made.stamp == row.stamp), row)
        return Refused(origin, reason)


def _around(batch: SinkBatch, left_out: Collection[bytes]) -> list[SinkBatch]:
    """Return a batch as batches that say nothing of the keys that are left out."""
    if batch.covers is None or not left_out:
        return [batch]
    found: list[SinkBatch] = []
    begin, last = batch.covers
    for key in sorted(left_out):
        rows = [row for row in batch if begin <= row.key_bytes < key]
        found.append(replace(batch, rows=rows, covers=(begin, key)))
        begin = key + b"\0"  # No key is the beginning of another.
    rows = [row for row in batch if begin <= row.key_bytes]
    return [*found, replace(batch, rows=rows, covers=(begin, last))]
