"""The slots that this worker runs: opened when the group gives them, drained when others
take them.

Each slot has one keeper task. So a slot that is taken away and given back while it still
drains opens again after the drain. Two lives of one slot never overlap, nor do those of a
slot and of a standby, because they share a directory. All calls come from the event loop.

A slot that the group has taken away is served until its next worker requests it
(``hand_over``). That worker is ready by then. See ``stream/cluster/handover.py``.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

from rowtide.core.values.errors import Unavailable
from rowtide.stream.cluster.slot_place import SlotPlace
from rowtide.stream.slot.slot import Slot
from rowtide.stream.slot.standby.standby import Standby
from rowtide.stream.slot.standby.standby_shard import Unflushed

__all__ = ["Roster"]

logger = logging.getLogger(__name__)

DRAIN_S = 10.0
"""A slot that has not answered, flushed and released by then is stopped anyway."""

UNASKED_S_MAX = 20.0
"""A slot that the group took away is released after this long without a request."""

KEPT_S = 3.0
"""A worker that requests a slot may know the group's division this much earlier than we do."""


OPENED_LOOK_S = 0.02


class Roster:
    """Slots and standbys by number while they run.

    ``new_slot`` and ``new_standby`` create one for each life. ``remove_left`` removes the
    rows that the last life has left on disk, once they are too old to be opened. It
    returns the seconds until then; infinite (``math.inf``) if nothing is left.
    """

    def __init__(
        self,
        new_slot: Callable[[int], Slot],
        tasks: asyncio.TaskGroup,
        new_standby: Callable[[int], Standby] | None = None,
        remove_left: Callable[[int], float] | None = None,
    ) -> None:
        self.slots: dict[int, Slot] = {}
        self.standbys: dict[int, Standby] = {}
        self.left: dict[int, Mapping[str, Unflushed]] = {}
        """What ended standbys knew last, for the slots that open on their rows."""
        self._new_slot = new_slot
        self._new_standby = new_standby
        self._remove_left = remove_left
        self._tasks = tasks
        self._places: dict[int, SlotPlace] = {}
        self._adopted: set[int] = set()
        self._keepers: list[asyncio.Task[None]] = []
        self._closed = False

    # Taking slots.

    def assign(self, numbers: frozenset[int]) -> None:
        """Run these slots from now on."""
        for number in sorted(numbers):
            self._adopted.discard(number)
            self._run(number)

    def stand_by(self, numbers: frozenset[int]) -> None:
        """Keep copies of these slots, unless they run here, and of no others."""
        if self._new_standby is None:
            return
        for number in sorted(self._places.keys() | numbers):
            place = self._place(number)
            place.keep_standby(wanted=number in numbers)

    def _run(self, number: int) -> None:
        if self._closed:
            return
        self._place(number).want()

    def _place(self, number: int) -> SlotPlace:
        place = self._places.get(number)
        if place is None:
            place = self._places[number] = SlotPlace()
            keeper = self._tasks.create_task(self._keep(number, place), name=f"keep[{number}]")
            self._keepers.append(keeper)
        return place

    def adopt(self, number: int) -> None:
        """Run a slot that the group has given to a worker that died; see ``give_way``."""
        self._adopted.add(number)
        self._run(number)

    def is_ours(self, number: int) -> bool:
        """True if a slot is ours now: it runs or is about to."""
        place = self._places.get(number)
        return place is not None and place.is_wanted

    async def wait_until_open(self) -> None:
        """Return once every slot that is ours by now is open, given away, or given up for now.

        A slot is given up if its opening failed and another worker serves it, or if its openings
        have failed for long: it may never open here. Operators must reach the worker to see why.
        """
        for number, place in list(self._places.items()):
            while self._must_open(number, place):  # noqa: ASYNC110
                await asyncio.sleep(OPENED_LOOK_S)  # No event reports another worker's lease.

    def _must_open(self, number: int, place: SlotPlace) -> bool:
        """True if a slot is ours and not open yet."""
        if not place.is_wanted:
            return False
        slot = self.slots.get(number)
        if slot is None:  # Its keeper still looks after what was left on disk.
            return True
        if slot.opened.is_set() or slot.openings.have_failed_long():
            return False
        return slot.openings.failure is None or not slot.is_served_elsewhere()

    # Giving them away.

    def revoke(self, numbers: frozenset[int]) -> None:
        """Serve these slots until another worker requests them, then no more."""
        for number in numbers:
            self._give(number, UNASKED_S_MAX)

    def give_way(self, number: int) -> bool:
        """Hand an adopted slot over to another worker, which has claimed it.

        Returns False for a slot that the group gave us: we claim it back.
        """
        if number not in self._adopted:
            return False
        self._give(number, 0)
        return True

    def _give(self, number: int, after_s: float) -> None:
        self._adopted.discard(number)
        place, slot = self._places.get(number), self.slots.get(number)
        if place is not None:
            # A slot that we have not got yet is another worker's to give.
            place.give(after_s if slot is None or not slot.is_foreign else 0)

    async def hand_over(self, number: int) -> None:
        """Hand a slot over; return once it is released. Raises ``Unavailable``: we keep it."""
        place = self._places.get(number)
        if place is None or place.ended.is_set():
            return
        if number in self._adopted:
            self._give(number, 0)
        try:
            async with asyncio.timeout(KEPT_S):
                await place.unwanted.wait()
        except TimeoutError:
            raise Unavailable from None
        if not place.unwanted.is_set():
            raise Unavailable  # The group has given it back before we came to it.
        place.end()
        await place.ended.wait()

    # Leaving.

    def close(self) -> None:
        """Take no more slots, keep no copies, and serve running slots until they are requested."""
        self._closed = True
        self.stand_by(frozenset())
        for number in self._places:
            self._give(number, UNASKED_S_MAX)

    def reopen(self) -> None:
        """Take slots again."""
        self._closed = False

    def hurry(self) -> None:
        """Wait no longer for requests of the slots that we give away."""
        for place in self._places.values():
            if place.unwanted.is_set():
                place.end()

    async def wait_until_ended(self) -> None:
        """Return once no slot runs."""
        for place in list(self._places.values()):
            await place.ended.wait()

    def stop(self) -> None:
        """End for good; no slot runs any more."""
        for keeper in self._keepers:
            keeper.cancel()

    async def _keep(self, number: int, place: SlotPlace) -> None:
        while True:
            place.changed.clear()
            if place.is_wanted:
                await self._serve(number, place)
            elif place.has_standby and self._new_standby is not None and not self._closed:
                await self._stand_by(number, place, self._new_standby(number))
            else:
                await self._rest(number, place)

    def look_after(self, numbers: Iterable[int]) -> None:
        """Remove in time what earlier processes left on disk of these slots."""
        for number in numbers:
            self._place(number)

    async def _rest(self, number: int, place: SlotPlace) -> None:
        """Wait for a decision; until then no worker opens what is left on disk."""
        within_s = math.inf
        if self._remove_left is not None:
            within_s = await asyncio.to_thread(self._remove_left, number)
        with suppress(TimeoutError):
            async with asyncio.timeout(None if math.isinf(within_s) else within_s):
                await place.changed.wait()

    async def _serve(self, number: int, place: SlotPlace) -> None:
        """Run a slot until it is given away."""
        place.ended.clear()
        slot = self.slots[number] = self._new_slot(number)
        self.left.pop(number, None)  # From now on the rows change without it.
        async with asyncio.TaskGroup() as tasks:
            run = tasks.create_task(slot.run(), name=f"slot[{number}]")
            await place.due.wait()
            await self._drain(number, slot)
            run.cancel()
        del self.slots[number]
        place.ended.set()

    async def _stand_by(self, number: int, place: SlotPlace, standby: Standby) -> None:
        """Keep a slot's rows warm until that is not wanted, or the slot itself is."""
        self.standbys[number] = standby
        async with asyncio.TaskGroup() as tasks:
            run = tasks.create_task(standby.run(), name=f"standby[{number}]")
            while place.has_standby and not place.is_wanted:
                await place.changed.wait()
                place.changed.clear()
            run.cancel()
        del self.standbys[number]
        self.left[number] = standby.left

    async def _drain(self, number: int, slot: Slot) -> None:
        try:
            async with asyncio.timeout(DRAIN_S):
                await slot.drain()
        except TimeoutError:
            logger.warning("slot %d did not drain in %.0f s", number, DRAIN_S)
