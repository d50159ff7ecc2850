"""The changelog of a slot: written in whole transactions, read as far as they are decided.

A flush is one Kafka transaction under the slot's transactional id. ``fence`` takes that id
over: from then on the broker refuses every flush of whoever had it before. The protocol is
spoken directly, without background tasks, so that each failure falls on a known step.

Invariants: a flush is whole or absent. Nothing is retried across a failure before the commit:
the writer is then good for nothing until it is fenced again, which aborts what it left
open. Positions are offsets of the next entry to read; each transaction's end takes one offset too.
"""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any

from aiokafka.protocol.coordination import FindCoordinatorRequest
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.protocol.transaction import (
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
)
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from rowtide.core.errors import OutcomeUnknown, Unavailable
from rowtide.stream.changelog import Change, ChangelogEntry, Fenced
from rowtide.stream.kafka_append import ALL_IN_SYNC, MAGIC, UNCOMPRESSED
from rowtide.stream.kafka_brokers import LOST, Brokers
from rowtide.stream.kafka_connection import Address
from rowtide.stream.kafka_errors import BrokerError, too_large
from rowtide.stream.kafka_fetch import COMMITTED, Fetched, Partition, record_batches

__all__ = ["KafkaChangelogReader", "KafkaChangelogWriter"]

TRANSACTION = 1
FENCED = frozenset({47, 90})
"""INVALID_PRODUCER_EPOCH and PRODUCER_FENCED: another has taken the transactional id over."""
BATCH_BYTES = 4 << 20
FETCH_BYTES = 2 << 20
"""Decoding this much holds the event loop for about 10 ms."""
NOT_YET = 78
"""OFFSET_NOT_AVAILABLE, one of the codes after which a question is asked again."""
ABORT_MARKER = 0
SEQUENCES = 1 << 31
"""Sequence numbers begin again at 0 after this many records."""


@dataclass(slots=True)
class Tenure:
    """What the broker gave us at the last fencing; ``sequence`` is that of the next record."""

    producer_id: int
    epoch: int
    sequence: int = 0


class KafkaChangelogWriter:
    """Writes a changelog partition under one transactional id, see ``ChangelogWriter``."""

    def __init__(self, brokers: Brokers, topic: str, partition: int, transactional_id: str) -> None:
        self.name = f"{topic}[{partition}]"
        self._brokers = brokers
        self._place = (topic, partition)
        self._id = transactional_id
        self._partition = Partition(brokers, topic, partition)
        self._coordinator: Address | None = None
        self._tenure: Tenure | None = None

    @property
    def ready(self) -> bool:
        """Whether a flush may follow without fencing first."""
        return self._tenure is not None

    async def prepare(self) -> None:
        """Find who coordinates the transactions, so that ``fence`` need not."""
        with suppress(BrokerError, Unavailable, *LOST):
            self._coordinator = await self._find_coordinator()

    async def fence(self) -> None:
        """Take the transactional id over, and abort what its former holder left open."""
        self._tenure = None
        timeout_ms = int(self._brokers.config.deadline_s * 1000)
        with _failures_before_commit(self.name):
            answer = await self._coordinate(
                InitProducerIdRequest(self._id, timeout_ms), _error_code
            )
        self._tenure = Tenure(answer.producer_id, answer.producer_epoch)

    async def flush(self, changes: Sequence[Change]) -> int:
        """Write ``changes`` in one transaction, see ``ChangelogWriter.flush``."""
        assert changes, "a flush needs a change"
        assert self._tenure is not None, "fence before a flush"
        # Taken away until all went well: a cancelled flush leaves a transaction open too.
        tenure, self._tenure = self._tenure, None
        with _failures_before_commit(self.name):
            await self._begin(tenure)
            last = await self._write(tenure, changes)
        await self._commit(tenure)
        await self._await_visible(last)
        self._tenure = tenure
        # The commit marker stands right behind the last change: no other writer can come between.
        return last + 2

    async def _begin(self, tenure: Tenure) -> None:
        topic, partition = self._place
        request = AddPartitionsToTxnRequest(
            self._id, tenure.producer_id, tenure.epoch, [(topic, [partition])]
        )
        await self._coordinate(request, lambda answer: answer.errors[0][1][0][1])

    async def _write(self, tenure: Tenure, changes: Sequence[Change]) -> int:
        """Send every batch, one after the other, and return the offset of the last change."""
        topic, partition = self._place
        last = -1
        for batch, count in self._batches(tenure, changes):
            request = ProduceRequest(
                self._id,
                ALL_IN_SYNC,
                int(self._brokers.config.request_s * 1000),
                [(topic, [(partition, batch)])],
            )
            leader = await self._brokers.leader(topic, partition)
            answer = await self._brokers.ask(leader, request)
            _partition, code, base, *_rest = answer.topics[0][1][0]
            if code or base < 0:
                self._brokers.forget_leader(topic, partition)
                raise BrokerError(code, self.name)
            last = base + count - 1
        return last

    def _batches(self, tenure: Tenure, changes: Sequence[Change]) -> Iterator[tuple[bytes, int]]:
        """Yield record batches of bounded size with their numbers of records."""
        at = 0
        while at < len(changes):
            state = (tenure.producer_id, tenure.epoch, tenure.sequence)
            builder = DefaultRecordBatchBuilder(MAGIC, UNCOMPRESSED, 1, *state, BATCH_BYTES)
            count = 0
            for key, value, headers in islice(changes, at, None):
                if builder.append(count, None, key, value, headers) is None:
                    break
                count += 1
            limit = self._brokers.config.batch_bytes_max
            if builder.size() > limit:
                raise too_large(f"flush to {self.name}: {builder.size()} bytes, limit {limit}")
            yield bytes(builder.build()), count
            tenure.sequence = (tenure.sequence + count) % SEQUENCES
            at += count

    async def _commit(self, tenure: Tenure) -> None:
        # Repeating it is harmless: the coordinator answers for the same epoch as it did at first.
        request = EndTxnRequest(self._id, tenure.producer_id, tenure.epoch, True)
        try:
            await self._coordinate(request, _error_code)
        except BrokerError as error:
            if error.code in FENCED:
                raise Fenced(f"commit to {self.name}: {error}") from error
            raise OutcomeUnknown(f"commit to {self.name}: {error}") from error
        except Unavailable as error:
            raise OutcomeUnknown(f"commit to {self.name}: {error}") from error

    async def _await_visible(self, last: int) -> None:
        """Wait for the commit marker, which the coordinator writes after it has answered."""

        async def once() -> None:
            if await self._partition.end(COMMITTED) <= last:
                raise BrokerError(NOT_YET, self.name)

        try:
            await self._brokers.until_deadline(f"flush to {self.name}", once)
        except Unavailable as error:
            raise OutcomeUnknown(f"committed, but not yet visible: {error}") from error

    async def _coordinate(self, request: Any, code_of: Callable[[Any], int]) -> Any:
        """Ask the transaction coordinator, and again where it moved or is still busy."""

        async def once() -> Any:
            coordinator = self._coordinator or await self._find_coordinator()
            self._coordinator = None
            answer = await self._brokers.ask(coordinator, request)
            if code := code_of(answer):
                raise BrokerError(code, self._id)
            self._coordinator = coordinator
            return answer

        return await self._brokers.until_deadline(f"transaction {self._id}", once)

    async def _find_coordinator(self) -> Address:
        def check(answer: Any) -> Address:
            if answer.error_code:
                raise BrokerError(answer.error_code, f"coordinator of {self._id}")
            return answer.host, answer.port

        return await self._brokers.ask_any(FindCoordinatorRequest(self._id, TRANSACTION), check)


class KafkaChangelogReader:
    """Reads from any position to the last stable offset, see ``ChangelogReader``."""

    def __init__(self, brokers: Brokers, topic: str, partition: int) -> None:
        self._partition = Partition(brokers, topic, partition)
        self.position = 0
        """Next offset to read. Passes over aborted entries and markers too."""

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

        With ``until``, a stable offset of before, up to there. After each list ``position`` is the
        offset behind it, at the end that of the whole. Raises ``LogTrimmed`` where ``from_offset``
        lies before the start.
        """
        if until is None:
            until = await self.end()
        self.position = from_offset
        while self.position < until:
            fetched = await self._partition.fetch(
                self.position, bytes_max=FETCH_BYTES, wait_s=0.0, isolation=COMMITTED
            )
            entries, position = committed(fetched, self.position, self._partition.name)
            if position == self.position and fetched.stable >= until:
                # Compaction removed all there was before the end.
                position = until
            if position > until:  # Written since; whoever asks may not be as far yet.
                entries = [entry for entry in entries if entry.offset < until]
                position = until
            self.position = position
            if entries:
                yield entries


def committed(fetched: Fetched, offset: int, where: str) -> tuple[list[ChangelogEntry], int]:
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


def _error_code(answer: Any) -> int:
    return int(answer.error_code)


@contextmanager
def _failures_before_commit(where: str) -> Iterator[None]:
    """Nothing is committed yet, so whatever fails here leaves nothing, once it is fenced."""
    try:
        yield
    except BrokerError as error:
        if error.code in FENCED:
            raise Fenced(f"flush to {where}: {error}") from error
        raise Unavailable(f"flush to {where}: {error}") from error
    except LOST as error:
        raise Unavailable(f"flush to {where}: {error or type(error).__name__}") from error
