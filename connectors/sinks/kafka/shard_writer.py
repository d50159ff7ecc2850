"""Writes one shard's rows to the topic, each batch in one transaction with the shard's
mark.

The transactional id is made of topic and shard. Before it writes for a shard, a process
fences what a former process left open or still sends, and then reads the mark. So each
change is in the topic once and in order, even if a process was paused, repeats a batch,
or two run at once. After any failure the id is fenced again before the next write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from rowtide.connectors.rows import SinkBatch, SinkRow
from rowtide.connectors.sinks.kafka.marks import MARKS, Mark, read_marks
from rowtide.core.values.errors import OutcomeUnknown, Unavailable
from rowtide.stream.log.changelog import Change, Fenced
from rowtide.stream.log.kafka.brokers import Brokers
from rowtide.stream.log.kafka.fetch import Place
from rowtide.stream.log.kafka.transaction import Transactions

__all__ = ["Records", "ShardWriter"]

Records = Mapping[Place, Sequence[Change]]


class ShardWriter:
    """The transactions of one shard."""

    def __init__(self, brokers: Brokers, topic: str, shard: str, *, batch_bytes: int) -> None:
        self._brokers = brokers
        self._marks = topic + MARKS
        self._shard = shard
        name = f"rowtide.{topic}.{shard}"
        self._transactions = Transactions(brokers, name, batch_bytes=batch_bytes)
        self._mark = Mark()
        self.turn = asyncio.Lock()

    async def new(
        self, batch: SinkBatch, learn: Callable[[Mapping[str, tuple[str, ...]]], None]
    ) -> Sequence[SinkRow]:
        """Return the rows that are new, see ``Mark.new``. ``learn`` gets the known columns."""
        if not self._transactions.ready:
            await self._take()
            learn(self._mark.columns)
        return self._mark.new(batch)

    def has(self, page: SinkBatch) -> bool:
        """True if the topic has a page, see ``Mark.has``. Call ``new`` first."""
        return self._mark.has(page)

    async def write(
        self,
        batch: SinkBatch,
        records: Records,
        columns: Mapping[str, tuple[str, ...]],
        refused: Sequence[SinkRow],
    ) -> None:
        """Write a batch's records and its mark with the refused rows. Raises ``Unavailable``."""
        mark = self._mark.after(batch, columns, refused)
        parts: dict[Place, Sequence[Change]] = dict(records)
        parts[self._marks, 0] = [mark.record(self._shard)]
        try:
            await self._transactions.write(parts)
        except (Fenced, OutcomeUnknown) as error:
            # The outcome is unknown. The mark shows it after the id is fenced again.
            raise Unavailable(str(error)) from error
        self._mark = mark

    async def _take(self) -> None:
        try:
            await self._transactions.fence()
        except Fenced as error:
            raise Unavailable(str(error)) from error
        try:
            marks = await read_marks(self._brokers, self._marks)
        except BaseException:
            self._transactions.leave()
            raise
        self._mark = marks.get(self._shard, Mark())
