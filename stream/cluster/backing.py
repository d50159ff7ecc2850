"""The logs of a worker, and its membership among the workers that serve their slots.

There are two implementations. One is Kafka with a Faust group
(``stream/worker/kafka_backing.py``). The other is a local database for one process
(``stream/worker/local_backing.py``). The worker does not know which one it has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from rowtide.stream.cluster.worker_directory import WorkerDirectory
from rowtide.stream.log.cluster import TopicCluster
from rowtide.stream.log.tails import Tails
from rowtide.stream.slot.lease.lease_settings import LeaseSettings

__all__ = ["Backing", "Member", "SlotMembership"]


@dataclass(frozen=True, slots=True)
class Member:
    """A worker that joins the others, with its callbacks for slots that come and go.

    ``instance`` is its name across restarts; other workers reach it at ``address``.
    ``on_lost`` is called if its membership ends without a request to stop.
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
    """A worker's membership among those that divide the slots."""

    def owners(self) -> Mapping[int, str]:
        """Return the address of each slot's worker, as far as known."""
        ...

    def standbys(self, slot: int) -> Sequence[str]:
        """Return the addresses of the workers that keep a copy of a slot."""
        ...

    async def start(self) -> None:
        """Join; return once this worker's slots are known."""
        ...

    async def stop(self) -> None:
        """Leave; no callback comes after this."""
        ...


class Backing(Protocol):
    """The logs of one rowtide, and the workers that serve them."""

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
        """Return the lease settings, given those of the operator."""
        ...

    def dead_owners(self, directory: WorkerDirectory) -> frozenset[bytes]:
        """Return former owners of slots that have certainly ended."""
        ...

    def tails(self, clock_s: Callable[[], float]) -> Tails:
        """Return the follower of the logs of slots whose copies are kept here."""
        ...

    def membership(self, member: Member) -> SlotMembership:
        """Return a membership that has not joined yet."""
        ...
