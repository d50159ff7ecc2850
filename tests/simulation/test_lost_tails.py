"""A broker that lost the end of a log, and one that only seems to have lost it.

An owner continues to append, so lost entries are replaced at once: by its next batch, or
by a no-op. From then on the log's ends show nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import pytest

from rowtide.core.cluster.lease import CLAIM, Lease, encode_lease
from rowtide.core.protocol.plainbuffer import put_cell
from rowtide.core.records import record
from rowtide.core.rows.mutation import PUT, UPDATE, ChangeRequest, Outcome
from rowtide.core.values import variant
from rowtide.core.values.errors import Rejected, StoreError, Unavailable
from rowtide.stream.log.log import Entry
from rowtide.stream.shard.appender import LogShortened
from rowtide.stream.slot.slot import WATCH_S, Slot
from rowtide.stream.slot.upkeep.slot_upkeep import LOOK_AGAIN_S
from tests.simulation.broker import Partition
from tests.simulation.clients import row_in
from tests.simulation.memory_cluster import SimulatedLog
from tests.simulation.network import Fate
from tests.simulation.program import in_world
from tests.simulation.row_model import MARK
from tests.simulation.scene import ROW, SHARD, Scene
from tests.simulation.simulated_worker import TOPICS
from tests.simulation.world import World

A, B = 0, 1
LOG = TOPICS.shard(SHARD)


def run_story(story: Callable[[Scene], Awaitable[None]], *, workers: int = 1) -> None:
    """Run a story of a slot that worker A has, with a few writes in it.

    Losses break the world's invariants, so those are not checked.
    """

    async def whole(world: World) -> None:
        world.shared.group.tell_s_max = 0.01
        await world.begin()
        scene = Scene(world)
        await scene.give(A)
        for kind in (PUT, UPDATE, UPDATE):
            await scene.write(A, kind)
        world.check = lambda: None  # type: ignore[method-assign]
        await story(scene)

    in_world(whole, workers=workers, slots=1)


def log_of(scene: Scene, topic: str) -> Partition:
    return scene.world.broker.log((topic, 0))


def lose(scene: Scene, topic: str, count: int) -> None:
    """Lose the last entries of a log."""
    del log_of(scene, topic).entries[-count:]


def slot_of(scene: Scene, number: int = A) -> Slot:
    return scene.worker(number).roster.slots[0]


async def write(scene: Scene, count: int = 1) -> list[Outcome | StoreError]:
    """Ask for changes of the row that share a batch; return what became of them, if anything."""
    heard: list[Outcome | StoreError] = []
    try:
        for _ in range(count):
            change = ChangeRequest(UPDATE, ROW.key, [put_cell(MARK, variant.encode("late"), None)])
            slot_of(scene).owner(SHARD).submit(change, heard.append)
    except Unavailable as error:
        heard.append(error)
    await asyncio.sleep(1.0)
    return heard


async def reopen_slot(scene: Scene) -> None:
    """Let another worker claim the slot without serving it; return when it is open again."""
    lease = log_of(scene, TOPICS.lease)
    claim = Lease(lease.end, CLAIM, lease.end, b"a rival.", "rival:1")
    scene.world.broker.append((TOPICS.lease, 0), [(b"", encode_lease(claim))])
    await asyncio.sleep(2 * WATCH_S)
    await slot_of(scene).opened.wait()


# Shards.


@pytest.mark.parametrize("more", [0, 1, 3])
@pytest.mark.parametrize("lost", [1, 2])
def test_a_shard_whose_log_lost_its_end_closes_however_much_fills_it(lost: int, more: int) -> None:
    async def story(scene: Scene) -> None:
        lose(scene, LOG, lost)
        assert not any(isinstance(one, Outcome) for one in await write(scene, lost + more))
        assert "are lost" in slot_of(scene).closed[SHARD]
        await asyncio.sleep(3 * LOOK_AGAIN_S)
        assert "are lost" in slot_of(scene).closed[SHARD], "its ends lack nothing any more"
        await reopen_slot(scene)
        assert "another entry" in slot_of(scene).closed[SHARD]
        assert not any(isinstance(one, Outcome) for one in await write(scene))

    run_story(story)


def test_a_no_op_that_settles_an_unknown_outcome_may_fill_it_too() -> None:
    async def story(scene: Scene) -> None:
        end = log_of(scene, LOG).end
        lose(scene, LOG, 1)
        scene.worker(A).link.fates.append(Fate.LOST_REQUEST)
        await write(scene)
        await asyncio.sleep(30)
        assert SHARD in slot_of(scene).closed
        assert log_of(scene, LOG).end == end, "the no-op has taken the place"
        await reopen_slot(scene)
        assert "another entry" in slot_of(scene).closed[SHARD]

    run_story(story)


def test_a_worker_that_starts_anew_finds_the_log_filled_by_somebody_else() -> None:
    async def story(scene: Scene) -> None:
        await scene.world.stop(A)
        lose(scene, LOG, 1)
        other = log_of(scene, LOG).entries[-1]
        scene.world.broker.append((LOG, 0), [(other.key, other.value)] * 3)
        scene.world.start(A)
        await asyncio.sleep(10)
        assert "another entry" in slot_of(scene).closed[SHARD]

    run_story(story)


def test_entries_that_come_back_open_the_shard() -> None:
    async def story(scene: Scene) -> None:
        log = log_of(scene, LOG)
        whole = list(log.entries)
        lose(scene, LOG, 1)
        await write(scene, 2)
        assert SHARD in slot_of(scene).closed
        log.entries[:] = [*whole, Entry(log.end, *log.entries[-1][1:])]
        await asyncio.sleep(LOOK_AGAIN_S + 5)
        assert not slot_of(scene).closed
        assert isinstance((await write(scene))[0], Outcome)

    run_story(story)


def test_a_look_that_fails_leaves_the_slot_as_it_is() -> None:
    async def story(scene: Scene) -> None:
        lose(scene, LOG, 1)
        await write(scene, 2)
        await asyncio.sleep(1)
        rows = slot_of(scene).rows
        with patch.object(SimulatedLog, "bounds", side_effect=Unavailable("silent")) as asked:
            await asyncio.sleep(LOOK_AGAIN_S + 1)
        assert asked.called
        assert slot_of(scene).rows is rows, "it was opened again"

    run_story(story)


def test_a_shard_that_closes_during_a_look_at_another_leaves_the_slot_as_it_is() -> None:
    """The look ended the whole worker."""

    async def story(scene: Scene) -> None:
        lose(scene, LOG, 1)
        await write(scene, 2)
        slot, bounds = slot_of(scene), SimulatedLog.bounds

        async def slow(self: SimulatedLog) -> tuple[int, int]:
            slot.closed.close("another", LogShortened("its end is gone"))
            return await bounds(self)

        with patch.object(SimulatedLog, "bounds", slow):
            await asyncio.sleep(LOOK_AGAIN_S + 1)
        assert slot.closed.keys() == {SHARD, "another"}

    run_story(story)


def test_a_repair_keeps_what_the_rows_have_and_takes_what_stands_there_now() -> None:
    async def story(scene: Scene) -> None:
        before = len(log_of(scene, LOG).entries)
        row = row_in(slot_of(scene).owner(SHARD).rows, ROW)
        lose(scene, LOG, 2)
        await write(scene, 3)
        loss = await slot_of(scene).repair(SHARD, accept=False)
        assert (loss.first, loss.last, loss.filled) == (before - 2, before - 1, True)
        assert SHARD in slot_of(scene).closed
        await slot_of(scene).repair(SHARD, accept=True)
        assert row_in(slot_of(scene).owner(SHARD).rows, ROW) == row
        assert isinstance((await write(scene))[0], Outcome)
        await reopen_slot(scene)
        assert not slot_of(scene).closed
        with pytest.raises(Rejected):
            await slot_of(scene).repair(SHARD, accept=False)

    run_story(story)


@contextmanager
def silent_once(of: Callable[[SimulatedLog], bool]) -> Iterator[None]:
    """Let a new leader, which has the entries, return none of them once."""
    read = SimulatedLog.read
    left = [1]

    async def short(self: SimulatedLog, offset: int, **named: Any) -> list[Entry]:
        found = await read(self, offset, **named)
        if found and left[0] and not named.get("wait_s") and of(self):
            left[0] = 0
            return []
        return found

    with patch.object(SimulatedLog, "read", short):
        yield
    assert not left[0], "nobody asked"


def test_a_shard_stays_open_where_a_new_leader_tells_nothing_for_a_moment() -> None:
    async def story(scene: Scene) -> None:
        with silent_once(lambda log: log.place[0] == LOG):
            async with asyncio.timeout(LOOK_AGAIN_S / 2):  # Not closed, and opened again.
                await scene.give(B)
            assert not slot_of(scene, B).closed

    run_story(story, workers=2)


# The catalog.


def test_a_catalog_that_lost_its_end_takes_no_change() -> None:
    async def story(scene: Scene) -> None:
        catalog = scene.worker(A).catalog_owner
        await catalog.reserve_shards(1)
        lose(scene, TOPICS.catalog, 1)
        for _ in range(4):
            with pytest.raises(Unavailable, match="lost what it had acknowledged"):
                await catalog.reserve_shards(1)
        assert not catalog.is_owner
        assert isinstance((await write(scene))[0], Outcome), "shards that are open serve on"

    run_story(story)


def test_its_slot_does_not_open_again_but_in_a_worker_that_starts_anew() -> None:
    async def story(scene: Scene) -> None:
        catalog = scene.worker(A).catalog_owner
        await catalog.reserve_shards(1)
        lose(scene, TOPICS.catalog, 1)
        with pytest.raises(Unavailable):
            await catalog.reserve_shards(1)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(60):
                await reopen_slot(scene)
        assert "another one than was read" in catalog.lost
        scene.world.kill(A, 0)
        scene.world.start(A)
        await asyncio.sleep(10)
        assert scene.worker(A).catalog_owner.lost == ""
        await scene.worker(A).catalog_owner.reserve_shards(1)

    run_story(story)


def test_a_follower_opens_nothing_by_a_catalog_that_lacks_what_it_read() -> None:
    async def story(scene: Scene) -> None:
        await scene.worker(A).catalog_owner.reserve_shards(1)
        follower = scene.worker(B).catalog_owner
        await follower.prove()
        lose(scene, TOPICS.catalog, 2)
        for _ in range(3):
            with pytest.raises(Unavailable, match="lost what it had acknowledged"):
                await follower.prove()

    run_story(story, workers=2)


def test_a_catalog_of_which_a_new_leader_tells_nothing_for_a_moment_is_taken_over() -> None:
    async def story(scene: Scene) -> None:
        with silent_once(lambda log: log is scene.worker(B).catalog_owner._appender.log):
            await scene.give(B)

    run_story(story, workers=2)


def test_a_log_that_loses_its_end_while_an_unknown_outcome_is_settled_is_found_out() -> None:
    """It was read for ever, from a place behind its end; its shard took writes, answered none."""

    async def story(scene: Scene) -> None:
        log = log_of(scene, LOG)
        end = log.end
        scene.worker(A).link.fates.append(Fate.LOST_ANSWER)
        read = SimulatedLog.read
        lost: list[int] = []

        async def losing(self: SimulatedLog, offset: int, **named: Any) -> list[Entry]:
            if self.place[0] == LOG and offset == end and not lost and log.end > end:
                lost.append(log.end)
                del log.entries[end - log.start - 2 :]
            return await read(self, offset, **named)

        with patch.object(SimulatedLog, "read", losing):
            await write(scene)
            await asyncio.sleep(30)
        assert lost
        assert SHARD in slot_of(scene).closed

    run_story(story)


def test_a_shard_that_lost_its_seal_does_not_have_its_slot_opened_again_and_again() -> None:
    """As far as the rows knew its log lacked nothing: the slot was closed, all its shards with it,
    and opened again every 10 s."""

    async def story(scene: Scene) -> None:
        world = scene.world
        world.split(0, 0)
        await scene.until(lambda: SHARD in slot_of(scene)._reshapes.ended)
        await scene.until(lambda: not scene.worker(A).catalog.reshapes)
        log = log_of(scene, LOG)
        bodies = [(entry.offset, record.decode_record(entry.value)[1]) for entry in log.entries]
        seal = next(offset for offset, body in bodies if isinstance(body, record.Seal))
        world.kill(A, 0)
        del log.entries[seal - log.start :]
        world.start(A)
        await asyncio.sleep(10)
        assert SHARD in slot_of(scene).closed
        rows = slot_of(scene).rows
        for _ in range(600):
            await asyncio.sleep(0.1)
            assert slot_of(scene).rows is rows
            assert "s2" in slot_of(scene).shards

    run_story(story)
