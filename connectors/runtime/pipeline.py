"""From a batch of changes to the sink: rows are made, transformed, and applied or parked.

A sink that is unavailable is retried after a growing pause, while the shard's lease is
kept. The runner deals with any other failure. Rows that the sink or the function refuses
are parked with their keys.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace

from rowtide.client.changes.api import ApiSource
from rowtide.client.changes.current_rows import newest, rows_since
from rowtide.client.changes.shard_follower import Unfinished
from rowtide.client.changes.worker import Batch
from rowtide.connectors.rows import Refused, SinkBatch, SinkRow
from rowtide.connectors.runtime.back_off import BackOff
from rowtide.connectors.runtime.parking import RETRY, SKIP, ParkedEntry, ParkedRows
from rowtide.connectors.runtime.progress import Progress
from rowtide.connectors.runtime.row_making import TOO_LARGE, RowMaker
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
"""Errors of a read if the table was created again with another key."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where rows go: the sink, the transforms, and how many rows may be parked."""

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
    """Passes batches to ``target`` until ``stopping`` is set, in order per shard."""

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
        """Apply a batch and park the refused rows. Return when both are durable."""
        async with self._turn(batch.shard_id):
            if batch.first:
                self._makers.pop(batch.shard_id, None)
                await self._target.parked.load()
            maker = self._makers.get(batch.shard_id)
            if maker is None:
                maker = RowMaker(self._api, every_change=self._target.every_change)
                self._makers[batch.shard_id] = maker
            async with maker.telling(batch) as made:
                await self._pass_on(batch, *made)
            self._progress.count_batch(batch)

    async def _pass_on(
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
        result = self.transform(rows)
        result.refused.extend(refused)
        left_out |= {refusal.row.key_bytes for refusal in result.refused}
        covers = batch.covers if result.by_key else None
        for part in _around(
            SinkBatch(batch.table, shard_id, result.rows, covers, batch.stamp), left_out
        ):
            if part.rows or part.covers is not None:
                result.refused.extend(map(result.original, await self.apply(part)))
        if waiting:
            await parked.wait_behind(waiting, shard_id, every_change=self._target.every_change)
        if result.refused:
            await self._park(result.refused, shard_id)

    async def _park(self, refused: Sequence[Refused], shard_id: str) -> None:
        await self._target.parked.park(refused, shard_id, most=self._target.parked_max)
        for row, reason in refused:
            self._progress.note_failure(f"parked {dict(row.key)}: {reason}")
            logger.warning("shard %s: parked %s: %s", shard_id, dict(row.key), reason)

    def transform(self, rows: Sequence[SinkRow]) -> TransformedRows:
        """Return the transformed rows, and those on which the function fails."""
        target, result = self._target, TransformedRows(rows)
        made, function = target.transforms.make_rows, target.function
        if not target.transforms.any:
            result.rows.extend(rows)
            return result
        for row in rows:
            try:
                several = made(row, function)
            except Exception as error:  # noqa: BLE001 - a user's function may raise anything.
                reason = f"{type(error).__name__}: {error}"
                if function is not None:
                    reason = f"{target.transforms.function}: {reason}"
                result.refused.append(Refused(row, reason))
                continue
            for one in several:
                result.add(one, row)
        return result

    async def apply(self, batch: SinkBatch) -> Sequence[Refused]:
        """Apply a batch; return the refused rows. Raises ``Unfinished`` when stopped."""
        back_off, waiting = BackOff(), self._progress.waiting
        try:
            while True:
                try:
                    return await self._target.sink.apply(batch)
                except (Unavailable, OutcomeUnknown) as error:
                    waiting.add(batch.shard_id)
                    self._progress.note_failure(f"shard {batch.shard_id}: {error}")
                    logger.warning(
                        "shard %s: the sink is unavailable, retrying after a pause: %s",
                        batch.shard_id,
                        error,
                    )
                    if await back_off.pause(self._stopping):
                        raise Unfinished from error
        finally:
            waiting.discard(batch.shard_id)

    def _turn(self, shard_id: str) -> asyncio.Lock:
        return self._turns.setdefault(shard_id, asyncio.Lock())

    # Requests to retry or skip parked rows.

    async def retry_or_skip(self, held: Callable[[], Collection[str]]) -> bool:
        """Carry out requests to retry or skip parked rows. True if some must wait."""
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
                    later |= not await self._resolve_key(key, shard_id)
            else:
                later = True
        return later

    async def _resolve_key(self, key: bytes, shard_id: str) -> bool:
        """Retry or skip what is parked of a key. False if more changes came meanwhile.

        An entry is removed only after the changes behind it were applied. A crash between
        repeats them.
        """
        parked = self._target.parked
        entries = parked.keys.get(key, [])
        if self._target.every_change:
            return await self._apply_each(entries, shard_id)
        if not entries:
            return True
        first, *others = entries
        skips = any(entry.wanted == SKIP for entry in entries)
        if not (skips and not first.later and not others):
            try:
                refused = await self._apply_current(first, shard_id)
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

    async def _apply_each(self, entries: Sequence[ParkedEntry], shard_id: str) -> bool:
        """Apply the entries of a key in order, until one is refused."""
        parked = self._target.parked
        for entry, following in zip(entries, [*entries[1:], None], strict=True):
            if entry is not entries[0] or entry.wanted != SKIP:
                if entry.row is None:
                    return True
                if refused := await self._apply_out_of_turn(entry.row, shard_id):
                    await parked.refuse_again(entry, refused[0].reason)
                    return True
            if following is not None:
                await parked.want(following, RETRY)
            await parked.remove(entry)
        await parked.load()
        if not (more := parked.keys.get(entries[0].key_bytes) if entries else None):
            return True
        # Another process has taken the shard and added these.
        await parked.want(more[0], RETRY)
        return False

    async def _apply_current(self, entry: ParkedEntry, shard_id: str) -> Sequence[Refused]:
        """Apply the current row of a key. Return it if the sink refuses it.

        Raises ``Rejected`` if the table has another key by now.
        """
        key, maker = entry.key_bytes, self._makers.get(shard_id)
        names, parts = (await self._api.stream()).table.key_names, key_order.decode(key)
        if len(names) != len(parts):
            raise invalid(f"The table has a key of {len(names)} columns now.")
        # Include all changes that wait behind the parked row, from any process.
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
        return (
            [Refused(row, TOO_LARGE)]
            if now.too_large
            else await self._apply_out_of_turn(row, shard_id)
        )

    async def _apply_out_of_turn(self, row: SinkRow, shard_id: str) -> Sequence[Refused]:
        """Apply a row out of its turn. Return the refused rows as they were before transforms."""
        # The row's shard may have split since.
        result = self.transform([replace(row, sequence=-1)])
        if result.rows:
            table = await self._api.table_name()
            result.refused += await self.apply(SinkBatch(table, shard_id, result.rows))
        if not result.refused:
            logger.info("applied a parked row: %s", dict(row.key))
        return [result.original(refused) for refused in result.refused]


@dataclass(slots=True)
class TransformedRows:
    """Rows for the sink made of ``made`` rows, and refused rows."""

    made: Sequence[SinkRow]
    rows: list[SinkRow] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    origins: dict[bytes, SinkRow] = field(default_factory=dict)
    """The original row of each row whose key was changed."""

    @property
    def by_key(self) -> bool:
        """True if no transform changed a key."""
        return not self.origins

    def add(self, row: SinkRow, origin: SinkRow) -> None:
        """Add a row that was made of another."""
        self.rows.append(row)
        if row.key_bytes != origin.key_bytes:
            self.origins[row.key_bytes] = origin

    def original(self, refused: Refused) -> Refused:
        """Return a refusal with the row before it was transformed."""
        row, reason = refused
        origin = self.origins.get(row.key_bytes)
        if origin is None:
            same = (made for made in self.made if made.key_bytes == row.key_bytes)
            origin = next((made for made in same if made.stamp == row.stamp), row)
        return Refused(origin, reason)


def _around(batch: SinkBatch, left_out: Collection[bytes]) -> list[SinkBatch]:
    """Return a batch as batches that do not cover the keys that are left out."""
    if batch.covers is None or not left_out:
        return [batch]
    found: list[SinkBatch] = []
    begin, last = batch.covers
    for key in sorted(left_out):
        rows = [row for row in batch if begin <= row.key_bytes < key]
        found.append(replace(batch, rows=rows, covers=(begin, key)))
        begin = key + b"\0"  # No key is a prefix of another.
    rows = [row for row in batch if begin <= row.key_bytes]
    return [*found, replace(batch, rows=rows, covers=(begin, last))]
