"""Takes over the slots of dead workers when their leases end, before the group's session does.

Every worker follows the leases of the slots that are not its own. If a slot's lease ends
without another claim, a live worker adopts the slot. Each worker computes the same order
of the live workers for the slot. The first acts at once, and the next a moment later if
the first has not acted. The slot's standbys come first; a standby whose rows are not warm
comes last.

Safety does not depend on their agreement: a claim is a record in the lease partition, and
the later one wins. The group's own division comes once its session has ended, and wins
over an adoption: the adopting worker hands the slot to the worker that the group names.
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
"""Delay of each further worker after the one before it."""


class Takeover:
    """The adoptions of one worker, while ``ready`` returns True."""

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
        """Check leases until cancelled."""
        while True:
            await self._leases.others.wait_for_others()
            # Leases are renewed long before they end, so there is rarely anything to do.
            await asyncio.sleep(min(max(LOOK_S, self._leases.others.next_end_s()), LOOK_S_MAX))
            if self._ready():
                for slot in range(self._slots):
                    self._look(slot)

    def _look(self, slot: int) -> None:
        abandoned_s = self._leases.others.find_abandoned_s(slot)
        if abandoned_s is None or self._roster.is_ours(slot):
            return
        if abandoned_s >= STEP_S * self._rank(slot):
            logger.warning("slot %d: its worker died, taking it over", slot)
            self._roster.adopt(slot)

    def _rank(self, slot: int) -> int:
        """Return this worker's place in the order of live workers for a slot."""
        dead = {
            at
            for number, at in self._leases.others.addresses.items()
            if self._leases.others.find_abandoned_s(number) is not None
        }
        named = set(self._standbys(slot))
        live = {*self._leases.others.addresses.values(), *named} - dead - {"", self._address}
        # A dead worker without slots is not known as dead, and delays the others by a
        # step.
        standby = self._roster.standbys.get(slot)
        if standby is not None and not standby.is_warm:
            return len(live)
        return order(slot, live | {self._address}, named).index(self._address)


def order(slot: int, workers: Collection[str], standbys: Collection[str]) -> list[str]:
    """Return the order in which workers take a slot over; equal knowledge gives an equal order."""
    return sorted(workers, key=lambda at: (at not in standbys, _digest(slot, at)))


def _digest(slot: int, address: str) -> bytes:
    return hashlib.sha256(f"{slot} {address}".encode()).digest()
