"""Interleavings that were thought of, each run as it happens. A is worker 0, B worker 1.

Each ends as every run of the simulation does. All faults end, and each worker serves
alone, one of them from an empty disk. Every answer is compared with the logs.
"""

from __future__ import annotations

import asyncio

import pytest

from rowtide.core.rows.mutation import DELETE, EXPECT_ABSENT, EXPECT_PRESENT, PUT, UPDATE
from rowtide.core.values.errors import Rejected, Unavailable
from tests.simulation.network import FAULTS, Fate
from tests.simulation.scene import Scene, play

A, B, C = 0, 1, 2
LONG_MS = 600_000


def test_a_paused_owners_flush_after_its_successors_flush_and_trim() -> None:
    async def story(scene: Scene) -> None:
        world = scene.world
        await scene.write(A)
        world.ambush(A, 2, LONG_MS)  # Its flush is sent, and waits to be committed.
        world.flush(A)
        await scene.until(lambda: scene.worker(A).process.frozen)
        await scene.until(lambda: scene.serves(B))
        await scene.write(B, DELETE)
        await scene.write(B, UPDATE)
        await scene.flush(B)
        assert (await scene.shard(B).log.bounds())[0] > 0, "it trimmed"
        end = max(changelog.end for changelog in world.broker.changelogs())
        world.thaw(scene.worker(A))
        await scene.watch(0.2)
        assert max(changelog.end for changelog in world.broker.changelogs()) == end
        await scene.watch(3)
        world.compact(10)

    play(story)


@pytest.mark.parametrize("when", ["before", "at", "after"])
def test_a_zombies_batch_around_its_successors_first(when: str) -> None:
    async def story(scene: Scene) -> None:
        world = scene.world
        await scene.write(A)
        scene.hold_next(A)
        late = scene.ask(A, UPDATE)
        await scene.until(lambda: bool(world.network.held))
        world.pause(A, LONG_MS)
        if when == "before":
            scene.land()  # The successor's no-op comes after it, and reads it.
        elif when == "at":
            place = (scene.worker(A).cluster.log("sim.shard.s1").place, world.broker)
            log = place[1].log(place[0])
            end = log.end
            await scene.until(lambda: log.end > end)  # The no-op is at the batch's offset.
            scene.land()
        await scene.until(lambda: scene.serves(B))
        after = await scene.write(B, UPDATE)
        if when == "after":
            scene.land()
        await scene.watch(0.1)
        assert scene.stands(late) == (when == "before")
        assert scene.stands(after)
        world.thaw(scene.worker(A))
        await scene.watch(5)
        assert not late.applied or when == "before"

    play(story)


def test_a_claim_is_good_once_the_former_owners_lease_has_ended() -> None:
    async def story(scene: Scene) -> None:
        world = scene.world
        await scene.write(A)
        world.cut(A, 5000)  # It serves reads until its lease ends, and gets no message.
        del world.shared.group.members[scene.worker(A).address]
        claiming = scene.begin(B, scene.worker(B).leases.claim(0))
        assert scene.worker(A).leases.is_readable(0)
        await scene.until(claiming.done)
        assert not scene.worker(A).leases.is_readable(0), "B may serve, and so may A"

    play(story)


def test_a_release_that_hides_an_older_live_lease() -> None:
    async def story(scene: Scene) -> None:
        world = scene.world
        await scene.write(A)
        world.cut(A, 5000)  # It serves reads until its lease ends, and gets no message.
        del world.shared.group.members[scene.worker(A).address]
        leases = scene.worker(B).leases
        claiming = scene.begin(B, leases.claim(0))
        # B has claimed, and waits for A's lease.
        await scene.until(lambda: leases.age_s(0) is not None)
        claiming.cancel()
        await scene.until(scene.begin(B, leases.release(0)).done)
        await scene.until(scene.begin(C, scene.worker(C).leases.claim(0)).done)
        assert not scene.worker(A).leases.is_readable(0), "C may serve, and so may A"
        await scene.watch(2)

    play(story, workers=3)


def test_a_worker_that_gets_back_a_slot_with_an_old_disk() -> None:
    async def story(scene: Scene) -> None:
        world = scene.world
        await scene.write(A)
        await scene.flush(A)
        world.copy_disk(A)
        await scene.write(A, UPDATE)
        await scene.give(B)
        await scene.write(B, DELETE)
        await scene.flush(B)
        await scene.flush(B)  # Now the tombstone is there too.
        world.compact(10)
        world.restore_disk(A)
        world.start(A)
        await scene.until(lambda: world.worker(A) is not None)
        await scene.watch(0.5)
        await scene.give(A)
        await scene.write(A, UPDATE)
        await scene.give(B)

    play(story)


@pytest.mark.parametrize("fate", FAULTS)
def test_a_batch_that_fails_while_the_next_is_already_evaluated(fate: Fate) -> None:
    async def story(scene: Scene) -> None:
        scene.worker(A).link.fates.append(fate)
        first = scene.ask(A, PUT)
        await asyncio.sleep(0.006)  # It is on its way; what follows builds on it.
        following = [scene.ask(A, UPDATE, expects=EXPECT_PRESENT) for _ in range(3)]
        await scene.until(lambda: all(a.result is not None for a in (first, *following)))
        assert all(attempt.applied for attempt in (first, *following))

    play(story)


def test_a_batch_that_lands_between_two_tries_of_its_writer() -> None:
    async def story(scene: Scene) -> None:
        await scene.write(A, PUT)
        scene.hold_next(A)
        link = scene.worker(A).link
        link.fates.append(Fate.LOST_REQUEST)
        late = scene.ask(A, UPDATE)
        await scene.until(lambda: bool(scene.world.network.held) and not link.fates)
        await scene.watch(0.01)  # The first try is still on its way, the second one is lost.
        scene.land()
        await asyncio.sleep(25)  # Each try may take 10 s to be given up.
        assert late.result is not None
        assert scene.stands(late)

    play(story)


@pytest.mark.parametrize("fate", FAULTS)
def test_options_that_change_while_a_write_is_in_flight(fate: Fate) -> None:
    async def story(scene: Scene) -> None:
        for _ in range(3):
            await scene.write(A, UPDATE)
        scene.worker(A).link.fates.append(fate)
        attempts = [scene.ask(A, UPDATE)]
        await asyncio.sleep(0.006)
        scene.world.options(A, 1)
        attempts += [scene.ask(A, UPDATE) for _ in range(2)]
        await asyncio.sleep(0.001)
        scene.world.options(A, 3)
        attempts += [scene.ask(A, UPDATE) for _ in range(2)]
        await scene.until(lambda: all(a.result is not None for a in attempts))
        assert all(attempt.applied for attempt in attempts)
        assert scene.shard(A).shard.state.options.max_versions == 3

    play(story)


def test_a_refusal_that_rests_on_a_change_which_does_not_stand_yet() -> None:
    async def story(scene: Scene) -> None:
        scene.hold_next(A)
        put = scene.ask(A, PUT)
        await scene.until(lambda: bool(scene.world.network.held))
        refused = scene.ask(A, PUT, expects=EXPECT_ABSENT)
        await scene.watch(0.01)
        assert refused.result is None
        await scene.until(lambda: refused.result is not None)
        assert isinstance(refused.result, Rejected)
        assert put.applied
        scene.land()

    play(story)


def test_a_refusal_by_a_zombie_that_knows_an_old_row() -> None:
    async def story(scene: Scene) -> None:
        await scene.write(A, PUT)
        scene.world.pause(A, LONG_MS)
        await scene.until(lambda: scene.serves(B))
        await scene.write(B, DELETE)
        asked = scene.ask(A, PUT, expects=EXPECT_ABSENT)
        await scene.watch(0.1)
        scene.world.thaw(scene.worker(A))
        await scene.until(lambda: asked.result is not None)
        assert isinstance(asked.result, Unavailable)

    play(story)
