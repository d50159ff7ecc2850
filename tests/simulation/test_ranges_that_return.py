"""A range that left a slot and came back, while the shard that it was there is not read yet."""

from __future__ import annotations

import asyncio
from unittest.mock import patch

from rowtide.core.protocol.plainbuffer import put_cell
from rowtide.core.rows.mutation import DELETE, IGNORE, PUT, ChangeRequest
from rowtide.core.values import variant
from rowtide.stream.slot.changelog.slot_flush import SlotFlush
from tests.simulation.program import in_world
from tests.simulation.row_model import MARK
from tests.simulation.tables import PLAIN, Place
from tests.simulation.unanswering import unanswering
from tests.simulation.world import World

GONE = Place(PLAIN, "a")


def test_a_deleted_row_stays_away_where_a_former_shard_of_its_keys_is_read_later() -> None:
    """s1 (slot 1) has the row, unflushed, and moves to slot 0 as s11. There the row is deleted and
    buried. It moves back as s12. Another worker takes slot 1 over while the log of s1 does not
    answer: s12 opens, for its parent s11 is of another slot. Then s1 is read, with the row."""
    wait_for_flush = SlotFlush.wait

    async def seldom(self: SlotFlush) -> None:
        if self.number == 1:  # As where a flush fails, or takes up to its 15 minutes.
            await asyncio.Event().wait()
        await wait_for_flush(self)

    async def program(world: World) -> None:
        world.shared.group.tell_s_max = 0.01
        await world.begin()
        world.shared.group.divide({slot: w.address for slot, w in enumerate(world.live())})
        await asyncio.sleep(2)

        async def write(number: int, change: ChangeRequest, mark: str | None) -> None:
            attempt = world.clients.ask(world.live()[number], GONE, change, mark)
            await world.until(lambda: attempt.result is not None, s_max=120)
            assert attempt.applied

        cells = [put_cell(MARK, variant.encode("old"), None)]
        await write(1, ChangeRequest(PUT, GONE.key, cells, IGNORE), "old")
        world.move(0, 0, 0)
        await world.until(lambda: world.owner("s11") is not None, s_max=120)
        await write(0, ChangeRequest(DELETE, GONE.key, [], IGNORE), None)
        for _ in range(3):  # The second buries it.
            world.flush(0)
            await asyncio.sleep(1)
        world.move(0, 0, 1)
        await world.until(lambda: world.owner("s12") is not None, s_max=120)
        with unanswering("s1", bounds=True) as away:
            world.kill(1, 0)
            await world.until(lambda: world.owner("s12") is not None, s_max=120)
            await asyncio.sleep(1)
            slot = world.live()[0].roster.slots[1]
            assert "s1" in slot._reshapes.unread
            world.check()
            away.bounds = False
            for _ in range(3000):
                world.check()
                await asyncio.sleep(0.01)
        await world.settle()

    with patch.object(SlotFlush, "wait", seldom):
        in_world(program, workers=2, slots=2)
