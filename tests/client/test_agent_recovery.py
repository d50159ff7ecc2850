"""An agent's channel trusts only a recovery of the present assignment, and only its records."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import faust
import pytest

from rowtide.client.agents.changelog_queue import ChangelogQueue
from rowtide.client.agents.recovery_watch import RecoveryWatch
from tests.support.waiting import SOON_S


class Rebalances:
    """An app as Faust's consumer and recovery drive it; neither runs."""

    def __init__(self) -> None:
        self.app = faust.App("counting", broker="kafka://127.0.0.1:1")
        self.app.finalize()
        self.app.flow_control.resume()
        self.watch = RecoveryWatch(self.app)
        self.recovery: Any = self.app.tables.recovery
        self.recovery.on_recovery_completed = self._complete
        self.recovery._resume_streams = self._complete

    async def _complete(self, generation_id: int) -> None:
        """Faust reports ready, whatever the generation."""

    async def assign(self, generation: int) -> None:
        self.app.consumer_generation_id = generation
        await self.app.on_partitions_assigned.send(set())

    async def recover(self, generation: int) -> None:
        await self.recovery.on_recovery_completed(generation)


@pytest.fixture
async def faust_app() -> Rebalances:
    """An app whose first rebalance has begun."""
    rebalances = Rebalances()
    rebalances.watch.begin_rebalance()
    return rebalances


async def test_tables_are_ready_once_their_assignment_is_recovered(faust_app: Rebalances) -> None:
    await faust_app.assign(1)
    assert not faust_app.watch.is_ready
    await faust_app.recover(1)
    assert faust_app.watch.is_ready


async def test_an_app_without_tables_is_ready_when_its_streams_go_on(
    faust_app: Rebalances,
) -> None:
    await faust_app.assign(1)
    await faust_app.recovery._resume_streams(generation_id=1)
    assert faust_app.watch.is_ready


async def test_a_recovery_that_ends_in_the_next_rebalance_is_not_trusted(
    faust_app: Rebalances,
) -> None:
    await faust_app.assign(1)
    faust_app.watch.begin_rebalance()
    await faust_app.recover(1)
    assert not faust_app.watch.is_ready
    await faust_app.assign(2)
    assert not faust_app.watch.is_ready
    await faust_app.recover(2)
    assert faust_app.watch.is_ready


async def test_a_recovery_that_ends_after_the_next_assignment_is_not_trusted(
    faust_app: Rebalances,
) -> None:
    await faust_app.assign(1)
    faust_app.watch.begin_rebalance()
    await faust_app.assign(2)
    await faust_app.recover(1)
    assert not faust_app.watch.is_ready


async def test_tables_are_not_ready_in_a_rebalance(faust_app: Rebalances) -> None:
    await faust_app.assign(1)
    await faust_app.recover(1)
    faust_app.watch.begin_rebalance()
    assert not faust_app.watch.is_ready


def event(generation: int, offset: int) -> Any:
    """Return a changelog event, as far as the queue reads it."""
    return SimpleNamespace(message=SimpleNamespace(generation_id=generation, offset=offset))


async def test_a_late_record_of_an_earlier_assignment_is_passed_over(
    faust_app: Rebalances,
) -> None:
    await faust_app.assign(2)
    queue = ChangelogQueue(faust_app.app)
    for each in (event(1, 500), event(2, 0), event(1, 501), event(2, 1)):
        await queue.put(each)
    async with asyncio.timeout(SOON_S):
        assert [(await queue.get()).message.offset for _ in range(2)] == [0, 1]
