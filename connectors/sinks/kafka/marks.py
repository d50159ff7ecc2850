"""How far each shard's changes stand in the topic: what makes a repetition no repetition.

A mark is written in the transaction of the rows that it stands for, to a compacted topic of its
own, one record per shard. A change is told by its place in the shard's log, a page of a snapshot by
its stamp and where it ends; what is not above the mark stands in the topic already. Rows without a
place (-1, in no page) come out of their turn and are always new.

A row that the topic did not take is above no mark, and perhaps not parked yet either: the mark of
its batch names it, so that it is refused again where the batch comes again.

The value is JSON: ``sequence``, ``page`` ([stamp, end in hex]), ``columns`` (name: types) and
``refused`` (key in hex: sequence number).
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
"""Ends the name of the topic that has a topic's marks."""


@dataclass(slots=True)
class Mark:
    """How far one shard is. ``page`` is the last page's (stamp, end of its range).

    ``refused`` has the keys of the last batch that were refused, each with its first such row.
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
        """True if the topic has a page, except what was refused of it."""
        if self.page is None or page.covers is None:
            return False
        held, end = self.page
        # Pages of a shard go from low keys to high, and their stamps never fall.
        begin, stamp = page.covers[0], page.stamp
        return stamp < held or (stamp == held and (not end or begin < end))

    def after(
        self,
        batch: SinkBatch,
        columns: Mapping[str, tuple[str, ...]],
        refused: Sequence[SinkRow] = (),
    ) -> Mark:
        """Return the mark that goes with a batch, of which rows were refused."""
        highest = max((row.sequence for row in batch.rows), default=-1)
        if batch.covers is None and highest < 0:
            return Mark(self.sequence, self.page, columns, self.refused)  # Out of its turn.
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

    All that was written before the call is decided first: a transaction that another process
    left open holds this up until it is taken over or times out.
    """
    end = await FetchPartition(brokers, topic, 0).decided_end()
    reader = KafkaChangelogReader(brokers, topic, 0)
    marks: dict[str, Mark] = {}
    async for entries in reader.read(await reader.start(), end):
        for entry in entries:
            if entry.value is not None:
                marks[entry.key.decode()] = _mark(entry.value)
    return marks


def _mark(value: bytes) -> Mark:
    told = json.loads(value)
    page = told["page"]
    return Mark(
        told["sequence"],
        None if page is None else (page[0], bytes.fromhex(page[1])),
        {name: tuple(kinds) for name, kinds in told["columns"].items()},
        {bytes.fromhex(key): sequence for key, sequence in told.get("refused", {}).items()},
    )
