"""Dropping an append that has ended, or is about to, does no harm: clean-up always does so."""

from __future__ import annotations

import asyncio

from rowtide.core.values.errors import Unavailable
from rowtide.stream.log.kafka.brokers import Brokers
from rowtide.stream.log.kafka.config import KafkaConfig
from rowtide.stream.log.kafka.connection import Address
from rowtide.stream.log.kafka.log import KafkaLog
from tests.support.waiting import SOON_S


class Silent(Brokers):
    """Brokers that never report a log's leader."""

    def __init__(self) -> None:
        super().__init__(KafkaConfig("nowhere:9092"))
        self.asked = asyncio.Event()

    async def leader(self, topic: str, partition: int) -> Address:
        """Wait for ever."""
        self.asked.set()
        return await asyncio.Future[Address]()


async def begin_append(log: KafkaLog, tasks: asyncio.TaskGroup) -> asyncio.Task[int | None]:
    """Begin an append, and return once it looks for the leader."""

    async def append() -> int | None:
        try:
            return await log.append([(b"", b"a")], deadline_s=60)
        except Unavailable:
            return None

    appending = tasks.create_task(append(), name="append")
    assert isinstance(log.brokers, Silent)
    await log.brokers.asked.wait()
    return appending


async def test_an_append_that_was_cancelled_may_be_dropped_afterwards() -> None:
    log = KafkaLog(Silent(), "log", 0)
    async with asyncio.TaskGroup() as tasks:
        appending = await begin_append(log, tasks)
        appending.cancel()
    await log.disconnect()


async def test_an_append_may_be_dropped_while_its_time_ends() -> None:
    log = KafkaLog(Silent(), "log", 0)
    async with asyncio.timeout(SOON_S), asyncio.TaskGroup() as tasks:
        appending = await begin_append(log, tasks)
        await log.disconnect()
        await asyncio.sleep(0)  # Its time has ended; it does not know it yet.
        await log.disconnect()
    assert appending.result() is None
