"""A worker that cannot open its rows leaves the slot to others until it can; one that can
keeps it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any
from unittest.mock import patch

import pytest

from rowtide.core.rows.mutation import PUT, UPDATE
from rowtide.core.values.errors import Unavailable
from rowtide.stream.cluster.handover import ASK_S_MAX
from rowtide.stream.shard.row_store import RowStore, StoreDamaged, StoreFailed
from rowtide.stream.slot.opening.openings import PATIENCE_S
from rowtide.stream.slot.slot import BACKOFF_S, BACKOFF_S_MAX, Slot
from rowtide.stream.slot.standby.standby import ROUND_S
from rowtide.stream.slot.standby.standby_shard import StandbyShard
from tests.simulation.memory_rows import Disk, MemoryRows
from tests.simulation.scene import Scene, play
from tests.simulation.simulated_worker import LEASE_S

A, B = 0, 1
STEPS_S = 3.0
"""Enough for the order of the workers that take over, and for an opening."""
READY_S = 8.0
UNREADABLE = b"r\xff"
"""A key that represents an unreadable part of the rows."""


def slot_at(scene: Scene, number: int) -> Slot:
    return scene.worker(number).roster.slots[0]


@asynccontextmanager
async def failing_disk(scene: Scene, number: int) -> AsyncIterator[Disk]:
    """Let a worker's disk take nothing for a while, of which its slot learns by a write."""
    disk = scene.worker(number).machine.disks[0]
    disk.failing = True
    scene.ask(number, PUT)
    yield disk
    disk.failing = False


def test_a_slot_whose_rows_do_not_open_is_taken_over_and_comes_back_when_they_do() -> None:
    async def story(scene: Scene) -> None:
        await scene.write(A)
        async with failing_disk(scene, A):
            async with asyncio.timeout(LEASE_S + STEPS_S):
                await scene.until(lambda: scene.serves(B))
            slot = slot_at(scene, A)
            assert slot.is_served_elsewhere()
            assert "IO error" in str(slot.openings.failure)
            await scene.write(B)
            await scene.watch(60)
            assert scene.serves(B), "it was not asked for while it could not be served"
        async with asyncio.timeout(BACKOFF_S_MAX + STEPS_S):
            await scene.until(lambda: scene.serves(A))
        await scene.until(lambda: slot_at(scene, A).openings.failure is None)
        assert 0 not in scene.worker(B).roster.slots
        await scene.write(A)

    play(story)


def test_a_worker_that_starts_waits_for_no_slot_that_another_one_serves_in_its_stead() -> None:
    """One slot did not open on its disk, and the worker accepted no client for any other,
    for ever.
    """

    async def story(scene: Scene) -> None:
        await scene.write(A)
        async with failing_disk(scene, A):
            slot, roster = slot_at(scene, A), scene.worker(A).roster
            await scene.until(lambda: slot.openings.failure is not None)
            opened = scene.begin(A, roster.wait_until_open())
            while not slot.is_served_elsewhere():
                assert not opened.done()
                await scene.watch(0.02)
            await scene.until(opened.done)
            assert not slot.opened.is_set()
        await scene.until(lambda: scene.serves(A))

    play(story)


def test_a_slot_whose_rows_are_rebuilt_is_taken_over_meanwhile() -> None:
    async def story(scene: Scene) -> None:
        slot = slot_at(scene, A)
        read_changelog = slot._read_changelog

        async def slow(rows: RowStore) -> None:
            await asyncio.sleep(60)
            await read_changelog(rows)

        await scene.write(A)
        with patch.object(slot, "_read_changelog", slow):
            async with failing_disk(scene, A) as disk:
                await scene.until(lambda: slot.openings.failure is not None)
                disk.kept, disk.unsynced = {}, []
            async with asyncio.timeout(LEASE_S + STEPS_S):
                await scene.until(lambda: scene.serves(B))
            await scene.write(B)
        await scene.watch(60)
        await scene.until(lambda: scene.serves(A))

    play(story)


def test_a_worker_alone_goes_on_trying() -> None:
    async def story(scene: Scene) -> None:
        async with failing_disk(scene, A):
            await scene.watch(60)
            slot = slot_at(scene, A)
            assert not slot.is_served_elsewhere()
            assert slot.openings.why == "its rows cannot be opened or written"
        await scene.until(lambda: scene.serves(A))

    play(story, workers=1)


def fail_reads_of(disk: Disk) -> Callable[..., Iterator[tuple[bytes, bytes]]]:
    """Return what reads entries in the place of ``MemoryRows.items``, and meets the unreadable."""
    items = MemoryRows.items

    def read(self: MemoryRows, **where: Any) -> Iterator[tuple[bytes, bytes]]:
        if self.disk is disk and UNREADABLE in disk.kept and where["from_key"][:1] == b"r":
            self.damaged = "not every entry can be read"
            raise StoreDamaged(self.damaged)
        return items(self, **where)

    return read


def test_rows_that_cannot_be_read_while_their_slot_opens_are_rebuilt() -> None:
    """They were opened again for ever."""

    async def story(scene: Scene) -> None:
        await scene.write(A)
        await scene.flush(A)
        await scene.write(A)
        disk = scene.worker(A).machine.disks[0]
        scene.world.kill(A, 1_000_000)
        disk.kept[UNREADABLE] = b""
        with patch.object(MemoryRows, "items", fail_reads_of(disk)):
            scene.world.start(A)
            await scene.until(lambda: scene.serves(A))
        await scene.write(A)

    play(story, workers=1)


@pytest.mark.parametrize("kind", [PUT, UPDATE])
def test_a_copy_of_which_a_part_cannot_be_read_is_rebuilt(kind: int) -> None:
    async def story(scene: Scene) -> None:
        await scene.write(A)
        disks = scene.worker(B).machine.disks
        await scene.until(lambda: bool(list(scene.worker(B).list_copied_shards())))
        scene.world.kill(B, 1_000_000)
        disks[0].kept[UNREADABLE] = b""
        with patch.object(MemoryRows, "items", fail_reads_of(disks[0])):
            await scene.write(A, kind)
            await scene.flush(A)
            with patch.object(scene.world, "check"):  # It reads the copy, too.
                scene.world.start(B)
                await scene.until(lambda: UNREADABLE not in disks[0].kept)
        await scene.until(lambda: any(not c.lag for c in scene.worker(B).list_copied_shards()))

    play(story, copies=True)


def test_a_copy_is_rebuilt_of_which_a_reader_alone_met_what_cannot_be_read() -> None:
    async def story(scene: Scene) -> None:
        await scene.write(A)
        await scene.until(lambda: bool(list(scene.worker(B).list_copied_shards())))
        disk = scene.worker(B).machine.disks[0]
        rows = scene.worker(B).roster.standbys[0].rows
        assert rows is not None
        disk.kept[UNREADABLE] = b""
        with (
            patch.object(MemoryRows, "items", fail_reads_of(disk)),
            patch.object(scene.world, "check"),
        ):
            with pytest.raises(StoreDamaged):
                rows.scan(b"r", b"s")
            async with asyncio.timeout(2 * ROUND_S):
                await scene.until(lambda: UNREADABLE not in disk.kept)
        await scene.until(lambda: any(not c.lag for c in scene.worker(B).list_copied_shards()))

    play(story, copies=True)


def too_many_files(_key: bytes) -> bytes | None:
    raise StoreFailed("IO error: Too many open files")


def test_a_copy_that_cannot_read_where_a_new_shard_is_begins_again_and_its_worker_lives() -> None:
    """The catalog is followed by one task, and with it the worker ended."""

    async def story(scene: Scene) -> None:
        await scene.write(A)
        worker = scene.worker(B)
        await scene.until(lambda: bool(list(worker.list_copied_shards())))
        rows = worker.roster.standbys[0].rows
        with patch.object(rows, "get", too_many_files), patch.object(scene.world, "check"):
            scene.world.split(0, 1)
            await scene.until(lambda: any(s.parents for _, s in worker.catalog.shards.values()))
            await scene.until(lambda: worker.roster.standbys[0].rows is not rows)
        living = {s.shard_id for _, s in worker.catalog.shards.values() if not s.sealed_us}
        await scene.until(lambda: {c.place.shard_id for c in worker.list_copied_shards()} >= living)

    play(story, copies=True)


def test_a_copy_that_waits_for_its_logs_meanwhile_begins_again_at_once() -> None:
    """None of them is followed any more: nothing that it waits for comes."""

    async def story(scene: Scene) -> None:
        await scene.write(A)
        worker = scene.worker(B)
        await scene.until(lambda: bool(list(worker.list_copied_shards())))
        standby = worker.roster.standbys[0]
        rows = standby.rows
        asked: list[float] = []

        def behind(_self: StandbyShard, asked_s: float) -> bool:
            asked.append(asked_s)
            return False

        with (
            patch.object(scene.world, "check"),
            patch.object(StandbyShard, "has_read_since", behind),
        ):
            await scene.write(A)
            await scene.until(lambda: bool(asked))
            with patch.object(rows, "get", too_many_files):
                scene.world.split(0, 1)
                await scene.until(lambda: any(s.parents for _, s in worker.catalog.shards.values()))
                async with asyncio.timeout(ROUND_S):
                    await scene.until(lambda: standby.rows is not rows)

    play(story, copies=True)


def test_a_slot_whose_next_opening_succeeds_stays_where_it_is() -> None:
    async def story(scene: Scene) -> None:
        claim = slot_at(scene, A).claim
        async with failing_disk(scene, A):
            await scene.until(lambda: slot_at(scene, A).openings.failure is not None)
            await scene.watch(BACKOFF_S / 2)
        await scene.until(lambda: scene.serves(A))
        await scene.watch(60)
        assert scene.serves(A)
        assert slot_at(scene, A).claim > claim
        assert 0 not in scene.worker(B).roster.slots

    play(story)


@pytest.mark.parametrize(("failing_s", "moves"), [(PATIENCE_S / 2, False), (PATIENCE_S * 2, True)])
def test_what_fails_in_kafka_is_tried_for_a_while_before_the_slot_goes(
    failing_s: float, *, moves: bool
) -> None:
    async def refuse() -> None:
        raise Unavailable("the coordinator of transactions is away")

    async def story(scene: Scene) -> None:
        changelog = slot_at(scene, A)._changelog
        moved = False
        with patch.object(changelog, "fence", refuse):
            async with failing_disk(scene, A):
                await scene.until(lambda: slot_at(scene, A).openings.failure is not None)
            for _ in range(int(failing_s)):
                await scene.watch(1.0)
                moved |= scene.serves(B)
        await scene.until(lambda: scene.serves(A))
        assert moved == moves

    play(story)


def test_who_adopted_a_slot_lets_it_be_when_its_worker_comes_first() -> None:
    """It was not ready yet; a later claim all the same would stop the serving worker."""

    async def slow(_slot: int) -> None:
        await asyncio.sleep(READY_S)

    async def story(scene: Scene) -> None:
        with patch.object(scene.worker(B).leases.others, "wait_until_read", slow):
            async with failing_disk(scene, A):
                await scene.until(lambda: 0 in scene.worker(B).roster.slots)
            await scene.until(lambda: scene.serves(A))
            claim = slot_at(scene, A).claim
            await scene.watch(READY_S + 2 * ASK_S_MAX)
        assert slot_at(scene, A).claim == claim
        assert 0 not in scene.worker(B).roster.slots

    play(story)
