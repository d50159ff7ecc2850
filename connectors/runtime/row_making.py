"""Rows of changes: what a sink gets of a batch.

A put, a delete and a snapshot's row are complete. An update is partial. So the rows of
all updated keys are read from the table once per batch, as of a stamp at or above the
update's. Such a row may be ahead of the stream. Changes of its key up to that stamp are
skipped when they arrive.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

from rowtide.client.changes.api import ApiSource, CurrentRow
from rowtide.client.changes.current_rows import newest, rows_since
from rowtide.client.changes.worker import Batch
from rowtide.connectors.rows import Key, Refused, SinkRow
from rowtide.core.records.change import DELETE, ROW, UPDATE, Change
from rowtide.core.values import key as key_order
from rowtide.core.values import variant

__all__ = ["TOO_LARGE", "Made", "RowMaker"]

AHEAD_MAX = 20_000
"""Rows per shard remembered as ahead of the stream. Forgetting one costs a repetition."""

TOO_LARGE = "the row is larger than one answer of the server can be"


class Made(NamedTuple):
    """Rows of a batch, and rows that can't be read."""

    rows: list[SinkRow]
    refused: list[Refused]


class RowMaker:
    """Makes rows of the changes of one shard. ``every_change``: keep every row of a key.

    Otherwise only the last of several changes of a key in a batch is kept. An update that
    another change of its key follows in the batch is always left out: the row between them
    is not known.
    """

    def __init__(self, api: ApiSource, *, every_change: bool) -> None:
        self._api = api
        self._every_change = every_change
        self._ahead: dict[bytes, int] = {}
        self.stamp = 0
        """Stamp of the last change that was read."""
        self._names: tuple[str, ...] = ()

    @asynccontextmanager
    async def telling(self, batch: Batch) -> AsyncIterator[Made]:
        """Yield a batch's rows, those of a key in the order of their stamps.

        They count as applied if the block ends without an exception.
        """
        if not batch.changes:
            yield Made([], [])
            return
        self.stamp = max(self.stamp, batch.changes[-1].stamp)
        if batch.covers is not None:
            self._ahead.clear()
        self._names = tuple(name.decode() for name in batch.changes[0].table.key_names)
        by_key = self._by_key(batch.changes)
        asked = {key: kept[-1].stamp for key, kept in by_key.items() if kept[-1].kind == UPDATE}
        current = await rows_since(self._api, asked)
        made = Made([], [])
        for key_bytes, changes in by_key.items():
            now = current.get(key_bytes)
            if now is None:
                kept = changes if self._every_change else changes[-1:]
                made.rows.extend(self._row(c, key_bytes) for c in kept if c.kind != UPDATE)
            else:
                self._make_current(key_bytes, changes, now, made)
        yield made
        if self._ahead:
            for key_bytes in by_key:
                self._ahead.pop(key_bytes, None)  # The stream has passed this row.
        if current:
            self._keep_ahead(current, batch.changes[-1].stamp)

    def _by_key(self, changes: Sequence[Change]) -> dict[bytes, list[Change]]:
        """Return changes by key, without those that an earlier row ahead already includes."""
        found: dict[bytes, list[Change]] = {}
        encode, ahead, every = key_order.encode, self._ahead, self._every_change
        for change in changes:
            key_bytes = encode(change.parts.key)
            if ahead and change.kind != ROW and change.stamp <= ahead.get(key_bytes, -1):
                continue
            if every and key_bytes in found:
                found[key_bytes].append(change)
            else:
                found[key_bytes] = [change]
        return found

    def _row(self, change: Change, key_bytes: bytes) -> SinkRow:
        """Return the row of a complete change."""
        parts = change.parts
        columns = None if change.kind == DELETE else newest(parts.cells)
        return SinkRow(
            self._key(parts.key),
            key_bytes,
            change.stamp,
            columns,
            change.kind,
            None if parts.before is None else change.before,
            change.sequence,
            None if parts.kept is None else parts.kept.existed,
        )

    def _make_current(
        self, key_bytes: bytes, changes: Sequence[Change], now: CurrentRow, made: Made
    ) -> None:
        """Add the rows of a key whose last change is an update, with its current row."""
        rows = [self._row(change, key_bytes) for change in changes if change.kind != UPDATE]
        last = changes[-1]
        first = changes[len(changes) - 1 - _updates_at_end(changes) + 1]
        columns = None if now.cells is None else newest(now.cells)
        row = SinkRow(
            self._key(last.parts.key),
            key_bytes,
            now.stamp,
            columns,
            DELETE if columns is None else UPDATE,
            first.before,
            last.sequence,
            first.existed,
        )
        if now.too_large:
            made.refused.append(Refused(row, TOO_LARGE))
        else:
            rows.append(row)
        made.rows.extend(rows)

    def _key(self, values: Sequence[bytes]) -> Key:
        decode = variant.decode
        return tuple([(n, decode(v)) for n, v in zip(self._names, values, strict=True)])

    def _keep_ahead(self, current: Mapping[bytes, CurrentRow], last_stamp: int) -> None:
        ahead = self._ahead
        for key_bytes, now in current.items():
            if now.stamp > last_stamp and not now.too_large:
                ahead[key_bytes] = now.stamp
        if len(ahead) > AHEAD_MAX:
            self._ahead = {key: stamp for key, stamp in ahead.items() if stamp > last_stamp}
            if len(self._ahead) > AHEAD_MAX:
                self._ahead.clear()


def _updates_at_end(changes: Sequence[Change]) -> int:
    """Return how many updates are at the end."""
    count = 0
    for change in reversed(changes):
        if change.kind != UPDATE:
            break
        count += 1
    return count
