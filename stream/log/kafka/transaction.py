"""Transactions under one transactional id, over any partitions of a cluster.

``fence`` takes the id over. From then on the broker rejects whatever its former holder
still sends, and has aborted its open transaction. The protocol is spoken directly,
without background tasks, so that each failure belongs to a known step.

Invariants: a transaction is whole or absent. After a failure before the commit nothing is
retried. The id is then unusable until it is fenced again, which aborts the open
transaction.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from aiokafka.partitioner import murmur2
from aiokafka.protocol.coordination import FindCoordinatorRequest
from aiokafka.protocol.transaction import (
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
)

from rowtide.core.values.errors import OutcomeUnknown, Unavailable
from rowtide.stream.log.changelog import Change, Changes, Fenced
from rowtide.stream.log.kafka.brokers import LOST, Brokers
from rowtide.stream.log.kafka.connection import Address
from rowtide.stream.log.kafka.errors import BrokerError, too_large
from rowtide.stream.log.kafka.fetch import Place
from rowtide.stream.log.kafka.record_batch import Producer, encode_batch

__all__ = ["Transactions", "partition_of"]

logger = logging.getLogger(__name__)

TRANSACTION = 1
INVALID_TIMEOUT = 50
"""A coordinator's answer if transactions are to last longer than it allows."""
FENCED = frozenset({47, 90})
"""INVALID_PRODUCER_EPOCH and PRODUCER_FENCED: another holder has the transactional id."""
SLICE = 500
"""Records put into a batch before other tasks get their turn on the event loop."""
RECORD_BYTES = 32
"""Bytes of a record, or of a header, besides its texts: this or less."""
SEQUENCES = 1 << 31
"""Sequence numbers begin again at 0 after this many records."""

POSITIVE = 0x7FFFFFFF


@dataclass(slots=True)
class Tenure:
    """The producer id and epoch of the last fencing, and each partition's next sequence number."""

    producer_id: int
    epoch: int
    sequences: dict[Place, int] = field(default_factory=lambda: defaultdict(int))


class Transactions:
    """One transactional id. Not for several callers at once.

    The coordinator aborts a transaction that takes longer than ``last_s``. A reader of
    committed entries waits that long for an open one, unless the id is fenced before. By
    default, or if the coordinator allows no more, it is the time limit of an
    administrative call.
    """

    def __init__(
        self,
        brokers: Brokers,
        transactional_id: str,
        *,
        batch_bytes: int,
        last_s: float | None = None,
    ) -> None:
        self._last_s = last_s or brokers.config.deadline_s
        self._brokers = brokers
        self._id = transactional_id
        self._batch_bytes = batch_bytes
        self._coordinator: Address | None = None
        self._tenure: Tenure | None = None

    @property
    def ready(self) -> bool:
        """True if ``write`` may follow without fencing first."""
        return self._tenure is not None

    async def prepare(self) -> None:
        """Find the transactions' coordinator now, so that ``fence`` need not."""
        with suppress(BrokerError, Unavailable, *LOST):
            self._coordinator = await self._find_coordinator()

    async def fence(self) -> None:
        """Take the transactional id over, and abort its former holder's open transaction."""
        self._tenure = None
        with self._failures_before_commit():
            try:
                self._tenure = await self._begin_tenure()
            except BrokerError as error:
                usual_s = self._brokers.config.deadline_s
                if error.code != INVALID_TIMEOUT or self._last_s <= usual_s:
                    raise
                logger.warning(
                    "transactions %s may last %s s only, because the brokers' "
                    "transaction.max.timeout.ms is below %s s: longer writes fail",
                    *(self._id, usual_s, self._last_s),
                )
                self._last_s = usual_s
                self._tenure = await self._begin_tenure()

    async def _begin_tenure(self) -> Tenure:
        request = InitProducerIdRequest(self._id, int(self._last_s * 1000))
        answer = await self._coordinate(request, _error_code)
        return Tenure(answer.producer_id, answer.producer_epoch)

    def leave(self) -> None:
        """Use the id no more before the next fencing."""
        self._tenure = None

    async def write(self, parts: Mapping[Place, Changes]) -> dict[Place, int]:
        """Write records to partitions in one transaction; return each one's last offset.

        Records are taken as they are sent: memory holds one batch of each partition at a
        time. Raises ``Fenced`` if another holder has the id. Raises ``Unavailable``
        before the commit: nothing was written. Raises ``OutcomeUnknown`` after it. Call
        ``fence`` after each of them.
        """
        assert self._tenure is not None, "fence before a transaction"
        # Cleared until all succeeded: a cancelled transaction stays open too.
        tenure, self._tenure = self._tenure, None
        with self._failures_before_commit():
            await self._begin(tenure, parts.keys())
            last = await self._produce_all(tenure, parts)
        await self._commit(tenure)
        self._tenure = tenure
        return last

    async def _begin(self, tenure: Tenure, places: Iterable[Place]) -> None:
        topics: dict[str, list[int]] = defaultdict(list)
        for topic, partition in places:
            topics[topic].append(partition)
        request = AddPartitionsToTxnRequest(
            self._id, tenure.producer_id, tenure.epoch, [*topics.items()]
        )

        def first_code(answer: Any) -> int:
            return next((code for _, parts in answer.errors for _, code in parts if code), 0)

        await self._coordinate(request, first_code)

    async def _produce_all(
        self, tenure: Tenure, parts: Mapping[Place, Changes]
    ) -> dict[Place, int]:
        """Send every batch, a partition's one after the other; return the last offsets."""
        left = {place: iter(changes) for place, changes in parts.items()}
        held: dict[Place, Change] = {}
        last: dict[Place, int] = {}
        while True:
            batches: dict[Place, tuple[bytes, int]] = {}
            for place, rest in left.items():
                batch = await self._batch(tenure, place, rest, held)
                if batch is not None:
                    batches[place] = batch
            if not batches:
                return last
            bases = await self._produce({place: batch for place, (batch, _) in batches.items()})
            for place, (_batch, count) in batches.items():
                last[place] = bases[place] + count - 1

    async def _produce(self, batches: Mapping[Place, bytes]) -> dict[Place, int]:
        """Send one batch per partition, a request to each leader; return the base offsets."""
        by_leader: dict[Address, dict[Place, bytes]] = defaultdict(dict)
        for place, batch in batches.items():
            by_leader[await self._brokers.leader(*place)][place] = batch
        if len(by_leader) == 1:
            [(leader, theirs)] = by_leader.items()
            return await self._produce_to(leader, theirs)
        bases: dict[Place, int] = {}
        try:
            async with asyncio.TaskGroup() as tasks:
                sent = [
                    tasks.create_task(self._produce_to(leader, theirs), name=f"produce {leader}")
                    for leader, theirs in by_leader.items()
                ]
        except* (BrokerError, *LOST) as failures:
            raise failures.exceptions[0] from failures
        for task in sent:
            bases |= task.result()
        return bases

    async def _produce_to(
        self, leader: Address, batches: Mapping[Place, bytes]
    ) -> dict[Place, int]:
        bases: dict[Place, int] = {}
        timeout_ms = int(self._brokers.config.request_s * 1000)
        results = await self._brokers.exchange(
            leader,
            lambda connection: connection.produce(
                batches, timeout_ms=timeout_ms, transactional_id=self._id
            ),
        )
        for topic, partition, code, base in results:
            if code or base < 0:
                self._brokers.forget_leader(topic, partition)
                raise BrokerError(code, f"{topic}[{partition}]")
            bases[topic, partition] = base
        return bases

    async def _batch(
        self,
        tenure: Tenure,
        place: Place,
        rest: Iterator[Change | None],
        held: dict[Place, Change],
    ) -> tuple[bytes, int] | None:
        """Return the next batch, of bounded size, with its number of records; None at the end.

        A change that was taken from ``rest`` and has no room is ``held`` for the next
        batch.
        """
        sequence, first = tenure.sequences[place], held.pop(place, None)
        batch: list[Change] = []
        size = 0
        for change in rest if first is None else chain((first,), rest):
            if change is None or len(batch) % SLICE == SLICE - 1:
                await asyncio.sleep(0)
            if change is None:
                continue
            key, value, headers = change
            size += len(key) + RECORD_BYTES + (len(value) if value is not None else 0)
            if headers:
                size += sum([len(name) + len(text) + RECORD_BYTES for name, text in headers])
            if batch and size > self._batch_bytes:
                held[place] = change
                break
            batch.append(change)
        if not batch:
            return None
        encoded = encode_batch(batch, Producer(tenure.producer_id, tenure.epoch, sequence))
        limit = self._brokers.config.batch_bytes_max
        if len(encoded) > limit:
            where = f"{place[0]}[{place[1]}]"
            raise too_large(f"transaction on {where}: {len(encoded)} bytes, limit {limit}")
        tenure.sequences[place] = (sequence + len(batch)) % SEQUENCES
        return encoded, len(batch)

    async def _commit(self, tenure: Tenure) -> None:
        # Repeating it is harmless: for the same epoch the coordinator gives the same
        # answer.
        request = EndTxnRequest(self._id, tenure.producer_id, tenure.epoch, True)
        try:
            await self._coordinate(request, _error_code)
        except BrokerError as error:
            if error.code in FENCED:
                raise Fenced(f"commit of {self._id}: {error}") from error
            raise OutcomeUnknown(f"commit of {self._id}: {error}") from error
        except Unavailable as error:
            raise OutcomeUnknown(f"commit of {self._id}: {error}") from error

    async def _coordinate(self, request: Any, code_of: Callable[[Any], int]) -> Any:
        """Send a request to the transaction coordinator; retry if it moved or is still busy."""

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

    @contextmanager
    def _failures_before_commit(self) -> Iterator[None]:
        """Convert errors before the commit: the next fencing removes the transaction."""
        try:
            yield
        except BrokerError as error:
            if error.code in FENCED:
                raise Fenced(f"transaction {self._id}: {error}") from error
            raise Unavailable(f"transaction {self._id}: {error}") from error
        except LOST as error:
            raise Unavailable(f"transaction {self._id}: {error or type(error).__name__}") from error


def partition_of(key: bytes, partitions: int) -> int:
    """Return the partition that every Kafka client gives a key, so that topics can be joined."""
    if partitions == 1:
        return 0  # Python's murmur2 takes 4 us.
    return int(murmur2(key) & POSITIVE) % partitions


def _error_code(answer: Any) -> int:
    return int(answer.error_code)
