"""A table is deleted: no slot's rows or changelog keep anything of it, whichever worker dies."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.shard.index import PROGRESS, progress_of
from rowtide.core.shard.source_position import SOURCES, table_of
from tests.simulation.program import in_world
from tests.simulation.simulated_worker import TOPICS, SimulatedWorker
from tests.simulation.tables import ADMIN, INDEXED, PLACES, PLAIN
from tests.simulation.world import WHERE, World

A, B = 0, 1
SWEPT_S = 60.0
"""Twice the time between two looks."""
NUMBERS = {PLAIN: {1, 4}, INDEXED: {2, 3, 5}}
"""Of a table and its indexes, local or global: under these the rows know what is theirs."""
CHUNKS = b"r"
KINDS = {CHUNKS, PROGRESS, SOURCES}
"""Chunks, how far indexes have followed logs, what sources have written."""


def changelog(world: World) -> list[bytes]:
    """Return the live keys of the one slot's changelog."""
    entries = world.broker.changelog((TOPICS.changelog, 0)).entries
    last = {entry.key: entry.value for entry in entries}
    return [key for key, value in last.items() if value is not None]


def rows(world: World) -> list[bytes]:
    """Return the keys in the rows of the slot's owner."""
    [served] = [s.rows for w in world.live() for s in w.roster.slots.values() if s.opened.is_set()]
    assert served is not None
    return [key for key, _ in served.scan(b"", b"\xff")]


def of(keys: list[bytes], table: str) -> Counter[bytes]:
    """Return how many of the keys are of a table or its indexes, by kind."""
    return Counter(key[:1] for key in keys if key[:1] in KINDS and number_of(key) in NUMBERS[table])


def number_of(key: bytes) -> int:
    """Return the number of the table or the index that a key is of."""
    if key[:1] == PROGRESS:
        return progress_of(key)
    return table_of(key) if key[:1] == SOURCES else int.from_bytes(key[1:5], "big")


def delete(worker: SimulatedWorker, table: str) -> None:
    """Have a worker begin to delete a table."""
    request = pb.DeleteTableRequest(table_name=table).SerializeToString()
    work = worker.tables.delete_table(ADMIN, request)
    worker.tasks.create_task(work, context=worker.process.context)


async def begin_world(world: World) -> None:
    """Let the first worker have the slot, with everything of both tables in the changelog."""
    world.followed = True
    world.shared.group.tell_s_max = 0.01
    await world.begin()
    first = world.live()[A]
    world.shared.group.divide({0: first.address})
    await wait_until_served(world)
    for place in PLACES:
        world.clients.write(first, place, world.chance)
    for _ in range(4):
        world.source(0, 8)
        await asyncio.sleep(1)
    await first.roster.slots[0].flush()
    for table in NUMBERS:
        assert of(changelog(world), table).keys() == KINDS
        assert of(rows(world), table).keys() == KINDS


async def wait_until_served(world: World) -> None:
    """Return once a worker serves the slot, and has for a while."""
    async with asyncio.timeout(60):
        while world.owner("s1") is None and world.owner("s3") is None:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    await asyncio.sleep(5)


async def check(world: World, table: str) -> None:
    """Hold that nothing is left of the table, and all of the other one."""
    await asyncio.sleep(SWEPT_S)
    [other] = NUMBERS.keys() - {table}
    for keys in (changelog(world), rows(world)):
        assert not of(keys, table)
        assert of(keys, other).keys() == KINDS


@pytest.mark.parametrize("table", NUMBERS)
def test_nothing_is_left_of_a_table_that_was_deleted(table: str) -> None:
    async def program(world: World) -> None:
        await begin_world(world)
        delete(world.live()[A], table)
        await check(world, table)

    in_world(program)


@pytest.mark.parametrize("whose", ["its own", "another's"])
@pytest.mark.parametrize("table", NUMBERS)
@pytest.mark.parametrize("step", [".catalog", ".shard.", "flush"])
def test_nothing_is_left_where_the_owner_dies_meanwhile(step: str, table: str, whose: str) -> None:
    """It dies when the catalog says so, when a shard is sealed, or when it is about to remove the
    first of it. The slot opens on its own rows, or another worker's, which had none."""

    async def program(world: World) -> None:
        await begin_world(world)
        if whose == "its own":
            world.kill(B, 0)
        world.ambush_to_death(A, WHERE.index(step))
        delete(world.live()[A], table)
        async with asyncio.timeout(60):
            while world.worker(A) is not None:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        if whose == "its own":
            world.start(A)
        await wait_until_served(world)
        await check(world, table)

    in_world(program)
