"""Moves that meet a former owner of their slot, or a slot that does not open."""

from __future__ import annotations

import asyncio
from unittest.mock import patch

from rowtide.core.values.errors import Unavailable
from rowtide.stream.shard import copy as copying
from rowtide.stream.shard.copy import ShardCopy
from rowtide.stream.shard.row_store import RowStore
from rowtide.stream.slot.life import StartedSlot
from rowtide.stream.slot.slot import Slot
from tests.simulation.program import in_world
from tests.simulation.tables import INSTANCE, PLAIN
from tests.simulation.test_reshaping import CATALOG, PARENTS, begin, until
from tests.simulation.world import World

STOPPED_S = 6.0
COPY_S = 8.0
"""So long a copy takes: as of a shard of some gigabytes."""
MOVED_S = 60.0


def test_a_move_goes_on_though_a_former_owner_of_its_slot_hears_of_it_late() -> None:
    """The parents' owner is stopped while the move is planned; another one takes the slot
    over and copies. The first continues, reads the plan before the later claim, and
    begins a copy. The plan names its shard from then on, and its successor waits for ever
    for another.
    """

    async def program(world: World) -> None:
        await begin(world)
        base = ShardCopy.base

        async def slow(self: ShardCopy) -> None:
            await base(self)
            await asyncio.sleep(COPY_S)

        with patch.object(ShardCopy, "base", slow), patch.object(copying, "COPY_BYTES", 1):
            for _ in range(5):
                world.write(0, 6)
                await asyncio.sleep(0.2)
            world.pause(PARENTS, int(STOPPED_S * 1000))
            await asyncio.sleep(0.1)
            world.move(0, 1, 0)
            loop = asyncio.get_running_loop()
            until_s = loop.time() + MOVED_S
            worker = world.worker(CATALOG)
            assert worker is not None
            seen: list[str] = []
            closed_s = 0.0
            while loop.time() < until_s:
                await asyncio.sleep(0.05)
                plans = worker.catalog.reshapes
                if len(seen) > 2 and plans:  # It was taken over, and is copied.
                    [change] = plans.values()
                    found = world.owner(change.id)
                    closed_s += 0.0 if found is not None and found[1].is_open else 0.05
                text = "; ".join(f"{p.children[0].shard_id} by {p.copier}" for p in plans.values())
                if not seen or seen[-1] != text:
                    seen.append(text)
                slots = {s.shard_id: s.slot for s in worker.catalog.tables[INSTANCE, PLAIN].shards}
                if slots and list(slots.values()).count(0) and not plans and len(seen) > 1:
                    assert closed_s < 2.0, f"closed for {closed_s:.1f} s: {seen}"
                    return
            raise AssertionError(f"it is not moved in {MOVED_S} s: {seen}")

    in_world(program, workers=3, slots=2)


def test_a_small_shard_is_served_while_the_slot_to_which_it_moves_does_not_open() -> None:
    """It was sealed, and no worker had it until the other slot opened."""

    async def program(world: World) -> None:
        world.shared.group.tell_s_max = 0.01
        await world.begin()
        await asyncio.sleep(2)
        read = Slot._read_changelog

        async def slow(self: Slot, rows: RowStore) -> None:
            await read(self, rows)
            if self.number == 2 and not self.is_foreign:
                await asyncio.sleep(40)

        [worker] = world.live()
        with patch.object(Slot, "_read_changelog", slow):
            slot = worker.roster.slots[2]
            started = slot._life.state
            assert isinstance(started, StartedSlot)

            async def fails() -> None:
                raise Unavailable("its life ends, another one begins")

            worker.process.context.run(started.tasks.create_task, fails())
            await until(world, lambda: not slot.opened.is_set() and not slot.is_foreign)
            shard = next(s for s in worker.catalog.tables[INSTANCE, PLAIN].shards if s.slot != 2)
            which = [s.shard_id for s in worker.catalog.tables[INSTANCE, PLAIN].shards].index(
                shard.shard_id
            )
            assert shard.shard_id in {o.shard.shard_id for o in worker.open_shards() if o.is_open}
            world.move(0, which, 2)
            closed_s = 0.0
            for _ in range(300):
                await asyncio.sleep(0.1)
                shards = worker.catalog.tables[INSTANCE, PLAIN].shards
                [now] = [s for s in shards if s.begin == shard.begin]
                names = {o.shard.shard_id for o in worker.open_shards() if o.is_open}
                closed_s += 0 if now.shard_id in names else 0.1
            assert closed_s < 1.0, f"nobody had it for {closed_s:.1f} s"

    in_world(program, workers=1, slots=3)
