"""Slots go from a worker that lives to another one without a gap that clients notice.

Whoever gets a slot prepares while its former owner goes on serving: it opens the rows and reads the
changelog. Then it asks the former owner, which answers what it has taken, releases its lease and
says so; what is left is a claim and the end of the logs. An owner gives a slot to whoever asks
once the group has taken it away, or where it had but adopted it. One that nobody asks serves on
for a while, then releases all the same.

A worker that *leaves* (it stops, or it is drained) leaves the group first and serves until it
has been asked for each slot. It tells the others: workers that all stop at once wait for nobody.

Safety does not rest on any of this: a claim ends every earlier one, and waits for its lease.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from rowtide.core.protocol.authentication import Identity
from rowtide.core.protocol.worker_messages import (
    HandOverRequest,
    LeavingAnswer,
    LeavingRequest,
    NoFields,
)
from rowtide.core.values.errors import StoreError, Unavailable, invalid
from rowtide.stream.cluster.backing import SlotMembership
from rowtide.stream.cluster.hop import NOBODY, HopClient
from rowtide.stream.cluster.peers import Answers, Peers, silent
from rowtide.stream.cluster.roster import Roster
from rowtide.stream.http.handlers import answers
from rowtide.stream.slot.lease.lease_keeper import LeaseKeeper

__all__ = ["Handover"]

logger = logging.getLogger(__name__)

ASK_S_MAX = 20.0
"""For so long a live owner is asked; then its slot is claimed, as the group has it."""

RETRY_S = 0.05
LEAVE_S_MAX = 10.0
"""For so long a worker that leaves serves slots that nobody asks for."""

TELL_S = 1.0
LINGER_S = 0.3
"""So long a worker without slots answers those who have not heard yet: it takes milliseconds."""


class Handover:
    """How one worker gets slots and gives them away. ``new_membership`` joins the group anew."""

    def __init__(
        self,
        leases: LeaseKeeper,
        roster: Roster,
        hop: HopClient,
        peers: Peers,
        new_membership: Callable[[], SlotMembership],
    ) -> None:
        self.left = False
        """Whether we take no slots: drained, or about to stop."""
        self.membership = new_membership()
        self._new_membership = new_membership
        self._leases = leases
        self._roster = roster
        self._hop = hop
        self._peers = peers
        self._staying: set[str] = set()
        self._changing = asyncio.Lock()

    # Getting slots.

    async def join(self) -> None:
        """Join the group; return once it has told us our slots."""
        await self.membership.start()

    async def obtain(self, slot: int) -> None:
        """Return once nobody else serves ``slot``, or its owner was asked in vain for long.

        One that we but adopted, for nobody served it, is not asked for: somebody came first.
        """
        await self._leases.looked(slot)
        try:
            async with asyncio.timeout(ASK_S_MAX):
                while (address := self._leases.holder(slot)) is not None:
                    if self.give_way(slot):
                        await asyncio.Event().wait()  # Until the slot is stopped.
                    if await self._handed(slot, address):
                        return
                    await asyncio.sleep(RETRY_S)
        except TimeoutError:
            logger.warning("slot %d: %s does not give it away, claiming it", slot, address)

    async def _handed(self, slot: int, address: str) -> bool:
        """Ask the owner of a slot to hand it over. True if it no longer serves it."""
        try:
            request = HandOverRequest(slot)
            await self._hop.call(address, NOBODY, request.operation, request.encode())
        except StoreError as error:
            logger.debug("slot %d: asked for again: %s", slot, error)
            return False
        return True

    # Giving them away.

    def give_way(self, slot: int) -> bool:
        """Let another worker, which has claimed it, have a slot that we but adopted."""
        return self._roster.give_way(slot)

    @answers(HandOverRequest.operation)
    async def hand_over_request(self, _identity: Identity, body: bytes) -> bytes:
        """Give a slot to the worker that asks; raises ``Unavailable`` where it is ours."""
        await self._roster.hand_over(HandOverRequest.decode(body).slot)
        return NoFields().encode()

    async def drain(self) -> None:
        """Leave, while others take our slots. Raises OTSParameterInvalid where nobody would.

        Raises ``Unavailable`` where somebody might who has not answered.

        Of two that are drained at once each has said that it leaves before it asks the other: they
        do not both go.
        """
        async with self._changing:
            before, self.left = self.left, True
            if not before:
                told = await self._tell(leaving=False)
                if not _staying(told):
                    self.left = False
                    raise _nobody_stays(told)
            await self._leave()

    async def leave(self) -> None:
        """Give all slots away and take no more; return once we have none."""
        async with self._changing:
            self.left = True
            await self._leave()

    async def _leave(self) -> None:
        self._staying = _staying(await self._tell(leaving=True))
        self._roster.close()
        await self.membership.stop()
        if not self._staying:
            self._roster.hurry()
        try:
            async with asyncio.timeout(LEAVE_S_MAX):
                await self._roster.ended()
        except TimeoutError:
            self._roster.hurry()
            await self._roster.ended()
        await asyncio.sleep(LINGER_S)

    async def rejoin(self) -> None:
        """Take slots again."""
        async with self._changing:
            if self.left:
                self._roster.reopen()
                self.membership = self._new_membership()
                self.left = False
                await self.membership.start()

    async def _tell(self, *, leaving: bool) -> Answers:
        """Tell the others whether we leave; return what they answer."""
        request = LeavingRequest(self._peers.address, leaving)
        return await self._peers.ask(request.operation, request.encode(), answer_s=TELL_S)

    @answers(LeavingRequest.operation)
    async def leaving_request(self, _identity: Identity, body: bytes) -> bytes:
        """Hear that another worker leaves, or is asked; tell whether we leave."""
        request = LeavingRequest.decode(body)
        if request.leaving:
            self._staying.discard(request.sender)
            if self.left and not self._staying:
                self._roster.hurry()
        return LeavingAnswer(self.left).encode()


def _staying(told: Answers) -> set[str]:
    """Return the workers that do not leave."""
    return {
        address
        for address, answer in told.items()
        if isinstance(answer, bytes) and not LeavingAnswer.decode(answer).leaving
    }


def _nobody_stays(told: Answers) -> StoreError:
    if left := ", ".join(one["address"] for one in silent(told)):
        return Unavailable(
            f"No other worker is known to take the slots, but {left} did not answer: try again, "
            "or forget those that have died.",
            "OTSServerUnavailable",
        )
    return invalid("No other worker is there to take the slots.")
