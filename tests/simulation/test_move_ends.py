"""The end of a move, where the shard is closed: what is refused there costs no second copy."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from unittest.mock import patch

import pytest

from rowtide.core.shard.reshape import Sealed
from rowtide.core.values.errors import Unavailable
from rowtide.stream.shard.copy import ShardCopy
from rowtide.stream.shard.owner import ShardOwner
from tests.simulation.network import Fate
from tests.simulation.program import in_world
from tests.simulation.world import World

COPY_S = 60.0
"""As of a shard of some gigabytes."""
LOOK_S = 0.1
CLOSED_S_MAX = 5.0
OPENING_S = 10.0
"""So long an opening waits for the answer to its append."""
SHARD, MOVED = "s2", 10
"""The shard that is moved; numbers of what takes its place begin there."""


@dataclass
class Watched:
    """The effects of a move: how many copies it began, how long no worker had the shard open."""

    copies: int = 0
    closed_s: float = 0.0
    opened_again: bool = False
    seals: int = 0
    fates: list[Fate] = field(default_factory=list)


@contextmanager
def slow_move(watched: Watched, world: World, *, seals_refused: int = 0) -> Iterator[None]:
    """Let copies take long, the last appends meet ``fates``, and seals be refused at first."""
    base, complete, seal = ShardCopy.base, ShardCopy.complete, ShardOwner.seal

    async def slow(self: ShardCopy) -> None:
        watched.copies += 1
        await asyncio.sleep(COPY_S)
        await base(self)

    async def complete_under_fates(self: ShardCopy) -> None:
        world.live()[0].link.fates.extend(watched.fates)
        watched.fates.clear()
        await complete(self)

    async def refuse_seals(self: ShardOwner, plan: str) -> Sealed:
        watched.seals += 1
        if watched.seals > seals_refused:
            return await seal(self, plan)
        await self.drain()
        raise Unavailable("the seal is refused")

    with (
        patch.object(ShardCopy, "base", slow),
        patch.object(ShardCopy, "complete", complete_under_fates),
        patch.object(ShardOwner, "seal", refuse_seals),
    ):
        yield


def move_shard(watched: Watched, *, seals_refused: int = 0) -> None:
    """Move a shard, and look all the time whether it is open."""

    async def program(world: World) -> None:
        world.shared.group.tell_s_max = 0.01
        await world.begin()
        await asyncio.sleep(2)
        with slow_move(watched, world, seals_refused=seals_refused):
            world.move(0, 1, 1)
            for _ in range(int(3 * COPY_S / LOOK_S)):
                await asyncio.sleep(LOOK_S)
                [worker] = world.live()
                names = [owner.shard.shard_id for owner in worker.open_shards() if owner.is_open]
                if any(int(name[1:]) >= MOVED for name in names):
                    return
                watched.opened_again |= bool(watched.seals) and SHARD in names
                watched.closed_s += 0 if SHARD in names else LOOK_S
        raise AssertionError("it was not moved")

    in_world(program, workers=1, slots=2)


@pytest.mark.parametrize(
    "fates",
    [
        [Fate.REFUSED],
        [Fate.LOST_REQUEST],
        [Fate.LOST_ANSWER],
        [Fate.DELAYED, Fate.REFUSED],
        [Fate.DONE, Fate.DELAYED],
        [Fate.DONE, Fate.DOUBLED],
        [Fate.REFUSED] * 10,
    ],
)
def test_an_append_that_meets_a_fault_at_the_end_of_a_move_costs_no_second_copy(
    fates: list[Fate],
) -> None:
    watched = Watched(fates=[*fates])
    move_shard(watched)
    assert not watched.fates, "they were met"
    assert watched.copies == 1
    # A late append may be that of the opening, in the other slot, of what takes its place.
    late_s = OPENING_S * fates[1:].count(Fate.DELAYED)
    assert watched.closed_s < CLOSED_S_MAX + 1.0 * fates.count(Fate.REFUSED) + late_s


def test_a_shard_that_cannot_be_sealed_is_served_and_its_copy_goes_on() -> None:
    watched = Watched()
    move_shard(watched, seals_refused=3)
    assert watched.copies == 1
    assert watched.opened_again
    assert watched.closed_s < CLOSED_S_MAX


def test_a_shard_that_is_never_sealed_is_served_while_it_is_copied_anew() -> None:
    watched = Watched()
    move_shard(watched, seals_refused=12)
    assert watched.copies == 2
    assert watched.opened_again
    assert watched.closed_s < CLOSED_S_MAX
