"""Rows that a topic has from before a snapshot and that no change deleted.

A topic that was empty when its first snapshot began has none. Any other topic is read
once when a shard's snapshot begins, or when it continues in another process. Its living
keys are in memory until the next snapshot.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from rowtide.connectors.rows import SinkBatch, SinkRow
from rowtide.connectors.sinks.kafka.topic_rows import TopicRows
from rowtide.core.records.change import DELETE
from rowtide.core.values import key as key_order
from rowtide.core.values import variant
from rowtide.core.values.schema import KeyColumn

__all__ = ["Leftovers"]


class Leftovers:
    """The keys of the topic, for comparison with one shard's pages."""

    def __init__(self, columns: Sequence[KeyColumn], rows: TopicRows) -> None:
        self._columns = columns
        self._rows = rows
        self._at: bytes | None = None
        self._stamps: dict[bytes, int] = {}
        self._keys: list[bytes] = []

    async def find_missing(self, page: SinkBatch) -> list[SinkRow]:
        """Return deletes of the topic's older rows in a page's range that the page lacks."""
        assert page.covers is not None, "a page"
        begin, end = page.covers
        if self._at is None or begin < self._at:
            self._stamps = await self._rows.living()
            self._keys = sorted(self._stamps)
        self._at = begin
        low = bisect_left(self._keys, begin)
        high = bisect_left(self._keys, end) if end else len(self._keys)
        there = {row.key_bytes for row in page.rows}
        return [
            self._make_delete(key, page.stamp)
            for key in self._keys[low:high]
            if key not in there and self._stamps[key] < page.stamp
        ]

    def _make_delete(self, key_bytes: bytes, stamp: int) -> SinkRow:
        values = key_order.decode(key_bytes)
        names = [column.name for column in self._columns]
        key = tuple((n, variant.decode(v)) for n, v in zip(names, values, strict=True))
        return SinkRow(key, key_bytes, stamp, None, DELETE)
