"""One produce request: sent once, with the outcome written, not written or unknown.

A request may have batches for several partitions of one leader. There is no producer
state and no retry. By the append rule each record names its offset, so a doubled or late
batch is void. Sequence numbers would only add a way to fail. Invariant: ``Unavailable``
and ``Rejected`` are reported only if the request was never sent, or the broker's answer
proves that nothing was written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from rowtide.core.values.errors import OutcomeUnknown, StoreError, Unavailable
from rowtide.stream.log.kafka.brokers import LOST, Brokers
from rowtide.stream.log.kafka.channel import Channel
from rowtide.stream.log.kafka.connection import Address
from rowtide.stream.log.kafka.errors import BrokerError, append_outcome, too_large
from rowtide.stream.log.kafka.fetch import Place
from rowtide.stream.log.kafka.produce import ProduceResult
from rowtide.stream.log.kafka.record_batch import encode_batch

__all__ = ["Append", "Entries", "record_batch"]

Entries = Sequence[tuple[bytes, bytes]]


class Append:
    """Batches on their way to the partitions of one leader."""

    def __init__(self, brokers: Brokers, batches: Mapping[Place, bytes]) -> None:
        self._brokers = brokers
        self._batches = batches
        self._leader: Address | None = None
        self._connection: Channel | None = None
        self._deadline: asyncio.Timeout | None = None
        self._sent = False

    async def run(self, *, deadline_s: float) -> dict[Place, int | StoreError]:
        """Send once and return each partition's base offset or failure."""
        try:
            async with asyncio.timeout(deadline_s) as self._deadline:
                outcomes = self._outcomes(await self._exchange(deadline_s))
        except (*LOST, BrokerError) as error:
            outcomes = {place: self._failure(place, error) for place in self._batches}
        finally:
            self._deadline = None  # After a cancellation too: it is dropped then.
        if self._leader and any(isinstance(one, OutcomeUnknown) for one in outcomes.values()):
            self._brokers.suspect(self._leader)
        for place, outcome in outcomes.items():
            if isinstance(outcome, StoreError):
                self._brokers.forget_leader(*place)
        return outcomes

    def drop(self) -> None:
        """Close the connection at once; ``run`` returns with the outcome that is known then."""
        if self._connection is not None:
            self._connection.drop()
        elif self._deadline is not None and not self._deadline.expired():
            # It still finds the leader or connects: end that now.
            self._deadline.reschedule(0)

    async def _exchange(self, deadline_s: float) -> Iterable[ProduceResult]:
        leader = self._leader = await self._brokers.leader(*next(iter(self._batches)))
        async with self._brokers.connections.lent(leader) as connection:
            self._connection = connection
            try:
                # A deposed leader would never answer.
                with self._brokers.while_led(self._batches, self.drop):
                    answer = connection.produce(self._batches, timeout_ms=int(deadline_s * 1000))
                    # From here on bytes may have left this process.
                    self._sent = True
                    return await answer
            finally:
                # It may soon be lent to another caller, which a late drop() must not hit.
                self._connection = None

    def _outcomes(self, results: Iterable[ProduceResult]) -> dict[Place, int | StoreError]:
        outcomes: dict[Place, int | StoreError] = {}
        for topic, partition, code, offset in results:
            outcomes[topic, partition] = append_outcome(code, offset, f"{topic}[{partition}]")
        for place in self._batches.keys() - outcomes.keys():
            outcomes[place] = OutcomeUnknown(f"append to {place}: the answer does not name it")
        return outcomes

    def _failure(self, place: Place, error: Exception) -> StoreError:
        topic, partition = place
        kind = OutcomeUnknown if self._sent else Unavailable
        return kind(f"append to {topic}[{partition}]: {error or type(error).__name__}")


def record_batch(entries: Entries, *, bytes_max: int, where: str) -> bytes:
    """Return ``entries`` as one Kafka record batch. Raises ``Rejected`` above ``bytes_max``."""
    batch = encode_batch(entries)
    if len(batch) > bytes_max:
        raise too_large(f"append to {where}: {len(batch)} bytes, the limit is {bytes_max}")
    return batch
