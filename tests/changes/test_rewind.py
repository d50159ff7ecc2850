"""A consumer that is made to begin again while its readers run: nothing is skipped, in order."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace

import pytest

from rowtide.cli.client import ProtocolClient
from rowtide.client.changes.api import ApiSource
from rowtide.client.changes.leases import TableLeases
from rowtide.client.changes.start import Begin, ShardPlace, rewind
from rowtide.client.changes.worker import Batch, FollowerSettings
from rowtide.client.endpoint import Endpoint
from rowtide.core.values.errors import Rejected
from tests.changes.readers import SETTINGS, Readers
from tests.changes.test_readers_together import SEED, World, consumer

pytestmark = pytest.mark.system

PATIENT = replace(SETTINGS, lease_s=5.0)
"""Who loses a lease because it is busy is given a batch again, which is not counted here."""


class Rewound:
    """Readers of one consumer in a world, and what rewinds them."""

    def __init__(
        self,
        world: World,
        endpoint: Endpoint,
        table: str,
        tasks: asyncio.TaskGroup,
        begin: Begin,
        *,
        settings: FollowerSettings = SETTINGS,
    ) -> None:
        self.world = world
        self._source = ApiSource(endpoint, table)
        name = consumer()
        self._leases = TableLeases(endpoint, name)
        self.readers = Readers(
            tasks,
            lambda: ApiSource(endpoint, table),
            endpoint,
            name,
            begin=begin,
            settings=settings,
        )

    async def to(self, place: Begin | ShardPlace) -> None:
        await rewind(self._source, self._leases, place)

    async def all_there(self) -> None:
        await self.readers.until(lambda: self.readers.delivered.once() == self.world.written)


@pytest.fixture
def world(admin: ProtocolClient, table: str) -> World:
    return World(admin, table, random.Random(SEED))


async def test_from_the_oldest_everything_comes_again_in_order(
    world: World, endpoint: Endpoint, table: str
) -> None:
    async with asyncio.TaskGroup() as tasks:
        rewound = Rewound(world, endpoint, table, tasks, "oldest", settings=PATIENT)
        for _ in range(2):
            rewound.readers.start()
        await world.write(30)
        await world.split()
        await world.write(30)
        await rewound.all_there()
        before = rewound.readers.delivered.count_repeated()
        await rewound.to("oldest")
        count = sum(map(len, world.written.values()))
        delivered = rewound.readers.delivered
        await rewound.readers.until(lambda: delivered.count_repeated() - before >= count)
        await world.write(10)
        await rewound.all_there()
        await rewound.readers.stop_all()
        for name, numbers in delivered.numbers.items():
            written = world.written[name]
            first, second = numbers[: -len(written)], numbers[-len(written) :]
            assert second == written, f"ROWTIDE_CHANGES_SEED={SEED}, {name}: {numbers}"
            assert first == written[: len(first)], f"ROWTIDE_CHANGES_SEED={SEED}, {name}: {numbers}"


async def test_a_shard_goes_back_to_a_sequence_number_alone(
    world: World, endpoint: Endpoint, table: str, admin: ProtocolClient
) -> None:
    async with asyncio.TaskGroup() as tasks:
        rewound = Rewound(world, endpoint, table, tasks, "oldest")
        await world.write(20)
        await world.reshape("RowtideSplitShard", {"shard": (await world.living())[0], "at": "d"})
        await world.write(40)
        left, _ = await world.living()
        at: list[int] = []

        async def look(batch: Batch) -> None:
            if batch.shard_id == left:
                at.extend(change.sequence for change in batch)
            await rewound.readers.delivered.take(batch)

        rewound.readers.take = look
        rewound.readers.start()
        await rewound.all_there()
        last = max(at)
        at.clear()
        await rewound.to(ShardPlace(left, 0))
        await rewound.readers.until(lambda: last in at)
        await rewound.readers.stop_all()
        assert list(dict.fromkeys(at)) == sorted(set(at))
        with pytest.raises(Rejected, match="no-such-shard"):
            await rewound.to(ShardPlace("no-such-shard", 0))
        # Changes up to there would have been passed over as they came.
        with pytest.raises(Rejected, match=f"'{left}' ends before {last + 2}"):
            await rewound.to(ShardPlace(left, last + 2))
        await rewound.to(ShardPlace(left, last + 1))


async def test_who_was_rewound_before_it_ran_begins_there(
    world: World, endpoint: Endpoint, table: str
) -> None:
    async with asyncio.TaskGroup() as tasks:
        rewound = Rewound(world, endpoint, table, tasks, "latest")
        await world.write(20)
        await rewound.to("oldest")
        rewound.readers.start()
        await rewound.all_there()
        await rewound.readers.stop_all()


async def test_nothing_is_skipped_when_readers_crash_and_are_rewound(
    world: World, endpoint: Endpoint, table: str
) -> None:
    chance = random.Random(SEED)
    async with asyncio.TaskGroup() as tasks:
        rewound = Rewound(world, endpoint, table, tasks, "oldest")
        for _ in range(12):
            if len(rewound.readers.running) < 3:
                rewound.readers.start()
            await chance.choice([world.split, world.merge])()
            await world.write(10)
            if chance.random() < 0.4:
                await rewound.readers.crash(chance.randrange(len(rewound.readers.running)))
            if chance.random() < 0.5:
                await rewound.to("oldest")
        if not rewound.readers.running:
            rewound.readers.start()
        await rewound.all_there()
        await rewound.readers.stop_all()
