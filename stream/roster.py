"""The slots this worker runs: opened when the group gives them, drained when it takes them.

Each slot has one keeper task, so a slot that is taken away and given back while it still drains is
opened again after that, and two lives of one slot never overlap. Calls come from the event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from rowtide.stream.slot import Slot

__all__ = ["Roster"]

logger = logging.getLogger(__name__)

DRAIN_S = 10.0
"""A slot that has not answered, flushed and released by then is stopped all the same."""


@dataclass(slots=True)
class Place:
    """Whether a slot is ours. ``revoked`` is set from a revocation until the slot has ended."""

    wanted: asyncio.Event = field(default_factory=asyncio.Event)
    revoked: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class Roster:
    """Slots by number while they run. ``new_slot`` makes one for each of its lives."""

    def __init__(self, new_slot: Callable[[int], Slot], tasks: asyncio.TaskGroup) -> None:
        self.slots: dict[int, Slot] = {}
        self._new_slot = new_slot
        self._tasks = tasks
        self._places: dict[int, Place] = {}
        self._adopted: set[int] = set()
        self._keepers: list[asyncio.Task[None]] = []
        self._stopping = False

    def assign(self, numbers: frozenset[int]) -> None:
        """Run these slots from now on."""
        if self._stopping:
            return
        for number in sorted(numbers):
            self._adopted.discard(number)
            self._run(number)

    def _run(self, number: int) -> None:
        if self._stopping:
            return
        place = self._places.get(number)
        if place is None:
            place = self._places[number] = Place()
            keeper = self._tasks.create_task(self._keep(number, place), name=f"keep[{number}]")
            self._keepers.append(keeper)
        place.wanted.set()

    def adopt(self, number: int) -> None:
        """Run a slot that the group has given to a worker that died; see ``give_way``."""
        self._adopted.add(number)
        self._run(number)

    def give_way(self, number: int) -> bool:
        """Let another worker, which has claimed it, have a slot that we but adopted.

        Return whether we do: a slot that the group gave us is claimed back.
        """
        if number not in self._adopted:
            return False
        self.revoke(frozenset((number,)))
        return True

    def revoke(self, numbers: frozenset[int]) -> None:
        """Drain these slots, and stop them."""
        for number in numbers:
            self._adopted.discard(number)
            place = self._places.get(number)
            if place is not None:
                place.wanted.clear()
                place.revoked.set()

    async def opened(self) -> None:
        """Wait until every slot that runs is open."""
        for slot in list(self.slots.values()):
            await slot.opened.wait()

    async def stop(self) -> None:
        """Drain every slot, side by side, and take no more."""
        self._stopping = True
        running = [self._places[number] for number in self.slots]
        self.revoke(frozenset(self._places))
        for place in running:
            await place.ended.wait()
        for keeper in self._keepers:
            keeper.cancel()

    async def _keep(self, number: int, place: Place) -> None:
        while True:
            await place.wanted.wait()
            place.revoked.clear()
            place.ended.clear()
            slot = self.slots[number] = self._new_slot(number)
            async with asyncio.TaskGroup() as tasks:
                run = tasks.create_task(slot.run(), name=f"slot[{number}]")
                await place.revoked.wait()
                await self._drain(number, slot)
                run.cancel()
            del self.slots[number]
            place.ended.set()

    async def _drain(self, number: int, slot: Slot) -> None:
        try:
            async with asyncio.timeout(DRAIN_S):
                await slot.drain()
        except TimeoutError:
            logger.warning("slot %d did not drain in %.0f s", number, DRAIN_S)
