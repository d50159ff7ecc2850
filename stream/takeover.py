"""Takes over the slots of workers that have died, as their leases tell, not the group's session.

Every worker follows the leases of the slots that are not its own. A slot whose lease has ended
without another claim is adopted by one of the live workers: each computes the same order of them
for the slot, the first acts at once, the next a moment later should the first not do it.

Nothing rests on their agreeing: a claim is a record of the lease partition, and the later one wins.
The group's own division, which comes when its session has ended, wins over an adoption: who adopted
a slot gives it up to whoever the group gives it to.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable

from rowtide.stream.lease_keeper import LeaseKeeper
from rowtide.stream.roster import Roster

__all__ = ["Takeover"]

logger = logging.getLogger(__name__)

LOOK_S = 0.05
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
        ready: Callable[[], bool],
    ) -> None:
        self._leases = leases
        self._roster = roster
        self._slots = slots
        self._address = address
        self._ready = ready

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            if self._ready():
                for slot in range(self._slots):
                    self._look(slot)

    def _look(self, slot: int) -> None:
        abandoned_s = self._leases.abandoned_s(slot)
        if abandoned_s is None or slot in self._roster.slots:
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
        live = {*self._leases.addresses.values(), self._address} - dead - {""}
        order = sorted(live | {self._address}, key=lambda at: _digest(slot, at))
        return order.index(self._address)


def _digest(slot: int, address: str) -> bytes:
    return hashlib.sha256(f"{slot} {address}".encode()).digest()
