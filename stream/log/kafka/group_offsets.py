"""Offsets under a consumer group's name, so that Kafka's own tools show a reader's lag.

Nothing depends on them: a reader's checkpoint is its lease's row. They are committed as
by a consumer outside the group, so a group of that name must not have members.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aiokafka.protocol.commit import OffsetCommitRequest
from aiokafka.protocol.coordination import FindCoordinatorRequest

from rowtide.core.values.errors import Unavailable
from rowtide.stream.log.kafka.brokers import LOST, Brokers
from rowtide.stream.log.kafka.connection import Address
from rowtide.stream.log.kafka.errors import BrokerError

__all__ = ["GroupOffsets"]

GROUP = 0
NO_GENERATION = -1
BY_BROKER = -1


class GroupOffsets:
    """The offsets of one group."""

    def __init__(self, brokers: Brokers, group: str) -> None:
        self._brokers = brokers
        self._group = group
        self._coordinator: Address | None = None

    async def commit(self, offsets: Mapping[str, int]) -> None:
        """Write the next offset of each topic's one partition. Raises ``Unavailable``."""
        topics = [(topic, [(0, offset, "")]) for topic, offset in offsets.items()]
        request = OffsetCommitRequest(self._group, NO_GENERATION, "", BY_BROKER, topics)
        try:
            if self._coordinator is None:
                self._coordinator = await self._find_coordinator()
            response = await self._brokers.ask(self._coordinator, request)
            codes = [code for _, parts in response.topics for _, code in parts if code]
            if codes:
                raise BrokerError(codes[0], f"offsets of group {self._group}")
        except (*LOST, BrokerError) as error:
            self._coordinator = None
            raise Unavailable(f"offsets of group {self._group}: {error}") from error

    async def _find_coordinator(self) -> Address:
        def check(response: Any) -> Address:
            if response.error_code:
                raise BrokerError(response.error_code, f"coordinator of group {self._group}")
            return response.host, response.port

        return await self._brokers.ask_any(FindCoordinatorRequest(self._group, GROUP), check)
