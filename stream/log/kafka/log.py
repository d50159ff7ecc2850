"""The log of a shard as one partition of a Kafka topic.

There is no queue, no linger and no retry of an append: the caller has one batch in flight
and decides what a failure means. Reads are retried when the leader moves, until the
cluster's deadline.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from aiokafka.protocol.admin import DeleteRecordsRequest

from rowtide.core.values.errors import StoreError, Unavailable
from rowtide.stream.log.kafka.append import Append, Entries, record_batch
from rowtide.stream.log.kafka.brokers import LOST, Brokers
from rowtide.stream.log.kafka.connection import Address
from rowtide.stream.log.kafka.errors import BrokerError
from rowtide.stream.log.kafka.fetch import (
    EVERYTHING,
    OFFSET_OUT_OF_RANGE,
    FetchPartition,
    Place,
    fetch_many,
    record_batches,
)
from rowtide.stream.log.kafka.fetch_bytes import FetchRequest, PartitionAnswer
from rowtide.stream.log.log import Entry

__all__ = ["KafkaLog", "append_many", "read_many"]

logger = logging.getLogger(__name__)

Found = TypeVar("Found")


class KafkaLog:
    """One topic-partition as a ``Log``. Objects are cheap; several may write to one partition."""

    def __init__(self, brokers: Brokers, topic: str, partition: int) -> None:
        self.place = (topic, partition)
        self.name = f"{topic}[{partition}]"
        self.brokers = brokers
        self._reader = FetchPartition(brokers, topic, partition)
        self._in_flight: Append | None = None

    async def append(self, entries: Entries, *, deadline_s: float) -> int:
        """Append one batch, see ``Log.append``. A cancelled append may have been written."""
        append = Append(self.brokers, {self.place: self.batch(entries)})
        self._in_flight = append
        outcome = (await append.run(deadline_s=deadline_s))[self.place]
        if isinstance(outcome, StoreError):
            raise outcome
        return outcome

    async def read(self, offset: int, *, bytes_max: int, wait_s: float = 0.0) -> list[Entry]:
        """Return entries from ``offset`` on, see ``Log.read``."""
        clock = asyncio.get_running_loop().time
        until = clock() + wait_s
        while True:
            wait_left_s = max(0.0, until - clock())
            fetched = await self._reader.fetch(offset, bytes_max=bytes_max, wait_s=wait_left_s)
            entries = decode_entries(fetched.batches, offset, self.name)
            if entries or clock() >= until:
                return entries

    async def bounds(self) -> tuple[int, int]:
        """Return (start, end), see ``Log.bounds``."""
        # The start first: it never passes an end that is read later.
        start = await self._reader.start()
        return start, await self._reader.end()

    async def end(self) -> int:
        """Return the offset after the last entry: half of the requests of ``bounds``."""
        return await self._reader.end()

    async def trim(self, before: int) -> None:
        """Delete every entry below ``before``, see ``Log.trim``."""
        topic, partition = self.place
        timeout_ms = int(self.brokers.config.request_s * 1000)
        request = DeleteRecordsRequest([(topic, [(partition, before)])], timeout_ms)

        async def question(leader: Address) -> None:
            response = await self.brokers.ask(leader, request)
            code = response.topics[0][1][0][2]
            if code:
                raise BrokerError(code, self.name)

        try:
            await self.brokers.ask_leader(topic, partition, question)
        except BrokerError as error:
            if error.code == OFFSET_OUT_OF_RANGE:
                await self._reader.refuse(before)
            raise Unavailable(f"trim: {error}") from error

    async def refuse(self, offset: int) -> None:
        """Raise the error for an ``offset`` before the start or beyond the end."""
        await self._reader.refuse(offset)

    async def disconnect(self) -> None:
        """Drop the connection of an append in flight; its caller gets an error at once."""
        if self._in_flight is not None:
            self._in_flight.drop()

    def batch(self, entries: Entries) -> bytes:
        """Return ``entries`` as one record batch. Raises ``Rejected`` above the limit."""
        return record_batch(entries, bytes_max=self.brokers.config.batch_bytes_max, where=self.name)


async def append_many(
    items: Sequence[tuple[KafkaLog, Entries]], *, deadline_s: float
) -> list[int | StoreError]:
    """Append to several logs with one request per leader; one result each, in order.

    Failures are returned, not raised: one partition's failure does not affect the others.
    No log may occur twice. The call has its own connections, so renewals never wait
    behind data.
    """
    clock = asyncio.get_running_loop().time
    until = clock() + deadline_s
    outcomes: dict[Place, int | StoreError] = {}
    groups = await _by_leader(items, outcomes, deadline_s=deadline_s)
    sent = await _of_each(
        {leader: append.run(deadline_s=until - clock()) for leader, append in groups.items()},
        name="append_many",
    )
    for outcome in sent:
        outcomes |= outcome
    return [outcomes[log.place] for log, _entries in items]


async def _by_leader(
    items: Sequence[tuple[KafkaLog, Entries]],
    outcomes: dict[Place, int | StoreError],
    *,
    deadline_s: float,
) -> dict[Address, Append]:
    """Return one append per leader; the errors of unsent ones go to ``outcomes``."""
    batches: dict[Address, dict[Place, bytes]] = {}
    for log, _entries in items:
        assert log.place not in outcomes, f"{log.name} occurs twice"
        outcomes[log.place] = Unavailable(f"append to {log.name}: no leader in time")
    # A passed deadline is no failure here: the rest stays as "no leader in time".
    with suppress(TimeoutError):
        async with asyncio.timeout(deadline_s):
            for log, entries in items:
                try:
                    leader = await log.brokers.leader(*log.place)
                    batches.setdefault(leader, {})[log.place] = log.batch(entries)
                except StoreError as error:
                    outcomes[log.place] = error
                except (*LOST, BrokerError) as error:
                    outcomes[log.place] = Unavailable(f"append to {log.name}: {error}")
    return {leader: Append(items[0][0].brokers, found) for leader, found in batches.items()}


async def read_many(
    items: Sequence[tuple[KafkaLog, int]], *, bytes_max: int, wait_s: float
) -> list[list[Entry] | StoreError]:
    """Read several logs, each from its offset on, with one request per leader.

    See ``LogCluster``.
    """
    brokers = items[0][0].brokers
    groups: dict[Address, dict[Place, int]] = {}
    found: dict[Place, PartitionAnswer | StoreError] = {}
    try:
        for log, offset in items:
            try:
                groups.setdefault(await brokers.leader(*log.place), {})[log.place] = offset
            except BrokerError as error:
                found[log.place] = Unavailable(f"read: {error}")
    except LOST as error:  # The later logs of the list are not reached either.
        logger.debug("cannot read logs, retrying: %s", error)
    asked = {
        leader: _tell(
            brokers, leader, FetchRequest(offsets, wait_s, bytes_max, bytes_max, EVERYTHING), found
        )
        for leader, offsets in groups.items()
    }
    await _of_each(asked, name="read_many")
    return [await _read(log, offset, found.get(log.place)) for log, offset in items]


async def _of_each(
    asked: Mapping[Address, Coroutine[Any, Any, Found]], *, name: str
) -> Sequence[Found]:
    """Return each broker's answer; all requests run in parallel."""
    if len(asked) == 1:  # The usual case: it needs no task.
        return [await answer for answer in asked.values()]
    async with asyncio.TaskGroup() as tasks:
        begun = [
            tasks.create_task(answer, name=f"{name} {leader}") for leader, answer in asked.items()
        ]
    return [task.result() for task in begun]


async def _tell(
    brokers: Brokers,
    leader: Address,
    wanted: FetchRequest,
    found: dict[Place, PartitionAnswer | StoreError],
) -> None:
    """Add one broker's answers to ``found``."""
    try:
        found |= await fetch_many(brokers, leader, wanted)
    except LOST as error:
        for place in wanted.offsets:
            brokers.forget_leader(*place)
            found[place] = Unavailable(f"read: {error or type(error).__name__}")


async def _read(
    log: KafkaLog, offset: int, answer: PartitionAnswer | StoreError | None
) -> list[Entry] | StoreError:
    """Return one log's entries from ``offset`` on, or the error of its answer."""
    try:
        if isinstance(answer, StoreError):
            return answer
        if answer is not None and answer.error == OFFSET_OUT_OF_RANGE:
            await log.refuse(offset)
        if answer is not None and answer.error:
            log.brokers.forget_leader(*log.place)
        elif answer is not None:
            entries = decode_entries(answer.batches, offset, log.name)
            if entries or answer.end <= offset:
                return entries
        return Unavailable(f"read: {log.name} at {offset} was passed over")
    except StoreError as error:
        return error


def decode_entries(batches: bytes, offset: int, where: str) -> list[Entry]:
    """Return the entries of ``batches`` at or above ``offset``; the first batch may begin below."""
    entries: list[Entry] = []
    for batch in record_batches(batches, where):
        entries += [Entry(record.offset, record.key, record.value) for record in batch]
    first = next((at for at, entry in enumerate(entries) if entry.offset >= offset), len(entries))
    return entries[first:] if first else entries
