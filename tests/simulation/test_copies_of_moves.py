"""Moves: all that was folded is flushed, no copy is thrown away, no former owner holds one up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from unittest.mock import patch

import pytest

from rowtide.core.protocol.plainbuffer import put_cell
from rowtide.core.rows.mutation import IGNORE, PUT, ChangeRequest
from rowtide.core.values import variant
from rowtide.core.values.errors import StoreError, Unavailable
from rowtide.stream.log.log import Entry
from rowtide.stream.shard import copy
from rowtide.stream.shard.copy import ShardCopy
from rowtide.stream.shard.owner import ShardOwner
from rowtide.stream.slot.life import StartedSlot
from rowtide.stream.slot.reshape import reshapes as slot_reshapes
from tests.simulation.memory_cluster import SimulatedLog
from tests.simulation.program import in_world
from tests.simulation.row_model import MARK
from tests.simulation.tables import PLAIN, Place
from tests.simulation.test_reshaping import until
from tests.simulation.world import World
from tests.support.waiting import until_async


class Late:
    """Reads of the child's log that wait for more take ``seconds``; one may fail."""

    def __init__(self) -> None:
        self.seconds = 0.1
        self.failing = False

    def reading(self) -> Any:
        """Return a replacement of a log's read."""
        read = SimulatedLog.read

        async def late(log: SimulatedLog, offset: int, **how: Any) -> list[Entry]:
            if ".s11" in log.name and how.get("wait_s"):
                await asyncio.sleep(self.seconds)
                if self.failing:
                    self.failing = False
                    raise Unavailable("the broker that leads it is another one")
            return await read(log, offset, **how)

        return late


async def fails() -> None:
    raise Unavailable("its life ends, another one begins")


async def flush_in_part(world: World) -> ShardOwner:
    """Return what arrives at slot 0: all of it was folded, and less was flushed."""

    def write() -> None:
        for name in "ab":
            world.clients.write(world.live()[1], Place(PLAIN, name), world.chance)

    async def write_until(holds: Callable[[], bool]) -> None:
        await until_async(holds, poll_s=0.005, meanwhile=write)

    world.network.read_bytes_max = 1
    world.move(0, 0, 0)  # Of slot 1, to slot 0.
    [slot] = world.live()[0].roster.slots.values()
    await write_until(lambda: slot.find_received("s11") > 3)
    first = slot._intakes.arriving["s11"]
    world.flush(0)
    await write_until(lambda: first.rows.find_flushed("s11") >= 3)
    flushed = first.rows.find_flushed("s11")
    await write_until(lambda: slot.find_received("s11") > flushed + 10)
    before = -1
    while before != slot.find_received("s11"):  # Then nobody writes, and all of it was folded.
        before = slot.find_received("s11")
        await asyncio.sleep(1)
    assert first.rows.find_flushed("s11") < before
    world.network.read_bytes_max = 1 << 20
    return first


@pytest.mark.parametrize("of_life", [True, False], ids=["a new life", "a failed read"])
def test_a_copy_that_opens_as_its_log_is_read_again_is_flushed_whole(of_life: bool) -> None:
    """The slot reads what it had folded beyond its flush again, to find the dirty chunks:
    after a failed read of the child's log, or in another life of the slot. Meanwhile the
    copier gets the answer that all is there, and the shard opens. The next flush wrote a
    mark above entries whose rows it did not write, and their log was trimmed.
    """
    late = Late()

    async def program(world: World) -> None:
        world.shared.group.tell_s_max = 0.01
        await world.begin()
        world.shared.group.divide({slot: w.address for slot, w in enumerate(world.live())})
        await asyncio.sleep(2)
        first = await flush_in_part(world)
        [slot] = world.live()[0].roster.slots.values()
        late.seconds, late.failing = 1.0, not of_life  # As of some megabytes that are read again.
        if of_life:
            started = slot._life.state
            assert isinstance(started, StartedSlot)
            started.tasks.create_task(fails(), context=world.live()[0].process.context)
        await until(world, lambda: slot._intakes.arriving.get("s11", first) is not first)
        slot_reshapes.LEFT_RECORDS = 3  # The rest of the move takes its course.
        await until(world, lambda: "s11" in slot.shards)
        world.flush(0)
        await asyncio.sleep(0.5)
        world.trim(0)
        await asyncio.sleep(0.5)
        await world.settle()

    never = patch.object(slot_reshapes, "LEFT_RECORDS", -1000)
    with patch.object(SimulatedLog, "read", late.reading()), never:
        in_world(program, workers=2, slots=2)


def test_a_copy_waits_for_the_other_slot_whose_worker_starts_again() -> None:
    """A copier that could not reach the other slot threw the whole copy away, and began
    another every 2 s at most while that slot had no worker.
    """
    copies = 0
    base = ShardCopy.base

    async def count_completion(self: ShardCopy) -> None:
        nonlocal copies
        copies += 1
        await base(self)

    async def program(world: World) -> None:
        world.shared.group.tell_s_max = 0.01
        await world.begin()
        world.shared.group.divide({slot: w.address for slot, w in enumerate(world.live())})
        await asyncio.sleep(2)
        for name in "abc":
            world.clients.write(world.live()[1], Place(PLAIN, name), world.chance)
        world.move(0, 0, 0)  # Of slot 1, to slot 0.
        await asyncio.sleep(1)
        assert copies == 1
        world.kill(0, 1000)
        await asyncio.sleep(1)
        world.start(0)
        await asyncio.sleep(5)
        slot_reshapes.LEFT_RECORDS = 3
        await asyncio.sleep(20)
        assert world.owner("s1") is None, "it was moved"
        await world.settle()
        assert copies == 1, f"{copies} copies"

    never = patch.object(slot_reshapes, "LEFT_RECORDS", -1000)
    with patch.object(ShardCopy, "base", count_completion), never:
        in_world(program, workers=2, slots=2)


def test_a_move_goes_on_where_a_former_owner_begins_its_copy_once_more() -> None:
    """A former owner of the parent's slot was paused. It requests a copy after its
    successor has begun one, and dies. The successor waits for ever for the progress of a
    child that is not planned.
    """

    async def program(world: World) -> None:
        world.shared.group.tell_s_max = 0.01
        await world.begin()
        world.shared.group.divide({slot: w.address for slot, w in enumerate(world.live())})
        await asyncio.sleep(2)

        slot = world.live()[1].roster.slots[1]
        before = slot.claim
        started = slot._life.state
        assert isinstance(started, StartedSlot)
        started.tasks.create_task(fails(), context=world.live()[1].process.context)
        await asyncio.sleep(3)
        assert slot.claim > before
        for name in "abc":
            place, cells = Place(PLAIN, name), [put_cell(MARK, variant.encode(name), None)]
            asked = ChangeRequest(PUT, place.key, cells, IGNORE)
            world.clients.ask(world.live()[1], place, asked, name)
        world.move(0, 0, 0)  # Of slot 1, to slot 0.
        await asyncio.sleep(2)
        links = world.live()[1].reshapes
        [change] = world.live()[1].catalog.reshapes.values()
        assert change.copier == slot.claim
        asking = links.begin_copy(change, before)  # As who had the slot under the claim before.
        late = world.live()[1].tasks.create_task(
            _ignore_errors(asking), context=world.live()[1].process.context
        )
        await asyncio.sleep(5)
        assert late.done()
        slot_reshapes.LEFT_RECORDS = 3
        await asyncio.sleep(300)
        assert world.owner("s1") is None, "it is not moved after five minutes"
        await world.settle()

    never = patch.object(slot_reshapes, "LEFT_RECORDS", -1000)
    with never, patch.object(copy, "COPY_BYTES", 1):  # More records than may be left.
        in_world(program, workers=2, slots=2)


async def _ignore_errors(asking: Any) -> None:
    with suppress(StoreError):
        await asking
