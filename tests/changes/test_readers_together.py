"""Readers of one consumer divide a table's shards, whatever becomes of shards and readers."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from rowtide.cli.client import ProtocolClient, ServerError
from rowtide.client.changes.worker import FollowerSettings
from rowtide.client.endpoint import Endpoint
from rowtide.client.wire_row import Put
from tests.api.calls import key
from tests.changes.conftest import SLOTS, MakeSource
from tests.changes.readers import Readers

pytestmark = pytest.mark.system

STEPS = int(os.environ.get("ROWTIDE_CHANGES_STEPS", "40"))
SEED = int(os.environ.get("ROWTIDE_CHANGES_SEED", str(random.SystemRandom().randrange(10**6))))
NAMES = [f"{letter}{number}" for letter in "abcdefgh" for number in range(3)]
_consumers = count()


def consumer() -> str:
    return f"readers-{next(_consumers)}"


class World:
    """A table that is written while its shards are split and merged."""

    def __init__(self, admin: ProtocolClient, table: str, chance: random.Random) -> None:
        self.written: dict[str, list[int]] = {}
        self._admin = admin
        self._table = table
        self._chance = chance
        self._turn = asyncio.Lock()

    async def ask(self, call: Callable[..., Any], *arguments: Any) -> Any:
        async with self._turn:  # The client is one connection's.
            return await asyncio.to_thread(call, *arguments)

    async def write(self, writes: int) -> None:
        for _ in range(writes):
            name = self._chance.choice(NAMES)
            numbers = self.written.setdefault(name, [])
            puts = [Put("n", len(numbers))]
            await self.ask(self._admin.put_row, self._table, key(name, 1), puts)
            numbers.append(len(numbers))

    async def reshape(self, operation: str, fields: dict[str, Any]) -> None:
        try:
            await self.ask(self._admin.call_json, operation, {"table": self._table, **fields})
        except ServerError as error:
            if error.code not in ("OTSParameterInvalid", "OTSObjectNotExist"):
                raise  # A shard that can't be split or merged at this point stays as it is.

    async def living(self) -> list[str]:
        reply = await self.ask(self._admin.call_json, "RowtideListShards", {"table": self._table})
        return [s["shard"] for s in reply["shards"] if s["state"] == "open"]

    async def split(self) -> None:
        shard = self._chance.choice(await self.living())
        at = self._chance.choice(NAMES)
        await self.reshape("RowtideSplitShard", {"shard": shard, "at": at})

    async def move(self) -> None:
        shard = self._chance.choice(await self.living())
        slot = self._chance.randrange(SLOTS)
        await self.reshape("RowtideMoveShard", {"shard": shard, "slot": slot})

    async def merge(self) -> None:
        living = await self.living()
        if len(living) > 1:
            at = self._chance.randrange(len(living) - 1)
            await self.reshape("RowtideMergeShards", {"shards": living[at : at + 2]})


async def test_readers_divide_the_shards_and_hand_over_without_repeating(
    admin: ProtocolClient, endpoint: Endpoint, source: MakeSource, table: str
) -> None:
    world = World(admin, table, random.Random(1))
    await world.write(30)
    for at in ("c", "e", "g"):
        living = await world.living()
        await world.reshape("RowtideSplitShard", {"shard": living[-1], "at": at})
    async with asyncio.TaskGroup() as tasks:
        patient = FollowerSettings()
        readers = Readers(tasks, lambda: source(table), endpoint, consumer(), settings=patient)
        first = readers.start()
        await readers.until(lambda: len(first.shards) == 4)
        second = readers.start()
        await readers.until(lambda: len(first.shards) == len(second.shards) == 2)
        await world.write(30)
        await readers.until(lambda: readers.delivered.once() == world.written)
        await readers.stop()
        await readers.until(lambda: len(second.shards) == 4)
        await world.write(30)
        await readers.until(lambda: readers.delivered.once() == world.written)
        await readers.stop_all()
    assert readers.delivered.count_repeated() == 0


async def test_the_shards_of_a_crashed_reader_move_on(
    admin: ProtocolClient, endpoint: Endpoint, source: MakeSource, table: str
) -> None:
    world = World(admin, table, random.Random(1))
    await world.write(30)
    async with asyncio.TaskGroup() as tasks:
        readers = Readers(tasks, lambda: source(table), endpoint, consumer())
        readers.start()
        await readers.until(lambda: readers.delivered.once() == world.written)
        await readers.crash()
        await world.write(30)
        second = readers.start()
        await readers.until(lambda: readers.delivered.once() == world.written)
        await readers.until(lambda: len(second.shards) == 1)
        await readers.stop_all()


async def test_no_change_is_skipped_or_out_of_order_whatever_happens(
    admin: ProtocolClient, endpoint: Endpoint, source: MakeSource, table: str
) -> None:
    chance = random.Random(SEED)
    world = World(admin, table, chance)
    async with asyncio.TaskGroup() as tasks:
        readers = Readers(tasks, lambda: source(table), endpoint, consumer())
        for number in range(STEPS):
            await step(chance, world, readers)
            numbers = readers.delivered.once()
            in_order = all(numbers[name] == list(range(len(numbers[name]))) for name in numbers)
            assert in_order, f"ROWTIDE_CHANGES_SEED={SEED}, step {number}: {numbers}"
        if not readers.running:
            readers.start()
        try:
            await readers.until(lambda: readers.delivered.once() == world.written)
        except AssertionError as error:
            raise AssertionError(
                f"ROWTIDE_CHANGES_SEED={SEED}: {missing(world, readers)}"
            ) from error
        await readers.stop_all()
    assert readers.interrupted or not readers.delivered.count_repeated(), (
        f"ROWTIDE_CHANGES_SEED={SEED}"
    )


async def step(chance: random.Random, world: World, readers: Readers) -> None:
    """Let something happen to the readers, to the rows or to the shards."""
    what, running = chance.random(), len(readers.running)
    if what < 0.15 and running < 3:
        readers.start()
    elif what < 0.2 and running:
        await readers.stop(chance.randrange(running))
    elif what < 0.3 and running:
        await readers.crash(chance.randrange(running))
    elif what < 0.7:
        await world.write(10)
    else:
        await chance.choice([world.split, world.split, world.merge, world.move])()


def missing(world: World, readers: Readers) -> dict[str, tuple[int, int]]:
    """Return how many changes were given, and how many there are, by the keys that lack some."""
    numbers = readers.delivered.once()
    counts = {
        name: (len(numbers.get(name, [])), len(world.written[name])) for name in world.written
    }
    return {name: count for name, count in counts.items() if count[0] != count[1]}
