"""Moves beside sweeps and flushes, open transactions, and copies that were given up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from unittest.mock import PropertyMock, patch

from rowtide.core.protocol.plainbuffer import put_cell
from rowtide.core.rows.mutation import IGNORE, PUT, ChangeRequest
from rowtide.core.values import variant
from rowtide.core.values.errors import Unavailable
from rowtide.stream.shard.copy import ShardCopy
from rowtide.stream.shard.open_transactions import OpenTransactions
from rowtide.stream.slot.failures import StoreBehind
from rowtide.stream.slot.life import StartedSlot
from rowtide.stream.slot.reshape import reshapes
from rowtide.stream.slot.reshape.reshapes import LEFT_ENTRIES
from rowtide.stream.slot.slot import Slot
from tests.simulation.environment import SimulatedSlot
from tests.simulation.program import in_world
from tests.simulation.row_model import MARK
from tests.simulation.tables import PLAIN, Place
from tests.simulation.world import World

NEVER_LITTLE = -1000
"""As ``LEFT_RECORDS``: a move is never near enough to its end."""

LOOK_S = 0.01


async def holds(what: Callable[[], object], within_s: float = 60.0) -> None:
    for _ in range(int(within_s / LOOK_S)):
        if what():
            return
        await asyncio.sleep(LOOK_S)
    raise AssertionError(f"not within {within_s} s")


def is_open(world: World, *names: str) -> bool:
    owners = (owner for worker in world.live() for owner in worker.open_shards())
    return any(owner.shard.shard_id in names and owner.is_open for owner in owners)


async def begin(world: World) -> None:
    world.shared.group.tell_s_max = 0.01
    await world.begin()
    await asyncio.sleep(2)
    for name in "abcdef":
        world.clients.write(world.live()[0], Place(PLAIN, name), world.chance)
    await asyncio.sleep(1)


def test_a_moved_shard_opens_while_a_sweep_waits_for_a_flush() -> None:
    """A sweep of what had left the slot held up what came: for minutes, where a flush was large."""

    async def program(world: World) -> None:
        await begin(world)
        slot = world.live()[0].roster.slots[0]
        world.move(0, 1, 1)  # s2 leaves: what it had is to be swept.
        await holds(lambda: is_open(world, "s11"))
        with patch.object(reshapes, "LEFT_RECORDS", NEVER_LITTLE):
            world.move(0, 0, 0)  # s1 comes.
            await holds(lambda: slot.find_received("s12") >= 0)
            flushing = slot._changelog._writing
            await flushing.acquire()
            slot._upkeep.sweep.request()
            await asyncio.sleep(1)
        closed_s = 0.0
        for _ in range(100):
            await asyncio.sleep(0.1)
            closed_s += 0.0 if is_open(world, "s1", "s12") else 0.1
        flushing.release()
        await holds(lambda: is_open(world, "s12"))
        assert closed_s < 1.0

    in_world(program, workers=1, slots=2)


def test_a_move_leaves_little_to_be_copied_behind_its_seal_where_it_waited_for_transactions() -> (
    None
):
    """Writes in the seconds for which it waited were copied while no worker had the shard."""
    left: list[int] = []
    complete = ShardCopy.complete

    async def count_rows(self: ShardCopy) -> None:
        left.append(len(self._written))
        await complete(self)

    async def program(world: World) -> None:
        await begin(world)
        [owner] = [o for o in world.live()[0].open_shards() if o.shard.shard_id == "s2"]
        world.move(0, 1, 1)
        number = 0
        while not left:
            for _ in range(20):
                number += 1
                key = [(b"name", variant.encode("e")), (b"number", variant.encode(number))]
                change = ChangeRequest(
                    PUT, key, [put_cell(MARK, variant.encode("m"), None)], IGNORE
                )
                if owner.is_open:
                    owner.submit(change, lambda _result: None)
            await asyncio.sleep(0.02)
            assert number < 40_000
        assert left[0] <= LEFT_ENTRIES
        assert number > 10 * LEFT_ENTRIES

    transactions = patch.object(
        OpenTransactions, "count", new_callable=PropertyMock, return_value=1
    )
    with patch.object(ShardCopy, "complete", count_rows), transactions:
        in_world(program, workers=1, slots=2)


def test_rows_are_kept_where_the_slot_itself_made_room_for_a_copy_that_began_again() -> None:
    """The next life of the slot took them for rows without room, and read everything."""
    thrown_away: list[str] = []
    base, behind = ShardCopy.base, Slot._behind

    def note_reason(self: SimulatedSlot, why: str) -> StoreBehind:
        thrown_away.append(why)
        return behind(self, why)

    async def program(world: World) -> None:
        await begin(world)
        worker = world.live()[0]
        failures = [Unavailable("the former copy is given up")]

        async def fails(self: ShardCopy) -> None:
            await base(self)
            if failures:
                await asyncio.sleep(2)
                raise failures.pop()

        with patch.object(ShardCopy, "base", fails):
            world.move(0, 1, 1)
            await holds(lambda: is_open(world, "s12"))
        await asyncio.sleep(15)  # All is flushed.
        slot = worker.roster.slots[1]

        async def dies() -> None:
            raise Unavailable("its life ends, another one begins")

        started = slot._life.state
        assert isinstance(started, StartedSlot)
        worker.process.context.run(started.tasks.create_task, dies())
        await asyncio.sleep(5)
        await holds(lambda: is_open(world, "s12"))
        assert not thrown_away

    with patch.object(SimulatedSlot, "_behind", note_reason):
        in_world(program, workers=1, slots=2)
