"""A merge, or a split, of which a seal is refused for long, or not answered."""

from __future__ import annotations

import asyncio
from unittest.mock import patch

import pytest

from rowtide.core.shard.reshape import Sealed
from rowtide.stream.shard.owner import ShardOwner
from tests.simulation.program import in_world
from tests.simulation.scene import Scene
from tests.simulation.unanswering import unanswering
from tests.simulation.world import World


@pytest.mark.parametrize("kind", ["merge", "split"])
def test_shards_are_read_while_the_seal_of_a_merge_or_split_is_refused(kind: str) -> None:
    """Of a merge the one whose log takes its seal has ended, the other one, and the parent of a
    split, stay closed to reads too, for as long as the log refuses appends."""

    async def program(world: World) -> None:
        world.shared.group.tell_s_max = 0.01
        await world.begin()
        scene = Scene(world)
        await asyncio.sleep(5)
        closed = {"s1": 0, "s2": 0}
        with unanswering("s2" if kind == "merge" else "s1", refuses=True):
            if kind == "merge":
                world.merge(0, 0)
            else:
                world.split(0, 0)
            for _ in range(60):
                await asyncio.sleep(1)
                open_ = {o.shard.shard_id for o in scene.worker(0).open_shards() if o.is_open}
                for name in closed:
                    closed[name] += name not in open_
        await asyncio.sleep(30)
        await world.settle()
        assert max(closed.values()) < 20, f"closed for so many s of 60: {closed}"

    in_world(program, workers=1, slots=1)


@pytest.mark.parametrize("kind", ["merge", "split"])
def test_a_change_goes_on_whose_seal_stands_and_was_reported_late(kind: str) -> None:
    """The check that logs accept appends, before a second seal, included the sealed one."""
    seal = ShardOwner.seal

    async def program(world: World) -> None:
        world.shared.group.tell_s_max = 0.01
        await world.begin()
        scene = Scene(world)
        await asyncio.sleep(5)
        sealing = asyncio.Event()
        with unanswering("s1") as away:

            async def stop_leader_and_seal(self: ShardOwner, plan: str) -> Sealed:
                if not sealing.is_set():
                    sealing.set()
                    away.unknown = True  # The log's leader stands still from here on.
                return await seal(self, plan)

            with patch.object(ShardOwner, "seal", stop_leader_and_seal):
                (world.split if kind == "split" else world.merge)(0, 0)
                await sealing.wait()
                await asyncio.sleep(15)
                away.unknown = False
                await scene.until(lambda: not scene.worker(0).catalog.reshapes)
            await asyncio.sleep(5)
            await world.settle()

    in_world(program, workers=1, slots=1)
