"""A single worker: its logs are in its data directory, and it owns every slot.

The directory is locked, so no other worker can serve these logs, and leases protect
nothing. They exist because the slots' code is the same, but they are renewed seldom.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rowtide.stream.cluster.backing import Member
from rowtide.stream.cluster.worker_directory import WorkerDirectory
from rowtide.stream.log.local.cluster import LocalCluster
from rowtide.stream.log.local.store import LogStore
from rowtide.stream.log.tails import Tail, TailFollower
from rowtide.stream.slot.lease.lease_settings import LeaseSettings

__all__ = ["LocalBacking"]

LEASE_S = 10.0
"""A longer lease costs nothing: no worker waits for its end. A shorter one costs more syncs."""


class LocalBacking:
    """The logs in ``path``, see ``Backing``."""

    def __init__(self, path: Path, *, topic_prefix: str) -> None:
        self.cluster = LocalCluster(LogStore(path), prefix=topic_prefix)
        self.topic_prefix = topic_prefix
        self.place = f"local {path}"
        self.durability = "fsync"

    def lease(self, wanted: LeaseSettings) -> LeaseSettings:
        """Return leases that are renewed seldom; ``wanted`` matters only with other workers."""
        return LeaseSettings(lease_s=max(wanted.lease_s, LEASE_S))

    def dead_owners(self, directory: WorkerDirectory) -> frozenset[bytes]:
        """Return every former owner: one process at a time has the log, on any machine."""
        return directory.former

    def tails(self, clock_s: Callable[[], float]) -> _NoTails:
        """Return a follower of no logs, because no worker keeps copies."""
        return _NoTails()

    def membership(self, member: Member) -> _Alone:
        """Return the membership of the only worker."""
        return _Alone(member)


class _Alone:
    """A membership of one, see ``Membership``: all slots are ours from ``start`` to ``stop``."""

    def __init__(self, member: Member) -> None:
        self._member = member
        self._owners: Mapping[int, str] = {}

    def owners(self) -> Mapping[int, str]:
        """Return our address for every slot, once started."""
        return self._owners

    def standbys(self, slot: int) -> Sequence[str]:
        """Return nothing, because no worker keeps copies."""
        return ()

    async def start(self) -> None:
        """Take all slots."""
        member = self._member
        self._owners = dict.fromkeys(range(member.slots), member.address)
        member.on_assigned(frozenset(self._owners))

    async def stop(self) -> None:
        """Do nothing: there is no other worker to inform."""


class _NoTails:
    """The follower of logs for a worker without copies, see ``Tails``."""

    def follow(self, topic: str, offset: int, follower: TailFollower) -> Tail:
        raise AssertionError("a local worker keeps no copies")

    def leave(self, tail: Tail) -> None:
        raise AssertionError("a local worker keeps no copies")

    async def run(self) -> None:
        await asyncio.Event().wait()
