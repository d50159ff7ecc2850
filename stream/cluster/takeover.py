"""Takes over the slots of workers that have died, as their leases tell, not the group's session.

Every worker follows the leases of the slots that are not its own. A slot whose lease has ended
without another claim is adopted by one of the live workers: each computes the same order of them
for the slot, the first acts at once, the next a moment later should the first not do it. Those that
the group has made its standbys come first; one whose rows are not warm takes the last place.

Nothing rests on their agreeing: a claim is a record of the lease partition, and the later one wins.
The group's own division, which comes when its session has ended, wins over an adoption: who adopted
a slot gives it up to whoever the group gives it to.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Collection, Sequence

from rowtide.stream.cluster.roster import Roster
from rowtide.stream.slot.lease.lease_keeper import LeaseKeeper

__all__ = ["Takeover", "order"]

logger = logging.getLogger(__name__)

LOOK_S, LOOK_S_MAX = 0.05, 0.25
STEP_S = 1.0
"""How much later than the one before it each further worker acts."""


class Takeover:
    """The adoptions of one worker, from when ``ready`` says that it can serve."""

    def __init__(
        self,
        leases: LeaseKeeper,
        roster: Roster,
        *,
        slots: int,
        address: str,
        standbys: Callable[[int], Sequence[str]],
        ready: Callable[[], bool],
    ) -> None:
        self._leases = leases
        self._roster = roster
        self._slots = slots
        self._address = address
        self._standbys = standbys
        self._ready = ready

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            # Leases are renewed long before they end: mostly there is nothing to look for.
            await asyncio.sleep(min(max(LOOK_S, self._leases.next_end_s()), LOOK_S_MAX))
            if self._ready():
                for slot in range(self._slots):
                    self._look(slot)

    def _look(self, slot: int) -> None:
        abandoned_s = self._leases.abandoned_s(slot)
        if abandoned_s is None or self._roster.wants(slot):
            return
        if abandoned_s >= STEP_S * self._rank(slot):
            logger.warning("slot %d: its worker has died, taking it over", slot)
            self._roster.adopt(slot)

    def _rank(self, slot: int) -> int:
        """Return our place in the order of live workers for a slot."""
        dead = {
            at
            for number, at in self._leases.addresses.items()
            if self._leases.abandoned_s(number) is not None
        }
        named = set(self._standbys(slot))
        live = {*self._leases.addresses.values(), *named} - dead - {"", self._address}
        # A dead worker that owned nothing is not known as dead, and costs the others a step.
        standby = self._roster.standbys.get(slot)
        if standby is not None and not standby.warm:
            return len(live)
        return order(slot, live | {self._address}, named).index(self._address)


def order(slot: int, workers: Collection[str], standbys: Collection[str]) -> list[str]:
    """Return in which order workers take a slot over; all who know the same say the same."""
    return sorted(workers, key=lambda at: (at not in standbys, _digest(slot, at)))


def _digest(slot: int, address: str) -> bytes:
    return hashlib.sha256(f"{slot} {address}".encode()).digest()
