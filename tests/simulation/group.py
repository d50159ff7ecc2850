"""The Kafka group that divides the slots, and the hop between workers, in virtual time.

Both are slow where they like: a worker learns late what the group has decided, and one that is
stopped learns it when it goes on. Nothing that is safe may rest on either.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from rowtide.core.protocol.authentication import Identity
from rowtide.core.values.errors import OutcomeUnknown, StoreError, Unavailable
from rowtide.stream.shard.row_store import StoreFailed
from rowtide.stream.worker.faust_config import Division
from rowtide.stream.worker.faust_membership import Membership, MembershipConfig
from tests.simulation.network import Link, Network, resolve
from tests.simulation.virtual_time import Process

__all__ = ["Group", "Hop", "Peer", "SimulatedMembership"]

BEAT_S = 0.5
SESSION_S = 4.0
TELL_S_MAX = 1.5
ANSWER_S = 10.0
CUT_OFTEN = 0.05
"""Part of the calls whose connection is cut, where any is: before the question, or the answer."""


class Peer(Protocol):
    """A worker, as the group and other workers see it."""

    number: int
    address: str
    process: Process
    link: Link
    tasks: asyncio.TaskGroup

    @property
    def alive(self) -> bool:
        """Whether it can still do something."""
        ...

    def answer(self, identity: Identity, operation: str, body: bytes) -> Awaitable[bytes]:
        """Answer what another worker asks."""
        ...


class SimulatedMembership(Membership):
    """The real membership, with the group in memory instead of Faust."""

    def __init__(
        self,
        group: Group,
        peer: Peer,
        *,
        on_assigned: Callable[[frozenset[int]], None],
        on_revoked: Callable[[frozenset[int]], None],
    ) -> None:
        config = MembershipConfig("memory:1", "sim", peer.address, peer.address, group.slots)
        super().__init__(config, on_assigned=on_assigned, on_revoked=on_revoked)
        self.assignment = asyncio.Event()
        self._group = group
        self._peer = peer

    async def start(self) -> None:
        """Join; return once the group has assigned our slots."""
        self._group.join(self._peer, self)
        await self.assignment.wait()

    async def stop(self) -> None:
        """Leave the group."""
        self._group.leave(self._peer.address)

    def take(self, slots: frozenset[int], owners: Mapping[int, str], generation: int) -> None:
        """Take the group's division, unless a newer one was taken, or we have left."""
        here = self._group.members.get(self._peer.address)
        ours = here is not None and here.membership is self
        if ours and self._peer.alive and generation > self._generation:
            self._take(Division(slots, owners=owners), generation)
            self.assignment.set()


@dataclass(slots=True)
class Member:
    """``seen_s`` is the time of its last heartbeat."""

    peer: Peer
    membership: SimulatedMembership
    seen_s: float


class Group:
    """Divides ``slots`` evenly among its members; a slot stays where it is if it can."""

    def __init__(self, network: Network, slots: int) -> None:
        self.network = network
        self.slots = slots
        self.members: dict[str, Member] = {}
        self.owners: dict[int, str] = {}
        self.tell_s_max = TELL_S_MAX
        self.generation = 0

    async def run(self) -> None:
        """Drop silent members, and take back those that return, until cancelled."""
        while True:
            await asyncio.sleep(BEAT_S)
            now_s = asyncio.get_running_loop().time()
            for member in self.members.values():
                if (
                    not member.peer.process.frozen
                    and member.peer.link.reaches
                    and member.peer.alive
                ):
                    member.seen_s = now_s
            silent = [a for a, m in self.members.items() if now_s - m.seen_s > SESSION_S]
            if silent and not self.network.away:
                for address in silent:
                    del self.members[address]
                self.divide()

    def join(self, peer: Peer, membership: SimulatedMembership) -> None:
        """Take a worker in, or back in."""
        now_s = asyncio.get_running_loop().time()
        self.members[peer.address] = Member(peer, membership, now_s)
        self.divide()

    def leave(self, address: str) -> None:
        """Let a worker go."""
        if self.members.pop(address, None) is not None:
            self.divide()

    def divide(self, wanted: Mapping[int, str] | None = None) -> None:
        """Divide again, and inform every member."""
        owners: dict[int, str] = {}
        load = dict.fromkeys(self.members, 0)
        most = -(-self.slots // len(load)) if load else 0
        for slot in range(self.slots) if load else ():
            address = (wanted or self.owners).get(slot, "")
            if load.get(address, most) >= most and wanted is None:
                address = min(load, key=lambda a: (load[a], a))
            owners[slot] = address
            load[address] = load.get(address, 0) + 1
        self.owners = owners
        self.generation += 1
        for member in self.members.values():
            self._tell(member, owners, self.generation)

    def _tell(self, member: Member, owners: Mapping[int, str], generation: int) -> None:
        peer = member.peer
        slots = frozenset(slot for slot, address in owners.items() if address == peer.address)
        asyncio.get_running_loop().call_later(
            self.network.chance.uniform(0.001, self.tell_s_max),
            member.membership.take,
            slots,
            owners,
            generation,
            context=peer.process.context,
        )


class Hop:
    """Calls between workers. ``peers`` are those that live, by address."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.peers: dict[str, Peer] = {}
        self.cuts: random.Random | None = None
        """Decides which calls' connections are cut; none are without it."""

    async def call(self, address: str, identity: Identity, operation: str, body: bytes) -> bytes:
        """Have the worker at ``address`` answer; see ``HopClient.call``."""
        loop, network = asyncio.get_running_loop(), self.network
        future: asyncio.Future[bytes] = loop.create_future()

        cut = self.cuts is not None and self.cuts.random() < CUT_OFTEN
        unasked = cut and self.cuts is not None and self.cuts.random() < 0.5

        def arrive() -> None:
            if unasked:
                resolve(future, OutcomeUnknown(f"{operation}: no answer"))
                return
            peer = self.peers.get(address)
            if peer is None:
                resolve(future, Unavailable("The partition is not available."))
                return
            network.later(ANSWER_S, resolve, future, OutcomeUnknown(f"{operation}: no answer"))
            loop.call_soon(begin, peer, context=peer.process.context)

        def begin(peer: Peer) -> None:
            answering = answer(peer)
            try:
                peer.tasks.create_task(answering, name=operation)
            except RuntimeError:  # It has just ended.
                answering.close()
                resolve(future, OutcomeUnknown(f"{operation}: no answer"))

        async def answer(peer: Peer) -> None:
            answer: Any
            try:
                answer = await peer.answer(identity, operation, body)
            except StoreError as error:
                answer = error
            except StoreFailed:  # As ``stream/cluster/hop_server.py`` reports an unexpected error.
                answer = OutcomeUnknown("Internal server error.")
            if cut:
                answer = OutcomeUnknown(f"{operation}: no answer")
            network.later(network.latency_s(), resolve, future, answer)

        network.later(network.latency_s(), arrive)
        return await future

    ask = call
    """As ``HopClient.ask``."""


Handlers = dict[str, Callable[[Identity, bytes], Awaitable[bytes]]]
