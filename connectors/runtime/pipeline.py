"""From a batch of changes to a sink that has it: rows are made, transformed, applied.

A sink that is not available is asked again, after a pause that grows, while the shard's lease is
kept; what else fails is the runner's to deal with.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from rowtide.connectors.rows import Refused, SinkBatch, SinkRow
from rowtide.connectors.runtime.back_off import BackOff
from rowtide.connectors.runtime.progress import Progress
from rowtide.connectors.runtime.row_making import RowMaker
from rowtide.connectors.runtime.transforms import Function, Transforms
from rowtide.connectors.sink import Sink
from rowtide.core.errors import OutcomeUnknown, Unavailable
from rowtide.core.key_ranges import Range
from rowtide.stream.change_api import ApiSource
from rowtide.stream.change_worker import Batch
from rowtide.stream.shard_follower import Unfinished

__all__ = ["Pipeline"]

logger = logging.getLogger(__name__)


class Pipeline:
    """Passes batches to ``sink`` until ``stopping`` is set; one shard's one after another."""

    def __init__(
        self,
        api: ApiSource,
        sink: Sink,
        transforms: Transforms,
        progress: Progress,
        stopping: asyncio.Event,
    ) -> None:
        self._api = api
        self._sink = sink
        self._transforms = transforms
        self._function: Function | None = transforms.load()
        self._progress = progress
        self._stopping = stopping
        self._every_change = bool(getattr(sink, "every_change", False))
        self._makers: dict[str, RowMaker] = {}

    async def handle(self, batch: Batch) -> None:
        """Return when the sink has all that it will take of a batch."""
        maker = self._makers.get(batch.shard_id)
        if maker is None:
            maker = RowMaker(self._api, every_change=self._every_change)
            self._makers[batch.shard_id] = maker
        made = await maker.made(batch)
        rows, refused = self._transformed(made.rows)
        refused.extend(made.refused)
        for covers, part in _around(batch.covers, rows, {r.row.key_bytes for r in refused}):
            told = SinkBatch(batch.table, batch.shard_id, part, covers, batch.stamp)
            if part or covers is not None:
                refused.extend(await self._applied(told))
        self._progress.passed_on(batch, len(rows))

    def _transformed(self, rows: Sequence[SinkRow]) -> tuple[list[SinkRow], list[Refused]]:
        """Return what the sink gets of rows, and those that the function fails on."""
        found: list[SinkRow] = []
        refused: list[Refused] = []
        made, function = self._transforms.made, self._function
        for row in rows:
            try:
                found.extend(made(row, function))
            except Exception as error:  # noqa: BLE001 - somebody else's code, on one row.
                reason = f"{self._transforms.function}: {type(error).__name__}: {error}"
                refused.append(Refused(row, reason))
        return found, refused

    async def _applied(self, batch: SinkBatch) -> Sequence[Refused]:
        """Return what the sink refuses. Raises ``Unfinished`` where it is not to be asked again."""
        back_off = BackOff()
        while True:
            try:
                refused = await self._sink.apply(batch)
            except (Unavailable, OutcomeUnknown) as error:
                self._progress.failed(f"shard {batch.shard_id}: {error}")
                logger.warning("shard %s waits: the sink is away: %s", batch.shard_id, error)
                if await back_off.pause(self._stopping):
                    raise Unfinished from error
            else:
                if back_off.failures:
                    logger.info("shard %s goes on: the sink is back", batch.shard_id)
                return refused


def _around(
    covers: Range | None, rows: Sequence[SinkRow], left_out: set[bytes]
) -> list[tuple[Range | None, Sequence[SinkRow]]]:
    """Return rows with the ranges that they are all of; keys left out are in none of these."""
    if covers is None or not left_out:
        return [(covers, rows)]
    found: list[tuple[Range | None, Sequence[SinkRow]]] = []
    begin, last = covers
    for key in sorted(left_out):
        found.append(((begin, key), [row for row in rows if begin <= row.key_bytes < key]))
        begin = key + b"\0"  # No key is the beginning of another.
    found.append(((begin, last), [row for row in rows if begin <= row.key_bytes]))
    return found
