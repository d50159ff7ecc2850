"""A Kafka cluster as rowtide uses it: its topics, their durability, and their logs.

Topic names are full names, prefix included. Creating an existing topic and deleting a
missing one are no errors. A topic counts as created once each of its leaders answers. So
the first append after it cannot meet a broker that does not know the topic.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NoReturn, Self

from aiokafka.errors import KafkaError
from aiokafka.protocol.admin import (
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeConfigsRequest,
)

from rowtide.core.values.errors import StoreError, Unavailable
from rowtide.stream.log.cluster import Appends, Reads
from rowtide.stream.log.kafka.alter_configs import TOPIC_RESOURCE, AlterTopics
from rowtide.stream.log.kafka.brokers import UNKNOWN_TOPIC, Brokers
from rowtide.stream.log.kafka.changelog import KafkaChangelogReader, KafkaChangelogWriter
from rowtide.stream.log.kafka.config import (
    APPEND_TIME,
    TIME_OF,
    VERIFIED,
    KafkaConfig,
    settings_to_verify,
    topic_settings,
)
from rowtide.stream.log.kafka.errors import BrokerError, NotDurable, code_name
from rowtide.stream.log.kafka.fetch import FetchPartition
from rowtide.stream.log.kafka.log import KafkaLog, append_many, read_many
from rowtide.stream.log.kafka.metadata import PartitionFound, TopicFound
from rowtide.stream.log.log import Entry, Log
from rowtide.stream.log.topics import TopicSpec

__all__ = ["KafkaCluster", "KafkaConfig"]

logger = logging.getLogger(__name__)

TOPIC_EXISTS = 36
AT_LEAST = ("delete.retention.ms", "max.message.bytes", "min.insync.replicas")
"""Settings that may be larger than required; every other must be equal."""
ALTERED_MAX = 1000
"""Topics in one request: a controller accepts up to 10,000 changes at once."""
WRONG_MAX = 3
"""Number of topics that an error message names."""


class KafkaCluster:
    """Administration and logs of one cluster. Start before use, stop when done.

    A long-running reader runs ``brokers.watch`` as well.
    """

    def __init__(self, config: KafkaConfig) -> None:
        self.config = config
        self.brokers = Brokers(config)

    async def start(self) -> None:
        """Wait until a broker answers. Raises ``Unavailable`` after the deadline."""

        async def once() -> None:
            await self.brokers.metadata([])

        await self.brokers.until_deadline(self.config.bootstrap, once)

    @property
    def answered_s(self) -> float | None:
        """When a broker last answered, see ``TopicCluster``."""
        return self.brokers.connections.answered_s

    async def run(self) -> None:
        """Follow the changes of leaders until cancelled."""
        await self.brokers.watch()

    async def stop(self) -> None:
        """Drop every connection."""
        self.brokers.connections.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def log(self, topic: str, partition: int = 0) -> KafkaLog:
        """Return the log that is this partition. Cheap; nothing is opened."""
        return KafkaLog(self.brokers, topic, partition)

    def leader(self, log: Log) -> int | None:
        """Return the number of the broker that leads a log, see ``LogCluster``."""
        assert isinstance(log, KafkaLog), "the log is Kafka's"
        return self.brokers.find_known_leader(*log.place)

    async def append_many(self, items: Appends, *, deadline_s: float) -> list[int | StoreError]:
        """Append to several logs with one request per leader, see ``LogCluster``."""
        ours = [(log, entries) for log, entries in items if isinstance(log, KafkaLog)]
        assert len(ours) == len(items), "the logs are Kafka's"
        return await append_many(ours, deadline_s=deadline_s)

    async def read_many(
        self, items: Reads, *, bytes_max: int, wait_s: float
    ) -> list[list[Entry] | StoreError]:
        """Read several logs with one request per leader, see ``LogCluster``."""
        ours = [(log, offset) for log, offset in items if isinstance(log, KafkaLog)]
        assert len(ours) == len(items), "the logs are Kafka's"
        return await read_many(ours, bytes_max=bytes_max, wait_s=wait_s)

    def changelog_writer(
        self, topic: str, partition: int, transactional_id: str
    ) -> KafkaChangelogWriter:
        """Return a writer under a transactional id."""
        return KafkaChangelogWriter(self.brokers, topic, partition, transactional_id)

    def changelog_reader(self, topic: str, partition: int) -> KafkaChangelogReader:
        """Return a reader of what is committed."""
        return KafkaChangelogReader(self.brokers, topic, partition)

    async def topics(self) -> dict[str, int]:
        """Return the topics of our prefix with their numbers of partitions."""
        prefix = self.config.topic("")
        found = await self._all_topics()
        return {
            topic.name: len(topic.partitions) for topic in found if topic.name.startswith(prefix)
        }

    async def exists(self, topic: str) -> bool:
        """True if the topic exists, see ``LogCluster``."""

        async def once() -> Sequence[TopicFound]:
            return await self.brokers.metadata([topic])

        found = await self.brokers.until_deadline(self.config.bootstrap, once)
        return all(one.error != UNKNOWN_TOPIC for one in found)

    async def create_topics(self, specs: Sequence[TopicSpec]) -> None:
        """Create missing topics, and wait until each has its leaders.

        Raises ``NotDurable`` if an existing one could lose a write.
        """
        if not specs:
            return
        replicas = self.config.replication_factor
        wanted: list[Any] = [
            (spec.name, spec.partitions, replicas, [], [*topic_settings(self.config, spec).items()])
            for spec in specs
        ]
        request = CreateTopicsRequest(wanted, int(self.config.request_s * 1000), False)
        existed = await self._administer("create topic", request, TOPIC_EXISTS)
        for spec in specs:
            await self._await_leaders(spec)
            if spec.name in existed:
                await self.verify_durability(spec)

    async def create_topic(
        self, name: str, *, partitions: int, replicas: int, settings: Mapping[str, str]
    ) -> int:
        """Create a topic that has no log of ours; return its number of partitions.

        An existing one keeps its settings and its partitions. ``replicas`` 0 means three,
        or the number of brokers if that is smaller.
        """
        await self.brokers.metadata([])
        replicas = replicas or min(3, self.brokers.count)
        wanted: list[Any] = [(name, partitions, replicas, [], [*settings.items()])]
        request = CreateTopicsRequest(wanted, int(self.config.request_s * 1000), False)
        await self._administer("create topic", request, TOPIC_EXISTS)

        async def count_partitions() -> int:
            [topic] = await self.brokers.metadata([name])
            if topic.error or not topic.partitions:
                raise BrokerError(topic.error or UNKNOWN_TOPIC, name)
            return len(topic.partitions)

        number = await self.brokers.until_deadline(f"topic {name}", count_partitions)
        await self._await_leaders(TopicSpec(name, number))
        return number

    async def delete_topics(self, names: Sequence[str]) -> None:
        """Delete topics with all their entries, and wait until brokers no longer list them."""
        if not names:
            return
        request = DeleteTopicsRequest(list(names), int(self.config.request_s * 1000))
        await self._administer("delete topic", request, UNKNOWN_TOPIC)
        await self._await_gone(names)
        self.brokers.forget_topics(names)

    async def verify_durability(self, spec: TopicSpec) -> None:
        """Raise ``NotDurable`` with each setting by which a topic could lose a write.

        Raises ``Unavailable`` if the settings cannot be read now.
        """
        wrong = self._wrong_settings(await self.settings(spec.name), spec)
        wrong += self._wrong_replicas(await self._partitions(spec.name))
        if wrong:
            self._refuse({spec.name: wrong})

    async def require_durable(self, specs: Sequence[TopicSpec], logs: Sequence[str]) -> None:
        """Verify topics that others may have created, see ``TopicCluster``."""
        for spec in specs:
            await self.verify_durability(spec)
        await self.verify_logs(logs)
        await self.use_append_time([*(spec.name for spec in specs), *logs])

    async def verify_logs(self, topics: Sequence[str]) -> None:
        """Verify many logs as ``verify_durability`` does one; deleted ones are skipped.

        Their leaders are not kept: most logs are other workers'.
        """
        faults: dict[str, list[str]] = {}
        partitions = {topic.name: topic.partitions for topic in await self._all_topics()}
        for at in range(0, len(topics), ALTERED_MAX):
            some = topics[at : at + ALTERED_MAX]
            settings = await self._settings_of(some)
            for topic in some:
                if topic in settings and partitions.get(topic):
                    wrong = self._wrong_settings(settings[topic], TopicSpec(topic))
                    wrong += self._wrong_replicas(partitions[topic])
                    faults |= {topic: wrong} if wrong else {}
                elif await self.exists(topic):  # The broker that answered did not know it yet.
                    await self._verify_if_kept(TopicSpec(topic))
        if faults:
            self._refuse(faults)

    async def _verify_if_kept(self, spec: TopicSpec) -> None:
        """Verify a topic that may be deleted at the same time."""
        try:
            await self.verify_durability(spec)
        except NotDurable:
            raise
        except Unavailable:
            if await self.exists(spec.name):
                raise

    def _refuse(self, faults: Mapping[str, Sequence[str]]) -> NoReturn:
        kind = self.config.durability
        lines = [f"topic {topic} is not {kind}: {'; '.join(it)}" for topic, it in faults.items()]
        more = [f"{len(lines) - WRONG_MAX} more topics"] if len(lines) > WRONG_MAX else []
        raise NotDurable(". ".join(lines[:WRONG_MAX] + more))

    def _wrong_settings(self, found: Mapping[str, str], spec: TopicSpec) -> list[str]:
        return [
            f"{name} is {found.get(name)}, must be {value}"
            for name, value in settings_to_verify(self.config, spec).items()
            if not _meets(name, found.get(name), value)
        ]

    def _wrong_replicas(self, partitions: Sequence[PartitionFound]) -> list[str]:
        needed = self.config.replication_factor
        return [
            f"partition {one.partition} has {one.replicas} replicas, must have {needed}"
            for one in partitions
            if one.replicas < needed
        ]

    async def use_append_time(self, topics: Sequence[str]) -> None:
        """Set existing topics to append time: brokers then set the records' times, not we.

        Topics of an earlier version use the writer's times. If brokers reject the change,
        that is only logged: appends succeed while clocks agree within an hour.
        """
        for at in range(0, len(topics), ALTERED_MAX):
            some = topics[at : at + ALTERED_MAX]
            try:
                refused = await self._alter(await self._with_writer_time(some))
            except (StoreError, KafkaError, NotImplementedError) as error:
                # The last two: brokers that are too old, or too new, for this request.
                refused = [str(error) or type(error).__name__]
            if refused:
                logger.warning(
                    "%s=%s could not be set on %d topics, so a worker whose clock is an hour ahead "
                    "of the brokers' will not write: %s",
                    *(TIME_OF, APPEND_TIME, len(some), refused[0]),
                )

    async def settings(self, topic: str) -> dict[str, str]:
        """Return every setting of ``topic`` as the broker has it now."""

        def check(response: Any) -> dict[str, str]:
            code, _message, _kind, _name, entries = response.resources[0]
            if code:
                raise BrokerError(code, f"settings of {topic}")
            return {entry[0]: entry[1] for entry in entries}

        request = DescribeConfigsRequest([(TOPIC_RESOURCE, topic, None)])
        try:
            return await self.brokers.ask_any(request, check)
        except BrokerError as error:
            raise Unavailable(str(error)) from error

    async def _settings_of(self, topics: Sequence[str]) -> dict[str, dict[str, str]]:
        """Return the verified settings of those of the topics that exist."""

        def check(response: Any) -> dict[str, dict[str, str]]:
            return {
                topic: {entry[0]: entry[1] for entry in entries}
                for code, _message, _kind, topic, entries in response.resources
                if not code
            }

        asked = [(TOPIC_RESOURCE, topic, list(VERIFIED)) for topic in topics]
        return await self.brokers.ask_any(DescribeConfigsRequest(asked), check)

    async def _with_writer_time(self, topics: Collection[str]) -> list[str]:
        """Return those of the topics that exist and use the writer's times."""

        def check(response: Any) -> list[str]:
            return [
                topic
                for code, _message, _kind, topic, entries in response.resources
                if not code and any(entry[1] != APPEND_TIME for entry in entries)
            ]

        asked = [(TOPIC_RESOURCE, topic, [TIME_OF]) for topic in topics]
        return await self.brokers.ask_any(DescribeConfigsRequest(asked), check)

    async def _alter(self, topics: Sequence[str]) -> list[str]:
        """Set topics to append time; return the errors of those that failed."""
        if not topics:
            return []

        def check(response: Any) -> list[str]:
            return [
                f"{topic}: {code_name(code)} {message or ''}".rstrip()
                for code, message, _kind, topic in response.resources
                if code
            ]

        return await self.brokers.ask_any(AlterTopics(topics, TIME_OF, APPEND_TIME), check)

    async def _administer(self, action: str, request: Any, harmless: int) -> set[str]:
        """Send a change; return the topics for which the broker answered ``harmless``."""

        def check(response: Any) -> set[str]:
            codes = getattr(response, "topic_errors", None) or response.topic_error_codes
            for name, code, *message in codes:
                if code not in (0, harmless):
                    detail = message[0] if message and message[0] else ""
                    raise BrokerError(code, f"{action} {name} {detail}".rstrip())
            return {name for name, code, *_ in codes if code}

        try:
            return await self.brokers.ask_any(request, check)
        except BrokerError as error:
            raise Unavailable(str(error)) from error

    async def _await_leaders(self, spec: TopicSpec) -> None:
        for partition in range(spec.partitions):
            await FetchPartition(self.brokers, spec.name, partition).start()

    async def _await_gone(self, names: Sequence[str]) -> None:
        """Wait for the brokers: the controller answers before they know of a deletion."""

        async def once() -> None:
            for topic in await self.brokers.metadata([*names]):
                if topic.error != UNKNOWN_TOPIC:
                    raise TimeoutError(f"{topic.name} is still listed")

        for _ in range(self.brokers.count):  # Each question goes to the next broker.
            await self.brokers.until_deadline("deleted topics", once)

    async def _partitions(self, topic: str) -> Sequence[PartitionFound]:
        async def once() -> Sequence[PartitionFound]:
            [found] = await self.brokers.metadata([topic])
            if not found.partitions:  # A broker that has just started does not know the topic yet.
                raise BrokerError(UNKNOWN_TOPIC, topic)
            return found.partitions

        return await self.brokers.until_deadline(topic, once)

    async def _all_topics(self) -> Sequence[TopicFound]:
        async def once() -> Sequence[TopicFound]:
            return await self.brokers.metadata(None)

        return await self.brokers.until_deadline(self.config.bootstrap, once)


def _meets(name: str, found: str | None, wanted: str) -> bool:
    if found is None:
        return False
    return int(found) >= int(wanted) if name in AT_LEAST else found == wanted
