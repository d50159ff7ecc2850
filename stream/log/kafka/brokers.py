"""The brokers of one cluster: the leader of each partition, and requests to it.

Metadata is fetched on demand and dropped when a leader proves wrong. A broker that was
cut off from the others still reports the former leaders. So brokers are asked in turn.
Each leader has a term, its epoch, that rises; metadata with a lower epoch than the known
one is ignored. If there are several brokers, metadata is also fetched at an interval
(``watch``).

Invariant: a request that changes nothing is retried at the new leader until its deadline.
An append is never sent twice here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from aiokafka.errors import KafkaError

from rowtide.core.values.errors import Unavailable
from rowtide.stream.log.kafka.channel import Channel
from rowtide.stream.log.kafka.config import KafkaConfig
from rowtide.stream.log.kafka.connection import Address, BrokerUnreachable, Connections
from rowtide.stream.log.kafka.errors import ASK_AGAIN, BrokerError
from rowtide.stream.log.kafka.metadata import PartitionFound, TopicFound

__all__ = ["LOST", "UNKNOWN_TOPIC", "Brokers", "Place"]

Answer = TypeVar("Answer")

LOST = (BrokerUnreachable, KafkaError, OSError, TimeoutError)
"""The errors of a request without an answer: refused, cut off, or timed out."""
RETRY_S_MIN = 0.005
RETRY_S_MAX = 0.5

METADATA_S = 2.0
"""Time for which one broker is waited for before the next gets the same request."""
UNKNOWN_TOPIC = 3
WATCH_S = 1.0
SUSPECT_S = 30.0
"""Time for which a broker that did not answer is asked last."""

Place = tuple[str, int]
"""A topic and one of its partitions."""


class Brokers:
    """Connections and leaders. One object per process and cluster."""

    def __init__(self, config: KafkaConfig) -> None:
        self.config = config
        self.connections = Connections(config)
        self._seeds = [_address(server) for server in config.servers]
        self._nodes: dict[int, Address] = {}
        self._leaders: dict[Place, int] = {}
        self.epochs: dict[Place, int] = {}
        """The last known epoch of each partition's leader."""
        self._asked_s: dict[Address, float] = {}
        self._suspect_s: dict[Address, float] = {}
        self._waits: dict[Callable[[], None], Collection[Place]] = {}

    @property
    def count(self) -> int:
        """The number of brokers in the last metadata."""
        return len(self._nodes)

    async def leader(self, topic: str, partition: int) -> Address:
        """Return the leader's address. Raises ``BrokerError`` or one of ``LOST``."""
        node = self._leaders.get((topic, partition))
        if node is None or node not in self._nodes:
            await self.metadata([topic])
            node = self._leaders.get((topic, partition))
        # The last broker asked may not know a broker that returned while it was cut off.
        if node is None or node not in self._nodes:
            raise BrokerError(5, f"{topic}[{partition}]")
        return self._nodes[node]

    def find_known_leader(self, topic: str, partition: int) -> int | None:
        """Return the number of the leader without a request; None if it is not known."""
        return self._leaders.get((topic, partition))

    def forget_leader(self, topic: str, partition: int) -> None:
        """Fetch this partition's leader again before the next use."""
        self._leaders.pop((topic, partition), None)

    def forget_topics(self, topics: Collection[str]) -> None:
        """Forget every leader of deleted topics."""
        if not topics:
            return
        for known in (self._leaders, self.epochs):
            for place in [place for place in known if place[0] in topics]:
                del known[place]

    def suspect(self, address: Address) -> None:
        """Ask a broker last for a while: it is slow, or was cut off from the others."""
        self._suspect_s[address] = asyncio.get_running_loop().time() + SUSPECT_S

    @contextmanager
    def while_led(self, places: Collection[Place], left: Callable[[], None]) -> Iterator[None]:
        """Call ``left`` when one of these partitions gets a new leader, while this is active."""
        self._waits[left] = places
        try:
            yield
        finally:
            del self._waits[left]

    async def watch(self) -> None:
        """Fetch the leaders at an interval until cancelled: a deposed leader does not report it."""
        while True:
            await asyncio.sleep(WATCH_S)
            if self.count > 1 and self._leaders:
                with suppress(*LOST):
                    await self.metadata(sorted({topic for topic, _ in self._leaders}))

    async def metadata(self, topics: list[str] | None) -> Sequence[TopicFound]:
        """Return the metadata of ``topics``, and keep the leaders in it.

        For all topics (None) no leader is kept: most topics may be others', and known
        ones are fetched each second anyway. Leaders of deleted topics are forgotten.
        """
        within_s = min(METADATA_S, self.config.request_s)
        found = await self._first_answer(lambda channel: channel.metadata(topics), within_s)
        self._nodes = found.brokers
        if topics is None:
            return found.topics
        self.forget_topics({one.name for one in found.topics if one.error == UNKNOWN_TOPIC})
        for topic in found.topics:
            for part in topic.partitions:
                self._learn((topic.name, part.partition), part)
        return found.topics

    def _learn(self, place: Place, found: PartitionFound) -> None:
        """Keep a partition's leader, unless a later one is known."""
        known = self.epochs.get(place, found.epoch)
        if found.epoch < known and self.count > 1:
            return
        self.epochs[place] = found.epoch
        if found.leader in self._nodes:
            self._leaders[place] = found.leader
        else:
            self.forget_leader(*place)
        if found.epoch > known:
            for left in [left for left, places in self._waits.items() if place in places]:
                left()

    async def ask(self, address: Address, request: Any) -> Any:
        """Send one request and return its answer, within the time for one request."""
        return await self.exchange(address, lambda connection: connection.send(request))

    async def exchange(
        self,
        address: Address,
        question: Callable[[Channel], Awaitable[Answer]],
        within_s: float | None = None,
    ) -> Answer:
        """Return a broker's answer, within ``within_s`` or the time for one request."""
        try:
            async with asyncio.timeout(within_s or self.config.request_s):
                async with self.connections.lent(address) as connection:
                    return await question(connection)
        except LOST:
            self.suspect(address)
            raise

    async def ask_any(self, request: Any, check: Callable[[Any], Answer]) -> Answer:
        """Send a request to any broker; ``check`` returns a value or raises ``BrokerError``."""

        async def once() -> Answer:
            return check(await self._first_answer(lambda channel: channel.send(request)))

        return await self.until_deadline("the cluster", once)

    async def ask_leader(
        self, topic: str, partition: int, question: Callable[[Address], Awaitable[Answer]]
    ) -> Answer:
        """Send a question to the leader of a partition, again after each change of leader."""

        async def once() -> Answer:
            try:
                return await question(await self.leader(topic, partition))
            except (*LOST, BrokerError):
                self.forget_leader(topic, partition)
                raise

        return await self.until_deadline(f"{topic}[{partition}]", once)

    async def until_deadline(self, where: str, once: Callable[[], Awaitable[Answer]]) -> Answer:
        """Retry until success, a permanent failure (any other ``BrokerError``) or the deadline."""
        failure: Exception | None = None
        pause_s = RETRY_S_MIN
        try:
            async with asyncio.timeout(self.config.deadline_s):
                while True:
                    try:
                        return await once()
                    except LOST as error:
                        failure = error
                    except BrokerError as error:
                        if error.code not in ASK_AGAIN:
                            raise
                        failure = error
                    await asyncio.sleep(pause_s)
                    pause_s = min(pause_s * 2, RETRY_S_MAX)
        except TimeoutError:
            message = f"{where}: no answer within {self.config.deadline_s} s, last: {failure!r}"
            raise Unavailable(message) from failure

    async def _first_answer(
        self, question: Callable[[Channel], Awaitable[Answer]], within_s: float | None = None
    ) -> Answer:
        failure: Exception | None = None
        for address in self._in_turn():
            self._asked_s[address] = asyncio.get_running_loop().time()
            try:
                return await self.exchange(address, question, within_s)
            except LOST as error:
                failure = error
        why = str(failure) or "no answer in time"  # For a TimeoutError, which has no text.
        raise BrokerUnreachable(f"no broker of {self.config.bootstrap} answers: {why}") from failure

    def _in_turn(self) -> list[Address]:
        """Return all brokers: suspects last, then by the time of their last request."""
        now_s = asyncio.get_running_loop().time()
        named = {*self._nodes.values()}

        def order(address: Address) -> tuple[bool, bool, float]:
            suspected = self._suspect_s.get(address, 0.0) > now_s
            return suspected, address not in named, self._asked_s.get(address, 0.0)

        return sorted(dict.fromkeys([*self._nodes.values(), *self._seeds]), key=order)


def _address(server: str) -> Address:
    host, _, port = server.rpartition(":")
    return host.strip("[]"), int(port)
