"""Slots go from one live worker to another without a gap that clients notice.

The new owner prepares while the former one continues to serve: it opens the rows and
reads the changelog. Then it sends a request to the former owner. That worker answers its
accepted requests, releases its lease and replies. Only a claim and the end of the logs
then remain. An owner hands a slot over once the group has taken it away, or if it had
only adopted it. A slot that no worker requests is served for a while, then released.

A worker that *leaves* (it stops, or is drained) leaves the group first. It serves each
slot until a worker requests it. It informs the others, so that workers that all stop at
once do not wait for each other.

Safety does not depend on this: a claim ends every earlier one, and waits for its lease.
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
from rowtide.stream.cluster.hop_client import HopClient
from rowtide.stream.cluster.hop_frames import NOBODY
from rowtide.stream.cluster.peers import Answers, Peers, silent
from rowtide.stream.cluster.roster import Roster
from rowtide.stream.http.handlers import answers
from rowtide.stream.slot.lease.lease_keeper import LeaseKeeper

__all__ = ["Handover"]

logger = logging.getLogger(__name__)

ASK_S_MAX = 20.0
"""Time for which a live owner is asked; then its slot is claimed, because the group gave it."""

RETRY_S = 0.05
LEAVE_S_MAX = 10.0
"""Time for which a leaving worker serves slots that no worker requests."""

TELL_S = 1.0
LINGER_S = 0.3
"""Time for which a worker without slots still answers late requests; usually milliseconds."""


class Handover:
    """How one worker gets slots and hands them over. ``new_membership`` creates a membership."""

    def __init__(
        self,
        leases: LeaseKeeper,
        roster: Roster,
        hop: HopClient,
        peers: Peers,
        new_membership: Callable[[], SlotMembership],
    ) -> None:
        self.left = False
        """True if this worker takes no slots: drained, or about to stop."""
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
        """Join the group; return once it has assigned our slots."""
        await self.membership.start()

    async def obtain(self, slot: int) -> None:
        """Return once no other worker serves ``slot``, or its owner did not hand it over in time.

        A slot that this worker only adopted is not requested: another worker has claimed
        it first.
        """
        await self._leases.others.wait_until_read(slot)
        try:
            async with asyncio.timeout(ASK_S_MAX):
                while (address := self._leases.others.holder(slot)) is not None:
                    if self.give_way(slot):
                        await asyncio.Event().wait()  # Until the slot is stopped.
                    if await self._request_slot(slot, address):
                        return
                    await asyncio.sleep(RETRY_S)
        except TimeoutError:
            logger.warning("slot %d: %s did not hand it over in time, claiming it", slot, address)

    async def _request_slot(self, slot: int, address: str) -> bool:
        """Ask the owner of a slot to hand it over. True if it no longer serves it."""
        try:
            request = HandOverRequest(slot)
            await self._hop.call(address, NOBODY, request.operation, request.encode())
        except StoreError as error:
            logger.debug("slot %d: hand-over request failed, retrying: %s", slot, error)
            return False
        return True

    # Giving them away.

    def give_way(self, slot: int) -> bool:
        """Hand an adopted slot over to another worker, which has claimed it."""
        return self._roster.give_way(slot)

    @answers(HandOverRequest.operation)
    async def hand_over_request(self, _identity: Identity, body: bytes) -> bytes:
        """Hand a slot over to the requesting worker. Raises ``Unavailable`` if we keep it."""
        await self._roster.hand_over(HandOverRequest.decode(body).slot)
        return NoFields().encode()

    async def drain(self) -> None:
        """Leave, while others take our slots.

        Raises OTSParameterInvalid if no other worker stays. Raises ``Unavailable`` if a
        worker that did not answer might stay.

        Of two workers that are drained at once, each reports that it leaves before it
        asks the other: they do not both go.
        """
        async with self._changing:
            before, self.left = self.left, True
            if not before:
                answers = await self._tell(leaving=False)
                if not _staying(answers):
                    self.left = False
                    raise _nobody_stays(answers)
            await self._leave()

    async def leave(self) -> None:
        """Hand all slots over and take no more; return once this worker has none."""
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
                await self._roster.wait_until_ended()
        except TimeoutError:
            self._roster.hurry()
            await self._roster.wait_until_ended()
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
        """Report to the others if this worker leaves; return their answers."""
        request = LeavingRequest(self._peers.address, leaving)
        return await self._peers.ask(request.operation, request.encode(), answer_s=TELL_S)

    @answers(LeavingRequest.operation)
    async def leaving_request(self, _identity: Identity, body: bytes) -> bytes:
        """Record that another worker leaves, or answers; return whether this one leaves."""
        request = LeavingRequest.decode(body)
        if request.leaving:
            self._staying.discard(request.sender)
            if self.left and not self._staying:
                self._roster.hurry()
        return LeavingAnswer(self.left).encode()


def _staying(answers: Answers) -> set[str]:
    """Return the workers that do not leave."""
    return {
        address
        for address, answer in answers.items()
        if isinstance(answer, bytes) and not LeavingAnswer.decode(answer).leaving
    }


def _nobody_stays(answers: Answers) -> StoreError:
    if left := ", ".join(one["address"] for one in silent(answers)):
        return Unavailable(
            f"No other worker is known to take the slots, but {left} did not answer: try again, "
            "or forget those that have died.",
            "OTSServerUnavailable",
        )
    return invalid("No other worker is there to take the slots.")
