"""The brokers of one cluster: where each partition's leader is, and how to ask it.

Metadata is fetched on demand and forgotten when a leader turns out to be wrong: there is no
background task and no age. Invariant: a question that changes nothing is asked again, of the
new leader, until its deadline; an append is never asked twice here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Any, TypeVar

from aiokafka.errors import KafkaError
from aiokafka.protocol.metadata import MetadataRequest

from rowtide.core.errors import Unavailable
from rowtide.stream.kafka_channel import Channel
from rowtide.stream.kafka_config import KafkaConfig
from rowtide.stream.kafka_connection import Address, Connections, NotConnected
from rowtide.stream.kafka_errors import ASK_AGAIN, BrokerError

__all__ = ["LOST", "Brokers"]

Answer = TypeVar("Answer")

LOST = (NotConnected, KafkaError, OSError, TimeoutError)
"""What a request raises when no answer came: refused, cut off, or out of time."""
RETRY_S_MIN = 0.005
RETRY_S_MAX = 0.5


class Brokers:
    """Connections and leaders. One per process and cluster."""

    def __init__(self, config: KafkaConfig) -> None:
        self.config = config
        self.connections = Connections(config)
        self._seeds = [_address(server) for server in config.servers]
        self._nodes: dict[int, Address] = {}
        self._leaders: dict[tuple[str, int], int] = {}

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
        if node is None:
            raise BrokerError(5, f"{topic}[{partition}]")
        return self._nodes[node]

    def forget_leader(self, topic: str, partition: int) -> None:
        """Ask for this partition's leader again before the next use."""
        self._leaders.pop((topic, partition), None)

    def forget_topics(self, topics: Collection[str]) -> None:
        """Forget every leader of deleted topics."""
        self._leaders = {
            place: node for place, node in self._leaders.items() if place[0] not in topics
        }

    async def metadata(self, topics: list[str] | None) -> list[Any]:
        """Return the metadata of ``topics`` (None: of all) and take over every leader in it."""
        response = await self._first_answer(MetadataRequest(topics, False))
        self._nodes = {node: (host, port) for node, host, port, _rack in response.brokers}
        for _error, topic, _internal, partitions in response.topics:
            for _error, partition, leader, *_replicas in partitions:
                if leader in self._nodes:
                    self._leaders[topic, partition] = leader
                else:
                    self.forget_leader(topic, partition)
        topics_found: list[Any] = response.topics
        return topics_found

    async def ask(self, address: Address, request: Any) -> Any:
        """Send one request and return its answer, within the time for one request."""
        return await self.exchange(address, lambda connection: connection.send(request))

    async def exchange(
        self, address: Address, question: Callable[[Channel], Awaitable[Answer]]
    ) -> Answer:
        """Return what a broker answers to a question, within the time for one request."""
        async with asyncio.timeout(self.config.request_s):
            async with self.connections.lent(address) as connection:
                return await question(connection)

    async def ask_any(self, request: Any, check: Callable[[Any], Answer]) -> Answer:
        """Ask any broker; ``check`` turns the answer into a value or raises ``BrokerError``."""

        async def once() -> Answer:
            return check(await self._first_answer(request))

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

    async def _first_answer(self, request: Any) -> Any:
        failure: Exception | None = None
        for address in dict.fromkeys([*self._nodes.values(), *self._seeds]):
            try:
                return await self.ask(address, request)
            except LOST as error:
                failure = error
        raise NotConnected(f"no broker of {self.config.bootstrap} answers: {failure}") from failure


def _address(server: str) -> Address:
    host, _, port = server.rpartition(":")
    return host.strip("[]"), int(port)
