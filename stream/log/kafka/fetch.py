"""Requests to a partition's leader: its bounds, and record batches from an offset on.

Both the log (which sees every batch) and the changelog (which sees committed ones) read
through this module. Offsets are Kafka's. Nothing is cached: each answer was obtained
after its call.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from aiokafka.record.memory_records import MemoryRecords

from rowtide.core.values.errors import LogTrimmed, Unavailable
from rowtide.stream.log.kafka.brokers import Brokers, Place
from rowtide.stream.log.kafka.connection import Address
from rowtide.stream.log.kafka.errors import BrokerError
from rowtide.stream.log.kafka.fetch_bytes import ANY, FetchRequest, PartitionAnswer

__all__ = [
    "COMMITTED",
    "EVERYTHING",
    "OFFSET_OUT_OF_RANGE",
    "FetchPartition",
    "Place",
    "fetch_many",
    "record_batches",
]

EVERYTHING = 0
COMMITTED = 1
"""Kafka's isolation levels: COMMITTED reads nothing at or above the last stable offset."""

EARLIEST = -2
LATEST = -1
OFFSET_OUT_OF_RANGE = 1
NOT_YET = 78
"""OFFSET_NOT_AVAILABLE, one of the codes after which a request is retried."""
THROTTLED = 89


class FetchPartition:
    """One topic-partition, for reading."""

    def __init__(self, brokers: Brokers, topic: str, partition: int) -> None:
        self.brokers = brokers
        self.topic = topic
        self.partition = partition
        self.name = f"{topic}[{partition}]"

    async def start(self) -> int:
        """Return the offset of the first entry still kept."""
        return await self._offset(EARLIEST, EVERYTHING)

    async def end(self, isolation: int = EVERYTHING) -> int:
        """Return the next offset, or with COMMITTED the last stable offset."""
        return await self._offset(LATEST, isolation)

    async def find_decided_end(self) -> int:
        """Return the end as of the call, once every earlier transaction has ended."""
        end = await self.end()

        async def once() -> None:
            if await self.end(COMMITTED) < end:
                raise BrokerError(NOT_YET, self.name)

        await self.brokers.until_deadline(f"open transactions on {self.name}", once)
        return end

    async def fetch(
        self, offset: int, *, bytes_max: int, wait_s: float, isolation: int = EVERYTHING
    ) -> PartitionAnswer:
        """Return batches from the one that contains ``offset`` on; none at the end after
        the wait.

        Raises ``LogTrimmed`` or ``Unavailable`` for an offset outside the bounds.
        """
        place = self.topic, self.partition
        wanted = FetchRequest({place: offset}, wait_s, bytes_max, bytes_max, isolation)

        async def question(leader: Address) -> PartitionAnswer:
            # Above a quota a broker's answer has no partition.
            answer = (await fetch_many(self.brokers, leader, wanted)).get(place)
            if answer is None or answer.error:
                raise BrokerError(THROTTLED if answer is None else answer.error, self.name)
            return answer

        try:
            return await self.brokers.ask_leader(*place, question)
        except BrokerError as error:
            if error.code != OFFSET_OUT_OF_RANGE:
                raise Unavailable(f"read: {error}") from error
            await self.refuse(offset)
            raise Unavailable(f"read {self.name} at {offset}: its bounds just moved") from error

    async def refuse(self, offset: int) -> None:
        """Raise the error for an ``offset`` before the start or beyond the end."""
        start, end = await self.start(), await self.end()
        if offset < start:
            raise LogTrimmed(f"{self.name}: offset {offset} is trimmed, the log starts at {start}")
        if offset > end:
            raise Unavailable(f"{self.name}: offset {offset} lies beyond the end {end}")

    async def _offset(self, timestamp: int, isolation: int) -> int:
        place = self.topic, self.partition

        async def question(leader: Address) -> int:
            epoch = self.brokers.epochs.get(place, ANY)
            code, offset = await self.brokers.exchange(
                leader,
                lambda connection: connection.offset(
                    place, epoch=epoch, timestamp=timestamp, isolation=isolation
                ),
            )
            if code:
                raise BrokerError(code, self.name)
            return offset

        try:
            return await self.brokers.ask_leader(self.topic, self.partition, question)
        except BrokerError as error:
            raise Unavailable(f"bounds: {error}") from error


async def fetch_many(
    brokers: Brokers, leader: Address, wanted: FetchRequest
) -> dict[Place, PartitionAnswer]:
    """Return the batches of each topic's partition from its offset on, with one request.

    A partition without an answer has nothing now. Raises one of ``LOST``.
    """
    # At most half of a request's time, so that an idle wait never counts as a dead
    # broker.
    wait_s = min(wanted.wait_s, brokers.config.request_s / 2)
    bounded = wanted._replace(wait_s=wait_s, epochs=brokers.epochs)
    return await brokers.exchange(leader, lambda connection: connection.fetch(bounded))


def record_batches(batches: bytes, where: str) -> Iterator[Any]:
    """Yield each whole batch of a fetch. Raises ``Unavailable`` for a corrupt one."""
    records = MemoryRecords(batches)
    while records.has_next():
        batch = records.next_batch()
        if not batch.validate_crc():
            raise Unavailable(f"{where}: the batch at {batch.base_offset} is corrupt")
        yield batch
