"""What was known before a wait, and is old after it: stories of slots that are taken over."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest.mock import patch

from rowtide.core.protocol.wire import ots_pb2 as pb
from rowtide.core.protocol.worker_messages import RangePartRequest
from rowtide.core.rows.chunk import row_key
from rowtide.core.rows.mutation import DELETE, IGNORE, PUT, ChangeRequest
from rowtide.core.values import key, variant
from rowtide.core.values.errors import Unavailable
from rowtide.stream.shard.copy import ShardCopy
from rowtide.stream.slot.reshape.reshapes import SlotReshapes
from tests.simulation.group import Hop
from tests.simulation.program import in_world
from tests.simulation.requests import ask, rows_of, wire_key
from tests.simulation.scene import Scene
from tests.simulation.tables import PLAIN, Place
from tests.simulation.world import World

A, B = 0, 1


async def divide_slots(world: World) -> None:
    """Let the first worker have slot 0, the second one slot 1 with the first shard."""
    world.shared.group.tell_s_max = 0.01
    await world.begin()
    first, second = world.live()[:2]
    world.shared.group.divide({0: first.address, 1: second.address})
    await asyncio.sleep(2)


async def write_rows(world: World) -> None:
    """Write some rows by the second worker."""
    for name in "abc":
        world.clients.write(world.live()[1], Place(PLAIN, name), world.chance)
    await asyncio.sleep(1)


def test_a_store_that_has_not_seen_a_copy_come_is_thrown_away_while_that_still_comes() -> None:
    """A former owner of the slot had made room for the copy, and flushed a part of it.
    The next owner found it marked, and made no room. A row that was in its store only,
    from long before, was there again once the copy was complete.
    """
    kept = row_key(1, key.encode([variant.encode("aa"), variant.encode(1)]))
    copied = asyncio.Event()

    async def slow(*_of: Any) -> None:
        await copied.wait()

    async def program(world: World) -> None:
        await divide_slots(world)
        await write_rows(world)
        first, second, third = world.live()
        [slot] = first.roster.slots.values()
        await slot.flush()
        world.machines[0].disks[0].sync()
        left = world.machines[2].disks[0] = world.machines[0].disks[0].copy()
        [(_, owner)] = [found for found in [world.owner("s1")] if found]
        left.kept[kept] = next(value for _, value in owner.rows.scan(b"r", b"s"))
        world.move(0, 0, 0)  # Of slot 1, to slot 0.
        await world.until(lambda: slot.find_received("s11") > 0)
        world.flush(0)
        await world.until(lambda: slot.rows is not None and slot.rows.find_flushed("s11") > 0)
        world.shared.group.divide({0: third.address, 1: second.address})
        await world.until(lambda: 0 in third.roster.slots and third.roster.slots[0].opened.is_set())
        copied.set()
        await world.until(lambda: world.owner("s11") is not None)
        rows = third.roster.slots[0].rows
        assert rows is not None
        assert rows.get(kept) is None
        await world.settle()

    with patch.object(SlotReshapes, "_catch_up", slow):
        in_world(program, workers=3, slots=2)


def test_a_row_deleted_while_it_was_copied_is_deleted_for_who_had_a_part_of_the_copy() -> None:
    """A worker was killed with a part of a copy. The rest had a delete, of which the changelog kept
    the tombstone alone. It was passed over, as of a time before the copy, and the shard's mark, by
    which the rest is here, was taken: the row was there again."""
    copied, deleted = ShardCopy.delta, asyncio.Event()

    async def hold_copy(self: ShardCopy) -> int:
        await deleted.wait()
        return await copied(self)

    async def program(world: World) -> None:
        await divide_slots(world)
        scene = Scene(world)
        await scene.write(B)
        world.move(0, 0, 0)  # Of slot 1, to slot 0.
        slot = scene.worker(A).roster.slots[0]
        await world.until(lambda: slot.find_received("s11") >= 1)
        assert slot.rows is not None
        assert slot.rows.find_flushed("s11") < 0
        await scene.write(B, DELETE)
        world.kill(A, 1000)
        other = scene.worker(B)
        world.shared.group.divide({0: other.address, 1: other.address})
        slots = other.roster.slots
        await world.until(lambda: 0 in slots and slots[0].find_received("s11") >= 1)
        deleted.set()
        await world.until(lambda: world.owner("s11") is not None)
        for _ in range(3):
            world.flush(B)
            await scene.watch(1)
        world.compact(10)
        world.start(A)
        await scene.watch(1)
        world.shared.group.divide({0: scene.worker(A).address, 1: other.address})
        await world.until(
            lambda: any(o.shard.shard_id == "s11" for o in scene.worker(A).open_shards())
        )
        await scene.watch(1)
        await world.settle()

    with patch.object(ShardCopy, "delta", hold_copy):
        in_world(program, workers=2, slots=2)


def test_a_range_is_not_answered_by_a_worker_whose_shards_are_others_by_now() -> None:
    """A worker divided a range, and the shard of one part was split before that part was asked for.
    Who has the children knows no such shard: an answer without rows would leave all of them out."""
    call = Hop.ask
    may_ask, asked = asyncio.Event(), asyncio.Event()

    async def late(self: Hop, address: str, identity: Any, operation: str, body: bytes) -> bytes:
        if operation == RangePartRequest.operation:
            asked.set()
            await may_ask.wait()
        return await call(self, address, identity, operation, body)

    async def program(world: World) -> None:
        await divide_slots(world)
        first, second = world.live()
        for place in (Place(PLAIN, name) for name in "def"):
            change = ChangeRequest(PUT, place.key, [], IGNORE)
            world.clients.ask(first, place, change, None)
        await asyncio.sleep(1)
        request = pb.GetRangeRequest(
            table_name=PLAIN,
            direction=pb.FORWARD,
            max_versions=1,
            inclusive_start_primary_key=wire_key(*(variant.V_INF_MIN,) * 2),
            exclusive_end_primary_key=wire_key(*(variant.V_INF_MAX,) * 2),
        )
        divided = ask(world.clients, second, "GetRange", request)
        await world.until(asked.is_set)
        world.split(0, 3)  # At row "e": shard s2 becomes two.
        await world.until(lambda: world.owner("s12") is not None)
        may_ask.set()
        assert isinstance(await divided, Unavailable)
        found = await ask(world.clients, second, "GetRange", request)
        assert isinstance(found, bytes)
        assert list(rows_of(pb.GetRangeResponse.FromString(found).rows)) == ["d", "e", "f"]
        await world.settle()

    with patch.object(Hop, "ask", late):
        in_world(program, workers=2, slots=2)
