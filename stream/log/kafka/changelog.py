"""The changelog of a slot: written in whole transactions, read up to the last stable offset.

A flush is one Kafka transaction under the slot's transactional id. ``fence`` takes that
id over: from then on the broker rejects every flush of the former holder. The protocol is
spoken directly, without background tasks, so that each failure belongs to a known step.

Invariants: a flush is whole or absent. After a failure before the commit nothing is
retried. The writer is then unusable until it is fenced again, which aborts its open
transaction. Positions are offsets of the next entry to read; each transaction's end takes
one offset too.
"""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator
from typing import Any

from rowtide.core.values.errors import OutcomeUnknown, Unavailable
from rowtide.stream.log.changelog import ChangelogEntry, Changes
from rowtide.stream.log.kafka.brokers import Brokers
from rowtide.stream.log.kafka.errors import BrokerError
from rowtide.stream.log.kafka.fetch import COMMITTED, NOT_YET, FetchPartition, record_batches
from rowtide.stream.log.kafka.fetch_bytes import PartitionAnswer
from rowtide.stream.log.kafka.transaction import Transactions

__all__ = ["KafkaChangelogReader", "KafkaChangelogWriter"]

BATCH_BYTES = 1 << 20
"""Encoding a batch holds the event loop: 0.6 ms with kernels, 4 ms without."""
FLUSH_S_MAX = 900.0
"""A longer flush never succeeds. Brokers allow no more by default. The next fencing ends
a transaction that an owner leaves open, and no other reader waits for it.
"""
FETCH_BYTES = 2 << 20
"""Decoding this many bytes blocks the event loop for about 10 ms."""
ABORT_MARKER = 0


class KafkaChangelogWriter:
    """Writes a changelog partition under one transactional id, see ``ChangelogWriter``."""

    def __init__(self, brokers: Brokers, topic: str, partition: int, transactional_id: str) -> None:
        self.name = f"{topic}[{partition}]"
        self._brokers = brokers
        self._place = (topic, partition)
        self._partition = FetchPartition(brokers, topic, partition)
        self._transactions = Transactions(
            brokers, transactional_id, batch_bytes=BATCH_BYTES, last_s=FLUSH_S_MAX
        )

    @property
    def ready(self) -> bool:
        """True if a flush may follow without fencing first."""
        return self._transactions.ready

    async def prepare(self) -> None:
        """Find the transactions' coordinator now, so that ``fence`` need not."""
        await self._transactions.prepare()

    async def fence(self) -> None:
        """Take the transactional id over, and abort its former holder's open transaction."""
        await self._transactions.fence()

    def leave(self) -> None:
        """Write no more before the next fencing."""
        self._transactions.leave()

    async def flush(self, changes: Changes) -> int:
        """Write ``changes`` in one transaction, see ``ChangelogWriter.flush``."""
        last = (await self._transactions.write({self._place: changes}))[self._place]
        try:
            await self._await_visible(last)
        except BaseException:
            self._transactions.leave()
            raise
        # The commit marker follows the last change directly: no other writer can come
        # between.
        return last + 2

    async def _await_visible(self, last: int) -> None:
        """Wait for the commit marker, which the coordinator writes after it has answered."""

        async def once() -> None:
            if await self._partition.end(COMMITTED) <= last:
                raise BrokerError(NOT_YET, self.name)

        try:
            await self._brokers.until_deadline(f"flush to {self.name}", once)
        except Unavailable as error:
            raise OutcomeUnknown(f"committed, but not yet visible: {error}") from error


class KafkaChangelogReader:
    """Reads from any position to the last stable offset, see ``ChangelogReader``."""

    def __init__(self, brokers: Brokers, topic: str, partition: int) -> None:
        self._partition = FetchPartition(brokers, topic, partition)
        self.position = 0
        """Next offset to read. It also moves past aborted entries and markers."""

    async def start(self) -> int:
        """Return the first offset still kept."""
        return await self._partition.start()

    async def end(self) -> int:
        """Return the last stable offset as of now."""
        return await self._partition.end(COMMITTED)

    async def read(
        self, from_offset: int, until: int | None = None
    ) -> AsyncIterator[list[ChangelogEntry]]:
        """Yield committed entries in order, up to the last stable offset as of the call.

        ``until`` is an earlier stable offset to stop at. After each list ``position`` is
        the offset after it; at the end, the offset after the whole. Raises ``LogTrimmed``
        if ``from_offset`` lies before the start.
        """
        if until is None:
            until = await self.end()
        self.position = from_offset
        while self.position < until:
            fetched = await self._partition.fetch(
                self.position, bytes_max=FETCH_BYTES, wait_s=0.0, isolation=COMMITTED
            )
            entries, position = decode_committed(fetched, self.position, self._partition.name)
            if position == self.position and fetched.stable >= until:
                # Compaction removed all entries before the end.
                position = until
            if position > until:  # Written since; the caller may not have read as far.
                entries = [entry for entry in entries if entry.offset < until]
                position = until
            self.position = position
            if entries:
                yield entries


def decode_committed(
    fetched: PartitionAnswer, offset: int, where: str
) -> tuple[list[ChangelogEntry], int]:
    """Return the committed entries from ``offset`` on, and the position after all batches."""
    entries: list[ChangelogEntry] = []
    aborted = sorted(fetched.aborted, key=lambda transaction: transaction[1], reverse=True)
    dead: set[int] = set()
    position = offset
    for batch in record_batches(fetched.batches, where):
        position = batch.next_offset
        while aborted and aborted[-1][1] < position:
            dead.add(aborted.pop()[0])
        if batch.is_control_batch:
            if _is_abort(batch):
                dead.discard(batch.producer_id)
        elif not (batch.is_transactional and batch.producer_id in dead):
            entries += [
                ChangelogEntry(record.offset, record.key, record.value, record.headers)
                for record in batch
            ]
    first = next((at for at, entry in enumerate(entries) if entry.offset >= offset), len(entries))
    return (entries[first:] if first else entries), position


def _is_abort(batch: Any) -> bool:
    [marker] = batch
    _version, kind = struct.unpack_from(">HH", marker.key)
    return bool(kind == ABORT_MARKER)
