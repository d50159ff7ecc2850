"""The Faust app of a worker, cut down to group membership and one table.

Knows Faust's settings and service tree. It runs inside our event loop: no command line, no web
server, no sensors, no producer, no log set-up and no signal handlers. A crash anywhere in the
tree ends as the result of ``SlotApp.run``; nothing here ends the process.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from faust.app.base import App, BootStrategy
from faust.assignor.client_assignment import ClientMetadata
from faust.assignor.partition_assignor import PartitionAssignor

from rowtide.stream.faust_config import MembershipConfig
from rowtide.stream.faust_table import RowsTable, SlotTableManager, StoreFor
from rowtide.stream.faust_transport import SlotTransport

__all__ = ["SlotApp"]

logger = logging.getLogger("faust")

STANDBYS = 0
"""Copies of each slot that follow its changelog on other workers."""

IDLE_S = 3600.0
"""Period of Faust's timers for work that does not exist here (commits, table cleaning)."""

URL_PREFIX = "http://"
"""Faust passes addresses between workers as URLs."""


class _Boot(BootStrategy):  # type: ignore[misc]
    enable_web = False
    enable_sensors = False
    enable_kafka_producer = False


class _SlotAssignor(PartitionAssignor):  # type: ignore[misc]
    """Faust's sticky assignor, tolerant of a static member that came back elsewhere.

    The broker hands a restarted static member the assignment made for its former life, with
    the address it had then. Faust asserts that the address is its own; we accept and rejoin.
    """

    address_is_stale = False

    def on_assignment(self, assignment: Any) -> None:
        metadata = ClientMetadata.loads(self._decompress(assignment.user_data))
        self._assignment = metadata.assignment
        self._topic_groups = dict(metadata.topic_groups)
        self._active_tps = self._assignment.active_tps
        self._standby_tps = self._assignment.standby_tps
        self.changelog_distribution = metadata.changelog_distribution
        self.external_topic_distribution = metadata.external_topic_distribution
        self.address_is_stale = metadata.url != str(self._url)


class SlotApp(App):  # type: ignore[misc]
    """One life of the app: started once, and replaced by a new one after a crash."""

    BootStrategy = _Boot
    logger = logger

    def __init__(
        self,
        config: MembershipConfig,
        *,
        store_for: StoreFor,
        on_slots: Callable[[frozenset[int], Mapping[int, str], int], None],
    ) -> None:
        super().__init__(config.group, **_settings(config.address))
        self.finalize()
        self.loop = asyncio.get_running_loop()
        self.leaving = False
        """Set before ``stop`` where the worker ends: the others get its slots at once."""
        self._failed: asyncio.Future[BaseException] = self.loop.create_future()
        self.transport = SlotTransport(self, config)
        self._on_slots = on_slots
        self._rows = self.tables.add(RowsTable(self, slots=config.slots, store_for=store_for))
        assert self._rows.changelog_topic_name == config.changelog_topic

    async def run(self, on_running: Callable[[], None]) -> BaseException:
        """Start, and return the reason of the first crash."""
        await self.start()
        on_running()
        return await self._failed

    def owners(self) -> dict[int, str]:
        """Address (host:port) of the worker that each slot was last assigned to."""
        topic = self._rows.changelog_topic_name
        return {
            slot: url.removeprefix(URL_PREFIX)
            for url, topics in self.assignor.changelog_distribution.items()
            for slot in topics.get(topic, ())
        }

    async def on_first_start(self) -> None:
        """Create no directories: the stores are not Faust's."""

    async def _on_partitions_assigned(self, assigned: set[Any], generation_id: int = 0) -> None:
        await super()._on_partitions_assigned(assigned, generation_id)
        if not self.should_stop:
            slots = frozenset(tp.partition for tp in self.assignor.assigned_actives())
            self._on_slots(slots, self.owners(), generation_id)

    async def crash(self, reason: BaseException) -> None:
        """End this life; whoever keeps the app logs the reason."""
        self._crash(reason)

    def _crash(self, reason: BaseException) -> None:
        # Services crash in the consumer's thread too, and an event set there would not wake us.
        self.loop.call_soon_threadsafe(self._fail, reason)

    def _fail(self, reason: BaseException) -> None:
        super()._crash(reason)
        if not self._failed.done():
            self._failed.set_result(reason)


def _settings(address: str) -> dict[str, Any]:
    return {
        "broker": "kafka://",
        "canonical_url": URL_PREFIX + address,
        "web_enabled": False,
        "topic_allow_declare": False,
        "topic_disable_leader": True,
        "table_standby_replicas": STANDBYS,
        "broker_commit_interval": IDLE_S,
        "recovery_consistency_check": False,
        "stream_wait_empty": False,
        "TableManager": SlotTableManager,
        "PartitionAssignor": _SlotAssignor,
    }
