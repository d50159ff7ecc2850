"""What a worker rests on: the logs, and who else serves slots of them.

It has two implementations: Kafka with a Faust group (``stream/worker/kafka_backing.py``) and one
local database that one process has for itself (``stream/worker/local_backing.py``). The worker
does not know which one it has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from rowtide.stream.cluster.worker_directory import WorkerDirectory
from rowtide.stream.log.cluster import TopicCluster
from rowtide.stream.log.tails import Tails
from rowtide.stream.slot.lease.lease_keeper import LeaseSettings

__all__ = ["Backing", "Member", "SlotMembership"]


@dataclass(frozen=True, slots=True)
class Member:
    """A worker as it joins the others, and what it does as slots come and go.

    ``instance`` is its name across restarts, ``address`` where other workers reach it.
    ``on_lost`` is called if its place ends though nobody stopped it.
    """

    instance: str
    address: str
    slots: int
    standbys: int
    on_standby: Callable[[frozenset[int]], None]
    on_assigned: Callable[[frozenset[int]], None]
    on_revoked: Callable[[frozenset[int]], None]
    on_lost: Callable[[], None]


class SlotMembership(Protocol):
    """A worker's place among those that divide the slots."""

    def owners(self) -> Mapping[int, str]:
        """Return the address of each slot's worker, as far as is known."""
        ...

    def standbys(self, slot: int) -> Sequence[str]:
        """Return the addresses of the workers that keep a copy of a slot."""
        ...

    async def start(self) -> None:
        """Join; return once the slots are known that are ours."""
        ...

    async def stop(self) -> None:
        """Leave; nothing is called any more."""
        ...


class Backing(Protocol):
    """The logs of one rowtide, and the others that serve them."""

    @property
    def cluster(self) -> TopicCluster:
        """Where the logs are."""
        ...

    @property
    def topic_prefix(self) -> str:
        """First part of every topic's name."""
        ...

    @property
    def place(self) -> str:
        """Where the logs are, for operators."""
        ...

    @property
    def durability(self) -> str:
        """When an append is acknowledged, for operators."""
        ...

    def lease(self, wanted: LeaseSettings) -> LeaseSettings:
        """Return how leases are kept, given what the operator asked for."""
        ...

    def dead_owners(self, directory: WorkerDirectory) -> frozenset[bytes]:
        """Return former owners of slots that surely serve nobody any more."""
        ...

    def tails(self, clock_s: Callable[[], float]) -> Tails:
        """Return what follows the logs of slots that are kept as copies."""
        ...

    def membership(self, member: Member) -> SlotMembership:
        """Return a place among the workers, not joined yet."""
        ...
