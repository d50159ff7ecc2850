"""How far each shard is in the topic, so that repetitions can be dropped.

A mark is written in the transaction of its rows, to a compacted topic of marks with one
record per shard. A change is identified by its position in the shard's log, and a page of
a snapshot by its stamp and its end. The topic already has what is not above the mark.
Rows without a position (-1, outside a page) come out of turn and are always new.

A refused row is not in the topic and may not be parked yet. The mark of its batch names
it, so that it is refused again if the batch is repeated.

The value is JSON: ``sequence``, ``page`` ([stamp, end in hex]), ``columns`` (name: types)
and ``refused`` (key in hex: sequence number).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rowtide.connectors.rows import SinkBatch, SinkRow
from rowtide.stream.log.changelog import Change
from rowtide.stream.log.kafka.brokers import Brokers
from rowtide.stream.log.kafka.changelog import KafkaChangelogReader
from rowtide.stream.log.kafka.fetch import FetchPartition

__all__ = ["MARKS", "Mark", "read_marks"]

MARKS = ".rowtide-marks"
"""Suffix of the name of the topic with the marks."""


@dataclass(slots=True)
class Mark:
    """How far one shard is. ``page`` is the last page's (stamp, end of its range).

    ``refused`` has the refused keys of the last batch, each with its first refused row.
    """

    sequence: int = -1
    page: tuple[int, bytes] | None = None
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    refused: Mapping[bytes, int] = field(default_factory=dict)

    def new(self, batch: SinkBatch) -> Sequence[SinkRow]:
        """Return the rows of a batch that are not in the topic yet."""
        if batch.covers is not None:
            if not self.has(batch):
                return batch.rows
            return [row for row in batch.rows if row.key_bytes in self.refused]
        return [row for row in batch.rows if self._is_new(row)]

    def has(self, page: SinkBatch) -> bool:
        """True if the topic has a page, except its refused rows."""
        if self.page is None or page.covers is None:
            return False
        held, end = self.page
        # Pages of a shard ascend by key, and their stamps never fall.
        begin, stamp = page.covers[0], page.stamp
        return stamp < held or (stamp == held and (not end or begin < end))

    def after(
        self,
        batch: SinkBatch,
        columns: Mapping[str, tuple[str, ...]],
        refused: Sequence[SinkRow] = (),
    ) -> Mark:
        """Return the mark to write with a batch and its refused rows."""
        highest = max((row.sequence for row in batch.rows), default=-1)
        if batch.covers is None and highest < 0:
            return Mark(self.sequence, self.page, columns, self.refused)  # Out of turn.
        left: dict[bytes, int] = {}
        for row in refused:
            left.setdefault(row.key_bytes, row.sequence)
        if batch.covers is not None:
            page = self.page if self.has(batch) else (batch.stamp, batch.covers[1])
            return Mark(self.sequence, page, columns, left)
        return Mark(max(self.sequence, highest), self.page, columns, left)

    def record(self, shard: str) -> Change:
        """Return the mark as a record."""
        page = None if self.page is None else [self.page[0], self.page[1].hex()]
        value: dict[str, object] = {
            "sequence": self.sequence,
            "page": page,
            "columns": self.columns,
            "refused": {key.hex(): sequence for key, sequence in self.refused.items()},
        }
        return shard.encode(), json.dumps(value).encode(), []

    def _is_new(self, row: SinkRow) -> bool:
        if row.sequence < 0 or row.sequence > self.sequence:
            return True
        first = self.refused.get(row.key_bytes)
        return first is not None and row.sequence >= first


async def read_marks(brokers: Brokers, topic: str) -> dict[str, Mark]:
    """Return every shard's mark. Raises ``Unavailable``.

    Waits until all earlier writes are decided. A transaction that another process left
    open delays this until it is fenced or times out.
    """
    end = await FetchPartition(brokers, topic, 0).find_decided_end()
    reader = KafkaChangelogReader(brokers, topic, 0)
    marks: dict[str, Mark] = {}
    async for entries in reader.read(await reader.start(), end):
        for entry in entries:
            if entry.value is not None:
                marks[entry.key.decode()] = _mark(entry.value)
    return marks


def _mark(value: bytes) -> Mark:
    document = json.loads(value)
    page = document["page"]
    return Mark(
        document["sequence"],
        None if page is None else (page[0], bytes.fromhex(page[1])),
        {name: tuple(kinds) for name, kinds in document["columns"].items()},
        {bytes.fromhex(key): sequence for key, sequence in document.get("refused", {}).items()},
    )
