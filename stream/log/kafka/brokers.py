"""The brokers of one cluster: where each partition's leader is, and how to ask it.

Metadata is fetched on demand and forgotten when a leader turns out to be wrong. A broker that was
cut off from the others goes on telling, and believing, what was so before. So brokers are asked in
turn, what is older than what is known of a partition is not believed (each leader has a term, its
epoch, that rises), and where there are several brokers they are asked unasked, too (``watch``).

Invariant: a question that changes nothing is asked again, of the new leader, until its deadline; an
append is never asked twice here.
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
"""What a request raises when no answer came: refused, cut off, or out of time."""
RETRY_S_MIN = 0.005
RETRY_S_MAX = 0.5

METADATA_S = 2.0
"""How long one broker is waited for before the next is asked what both know."""
UNKNOWN_TOPIC = 3
WATCH_S = 1.0
SUSPECT_S = 30.0
"""For so long a broker that did not answer is asked after all others."""

Place = tuple[str, int]
"""A topic and a partition of it."""


class Brokers:
    """Connections and leaders. One per process and cluster."""

    def __init__(self, config: KafkaConfig) -> None:
        self.config = config
        self.connections = Connections(config)
        self._seeds = [_address(server) for server in config.servers]
        self._nodes: dict[int, Address] = {}
        self._leaders: dict[Place, int] = {}
        self.epochs: dict[Place, int] = {}
        """The last known term of each partition's leader."""
        self._asked_s: dict[Address, float] = {}
        self._suspect_s: dict[Address, float] = {}
        self._waits: dict[Callable[[], None], Collection[Place]] = {}

    @property
    def count(self) -> int:
        """How many brokers the last metadata named."""
        return len(self._nodes)

    async def leader(self, topic: str, partition: int) -> Address:
        """Return the leader's address. Raises ``BrokerError`` or one of ``LOST``."""
        node = self._leaders.get((topic, partition))
        if node is None or node not in self._nodes:
            await self.metadata([topic])
            node = self._leaders.get((topic, partition))
        # Whoever was asked last may not know a broker that came back while it was cut off.
        if node is None or node not in self._nodes:
            raise BrokerError(5, f"{topic}[{partition}]")
        return self._nodes[node]

    def known_leader(self, topic: str, partition: int) -> int | None:
        """Return the number of the leader, asking nobody; None where it is to be asked for."""
        return self._leaders.get((topic, partition))

    def forget_leader(self, topic: str, partition: int) -> None:
        """Ask for this partition's leader again before the next use."""
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
        """Call ``left``, while this is held, when one of these partitions has a new leader."""
        self._waits[left] = places
        try:
            yield
        finally:
            del self._waits[left]

    async def watch(self) -> None:
        """Ask now and then who leads what, until cancelled: who is deposed does not say so."""
        while True:
            await asyncio.sleep(WATCH_S)
            if self.count > 1 and self._leaders:
                with suppress(*LOST):
                    await self.metadata(sorted({topic for topic, _ in self._leaders}))

    async def metadata(self, topics: list[str] | None) -> Sequence[TopicFound]:
        """Return the metadata of ``topics`` and take over the leaders in it.

        Of all topics (None) nothing is taken over: most may be of others, and what is known is
        asked for each second. Nor is anything kept of a topic that is no more.
        """
        within_s = min(METADATA_S, self.config.request_s)
        told = await self._first_answer(lambda channel: channel.metadata(topics), within_s)
        self._nodes = told.brokers
        if topics is None:
            return told.topics
        self.forget_topics({one.name for one in told.topics if one.error == UNKNOWN_TOPIC})
        for topic in told.topics:
            for found in topic.partitions:
                self._learn((topic.name, found.partition), found)
        return told.topics

    def _learn(self, place: Place, found: PartitionFound) -> None:
        """Take over who leads a partition, unless a later leader is known."""
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
        """Return what a broker answers, within the time for one request if no other is named."""
        try:
            async with asyncio.timeout(within_s or self.config.request_s):
                async with self.connections.lent(address) as connection:
                    return await question(connection)
        except LOST:
            self.suspect(address)
            raise

    async def ask_any(self, request: Any, check: Callable[[Any], Answer]) -> Answer:
        """Ask any broker; ``check`` turns the answer into a value or raises ``BrokerError``."""

        async def once() -> Answer:
            return check(await self._first_answer(lambda channel: channel.send(request)))

        return await self.until_deadline("the cluster", once)

    async def ask_leader(
        self, topic: str, partition: int, question: Callable[[Address], Awaitable[Answer]]
    ) -> Answer:
        """Ask the leader of a partition, and again after each change of leader."""

        async def once() -> Answer:
            try:
                return await question(await self.leader(topic, partition))
            except (*LOST, BrokerError):
                self.forget_leader(topic, partition)
                raise

        return await self.until_deadline(f"{topic}[{partition}]", once)

    async def until_deadline(self, where: str, once: Callable[[], Awaitable[Answer]]) -> Answer:
        """Try until it succeeds, fails for good (any other ``BrokerError``), or time is up."""
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
        why = str(failure) or "no answer in time"  # Of a TimeoutError, which has no text.
        raise BrokerUnreachable(f"no broker of {self.config.bootstrap} answers: {why}") from failure

    def _in_turn(self) -> list[Address]:
        """Return all brokers, suspects last, and else first who was asked longest ago."""
        now_s = asyncio.get_running_loop().time()
        named = {*self._nodes.values()}

        def order(address: Address) -> tuple[bool, bool, float]:
            suspected = self._suspect_s.get(address, 0.0) > now_s
            return suspected, address not in named, self._asked_s.get(address, 0.0)

        return sorted(dict.fromkeys([*self._nodes.values(), *self._seeds]), key=order)


def _address(server: str) -> Address:
    host, _, port = server.rpartition(":")
    return host.strip("[]"), int(port)
