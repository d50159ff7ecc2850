"""Stories of deposed brokers that do not know it: their answers may be outdated.

A is worker 0, B worker 1. Each story ends as every run of the simulation does.
"""

from __future__ import annotations

import asyncio

import pytest

from rowtide.core.rows.mutation import UPDATE
from tests.simulation.program import in_world
from tests.simulation.scene import SHARD, Scene, play
from tests.simulation.simulated_worker import SimulatedWorker
from tests.simulation.tables import PLAIN, Place
from tests.simulation.unanswering import unanswering
from tests.simulation.world import WHERE_DEPOSED, World

A, B, C = 0, 1, 2
LONG_MS = 600_000

LEASE, CATALOG, EVERY_SHARD, CHANGELOG, EVERYTHING = range(len(WHERE_DEPOSED))


def test_a_former_owner_that_hears_nothing_of_its_successor_does_not_fence_it() -> None:
    """It fenced the successor's flushes and wrote its own older rows, and the mark below which the
    log was trimmed by then, over the successor's: acknowledged writes were gone."""

    async def story(scene: Scene) -> None:
        world = scene.world
        await scene.write(A, UPDATE)
        await scene.flush(A)
        await scene.write(A, UPDATE)
        former = scene.worker(A)
        world.pause(A, LONG_MS)
        world.depose(A, LEASE, 0, LONG_MS)
        await scene.until(lambda: scene.serves(B))
        for _ in range(3):
            await scene.write(B, UPDATE)
        await scene.flush(B)
        assert (await scene.shard(B).log.bounds())[0] > 0, "it trimmed"
        world.thaw(former)
        for _ in range(2):  # The first one finds that it is fenced.
            world.flush(A)
        await scene.watch(0.2)
        world.compact(10)
        await scene.watch(3)

    play(story)


def test_a_slot_does_not_open_by_a_catalog_of_before() -> None:
    """A shard had been moved to the slot, which another worker had opened then. The next
    owner, with an outdated catalog, found no shard for its rows. They were swept from the
    changelog, below the place up to which the log was trimmed.
    """

    async def program(world: World) -> None:
        world.shared.group.tell_s_max = 0.01
        await world.begin()
        first, second, third = world.live()
        world.shared.group.divide({0: first.address, 1: third.address})
        await world.until(lambda: 1 in third.roster.slots and third.roster.slots[1].opened.is_set())
        await world.until(lambda: "s2" in list_open_shards(first))
        for name in "def":
            world.clients.write(first, Place(PLAIN, name), world.chance)
        await asyncio.sleep(1)
        world.depose(B, CATALOG, 0, LONG_MS)
        world.move(0, 1, 1)
        await world.until(lambda: "s11" in list_open_shards(third))
        world.flush(C)
        await asyncio.sleep(1)
        world.trim(C)
        await asyncio.sleep(1)
        world.shared.group.divide({0: first.address, 1: second.address})
        slots = second.roster.slots
        await world.until(lambda: 1 in slots and slots[1].opened.is_set())
        await asyncio.sleep(3)
        world.compact(10)
        await world.settle()

    in_world(program, workers=3, slots=2)


def test_a_copy_does_not_read_the_changelog_further_than_its_log() -> None:
    """A deposed leader had reported the end of the log, and the copy showed a part of
    later changes.

    Whatever is reported to the copy: it has the rows of what it has read of the log.
    """

    async def story(scene: Scene) -> None:
        world = scene.world
        await scene.write(A, UPDATE)
        copies = scene.worker(B).list_copied_shards
        await scene.until(lambda: any(copy.place.shard_id == SHARD for copy in copies()))
        world.depose(B, EVERY_SHARD, 0, 8000)
        for _ in range(3):
            await scene.write(A, UPDATE)
        await scene.flush(A)
        await scene.watch(12)
        [copy] = [copy for copy in copies() if copy.place.shard_id == SHARD]
        assert copy.lag == 0

    play(story, copies=True)


def test_a_copy_does_not_show_a_shard_whose_rows_are_removed_from_its_slot() -> None:
    """A shard was moved to another slot, and its rows were removed from the former one's
    changelog.

    Deposed leaders reported neither its seal nor the move in the catalog: the copy showed
    it as new, without rows.
    """

    async def program(world: World) -> None:
        world.shared.group.tell_s_max = 0.01
        world.shared.copies = True
        await world.begin()
        first, second, third = world.live()
        scene = Scene(world)
        world.shared.group.divide({0: third.address, 1: first.address})
        await scene.until(
            lambda: list_open_shards(first) == {SHARD} and "s2" in list_open_shards(third)
        )
        await scene.write(A, UPDATE)
        world.flush(A)
        await scene.watch(0.5)
        # So that the log goes on behind the row: what is later than all of it is waited for.
        world.shared.group.divide({0: first.address, 1: third.address})
        await scene.until(
            lambda: list_open_shards(third) == {SHARD} and "s2" in list_open_shards(first)
        )
        await scene.until(
            lambda: any(c.place.shard_id == SHARD for c in second.list_copied_shards())
        )
        for where in (CATALOG, EVERY_SHARD):
            world.depose(B, where, 0, 8000)
        world.move(0, 0, 0)
        await scene.until(lambda: len(list_open_shards(first)) == 3)
        # As it is every 30 s; here before the next flush.
        third.roster.slots[1]._upkeep.sweep.request()
        await scene.watch(12)
        assert not list_open_shards(third)
        await world.settle()

    in_world(program, workers=3, slots=2)


def check_shard_stays_open(where: int = CHANGELOG) -> None:
    """Entries of the changelog beyond the reported end, and no longer in the log, were
    reported as lost. The shard stayed closed, and an operator might have accepted that.
    If only the log's end is outdated, the shard is closed, and checked again.
    """

    async def story(scene: Scene) -> None:
        world = scene.world
        await scene.write(A, UPDATE)
        await scene.flush(A)
        world.depose(B, where, 0, 20_000)
        for _ in range(3):
            await scene.write(A, UPDATE)
        await scene.flush(A)
        await scene.give(B)
        await scene.write(B, UPDATE)

    play(story)


@pytest.mark.parametrize("where", [EVERY_SHARD, CHANGELOG, EVERYTHING])
def test_a_shard_is_not_closed_by_a_changelog_of_before(where: int) -> None:
    check_shard_stays_open(where)


def test_a_shard_that_opens_late_is_not_closed_by_a_changelog_of_before() -> None:
    """A flush of the others passed over what was not read of the changelog: its end was taken for
    proven, and the shard stayed closed in every later life of the slot."""

    async def story(scene: Scene) -> None:
        world = scene.world
        await scene.write(A, UPDATE)
        await scene.flush(A)
        world.depose(B, CHANGELOG, 0, LONG_MS)
        for _ in range(3):
            await scene.write(A, UPDATE)
        await scene.flush(A)
        slots = scene.worker(B).roster.slots
        with unanswering(SHARD, bounds=True):
            world.shared.group.divide({0: scene.worker(B).address})
            await scene.until(lambda: 0 in slots and slots[0].opened.is_set())
            await scene.watch(30)  # It flushes the others.
        await scene.until(lambda: scene.serves(B))
        await scene.write(B, UPDATE)

    play(story)


def list_open_shards(worker: SimulatedWorker) -> set[str]:
    """Return the shards that a worker has open."""
    return {owner.shard.shard_id for owner in worker.open_shards()}
