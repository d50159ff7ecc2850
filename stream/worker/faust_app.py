"""This module knows Faust's settings and service tree. The app runs inside our event
loop: it has no command line, web server, sensors, producer, log set-up or signal
handlers. A crash anywhere in the tree becomes the result of ``SlotApp.run``. Nothing here
ends the process.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment
from faust.app.base import App, BootStrategy
from faust.assignor.client_assignment import ClientAssignment, ClientMetadata
from faust.assignor.partition_assignor import PartitionAssignor

from rowtide.core.cluster.division import Holding, divide
from rowtide.stream.worker.faust_config import Division, MembershipConfig
from rowtide.stream.worker.faust_table import RowsTable, SlotTableManager
from rowtide.stream.worker.faust_transport import SlotTransport

__all__ = ["SlotApp"]

logger = logging.getLogger("faust")

IDLE_S = 3600.0
"""Period of Faust's timers for work that does not exist here (commits, table cleaning)."""

URL_PREFIX = "http://"
"""Faust passes addresses between workers as URLs."""


class _Boot(BootStrategy):  # type: ignore[misc]
    enable_web = False
    enable_sensors = False
    enable_kafka_producer = False


class _SlotAssignor(PartitionAssignor):  # type: ignore[misc]
    """Faust's sticky assignor for one topic, with our own division of the slots.

    Once Faust's division has standbys to place, it gives a joining worker nothing while
    no worker has more than the quotient rounded up (16 slots and 5 workers: 4, 4, 4, 4,
    0). Standbys are reported in the field for external topics, of which there are none.
    They are no partitions of the consumer: Faust reads nothing.

    The assignor accepts a static member that returned at another address. The broker
    hands it the assignment of its former life, with the former address. Faust asserts
    that the address is its own; we accept it and rejoin.
    """

    address_is_stale = False

    def on_assignment(self, assignment: Any) -> None:
        metadata = ClientMetadata.loads(self._decompress(assignment.user_data))
        self._assignment = metadata.assignment
        self._topic_groups = dict(metadata.topic_groups)
        self._active_tps = self._assignment.active_tps
        self.changelog_distribution = metadata.changelog_distribution
        self.external_topic_distribution = metadata.external_topic_distribution
        self.address_is_stale = metadata.url != str(self._url)

    def assigned_standbys(self) -> set[Any]:
        """Return the empty set: Faust follows no standbys."""
        return set()

    def _perform_assignment(self, _cluster: Any, member_metadata: Any) -> dict[str, Any]:
        topic, slots = self.app.config.changelog_topic, self.app.config.slots
        clients = {
            member: self._get_client_metadata(metadata)
            for member, metadata in member_metadata.items()
        }
        self._update_member_urls(clients)
        now = {member: _holding(client.assignment, topic) for member, client in clients.items()}
        then = divide(now, slots=slots, standbys=self.app.config.standbys)
        owned = {self._member_urls[m]: {topic: sorted(h.owned)} for m, h in then.items()}
        standby = {self._member_urls[m]: {topic: sorted(h.standby)} for m, h in then.items()}
        return {
            member: ConsumerProtocolMemberAssignment(
                self.version,
                [(topic, sorted(holding.owned))],
                self._compress(
                    ClientMetadata(
                        assignment=ClientAssignment(
                            actives={topic: sorted(holding.owned)},
                            standbys={topic: sorted(holding.standby)},
                        ),
                        url=self._member_urls[member],
                        changelog_distribution=owned,
                        external_topic_distribution=standby,
                        topic_groups={topic: 0},
                    ).dumps()
                ),
            )
            for member, holding in then.items()
        }


def _holding(assignment: ClientAssignment, topic: str) -> Holding:
    """Return the slots that a member reports as its own."""
    return Holding(set(assignment.actives.get(topic, ())), set(assignment.standbys.get(topic, ())))


class SlotApp(App):  # type: ignore[misc]
    """One life of the app: it starts once. After a crash a new app replaces it."""

    BootStrategy = _Boot
    logger = logger

    def __init__(
        self,
        config: MembershipConfig,
        *,
        on_slots: Callable[[Division, int], None],
    ) -> None:
        self.config = config
        super().__init__(config.group, **_settings(config))
        self.finalize()
        self.loop = asyncio.get_running_loop()
        self.leaving = False
        """Set before ``stop`` if the worker ends: the group then divides its slots at once."""
        self._failed: asyncio.Future[BaseException] = self.loop.create_future()
        self.transport = SlotTransport(self, config)
        self._on_slots = on_slots
        self._rows = self.tables.add(RowsTable(self, slots=config.slots))
        assert self._rows.changelog_topic_name == config.changelog_topic

    async def run(self, on_running: Callable[[], None]) -> BaseException:
        """Start, and return the reason for the first crash."""
        await self.start()
        on_running()
        return await self._failed

    def _division(self) -> Division:
        """Return the last division of the slots, with workers by address (host:port)."""
        assignor, topic = self.assignor, self.config.changelog_topic
        standbys: defaultdict[int, list[str]] = defaultdict(list)
        for address, slot in _places(assignor.external_topic_distribution, topic):
            standbys[slot].append(address)
        return Division(
            frozenset(tp.partition for tp in assignor.assigned_actives()),
            frozenset(assignor._assignment.standbys.get(topic, ())),
            {slot: address for address, slot in _places(assignor.changelog_distribution, topic)},
            standbys,
        )

    async def on_first_start(self) -> None:
        """Create no directories: Faust has no stores."""

    async def _on_partitions_assigned(self, assigned: set[Any], generation_id: int = 0) -> None:
        await super()._on_partitions_assigned(assigned, generation_id)
        if not self.should_stop:
            self._on_slots(self._division(), generation_id)

    async def crash(self, reason: BaseException) -> None:
        """End this life. The keeper of the app logs the reason."""
        self._crash(reason)

    def _crash(self, reason: BaseException) -> None:
        # Services also crash in the consumer's thread, and an event set there would not
        # wake us.
        self.loop.call_soon_threadsafe(self._fail, reason)

    def _fail(self, reason: BaseException) -> None:
        super()._crash(reason)
        if not self._failed.done():
            self._failed.set_result(reason)


def _places(distribution: Mapping[str, Any], topic: str) -> Iterator[tuple[str, int]]:
    for url, topics in distribution.items():
        for slot in topics.get(topic, ()):
            yield url.removeprefix(URL_PREFIX), slot


def _settings(config: MembershipConfig) -> dict[str, Any]:
    return {
        "broker": "kafka://",
        "canonical_url": URL_PREFIX + config.address,
        "web_enabled": False,
        "topic_allow_declare": False,
        "topic_disable_leader": True,
        "table_standby_replicas": config.standbys,
        "broker_commit_interval": IDLE_S,
        "recovery_consistency_check": False,
        "stream_wait_empty": False,
        "TableManager": SlotTableManager,
        "PartitionAssignor": _SlotAssignor,
    }
