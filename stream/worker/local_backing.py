"""A worker for itself: its logs are in its data directory, and every slot is its own.

Nobody else can serve these logs, for the directory is locked, so leases protect nothing. They are
kept all the same, since the slots' code is the same, but renewed seldom.
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
from rowtide.stream.slot.lease.lease_keeper import LeaseSettings

__all__ = ["LocalBacking"]

LEASE_S = 10.0
"""Longer costs nothing: nobody waits for a lease to end. Shorter costs a sync for each renewal."""


class LocalBacking:
    """The logs in ``path``, see ``Backing``."""

    def __init__(self, path: Path, *, topic_prefix: str) -> None:
        self.cluster = LocalCluster(LogStore(path), prefix=topic_prefix)
        self.topic_prefix = topic_prefix
        self.place = f"local {path}"
        self.durability = "fsync"

    def lease(self, wanted: LeaseSettings) -> LeaseSettings:
        """Return leases that are renewed seldom; ``wanted`` is about taking over from others."""
        return LeaseSettings(lease_s=max(wanted.lease_s, LEASE_S))

    def dead_owners(self, directory: WorkerDirectory) -> frozenset[bytes]:
        """Return every former owner: the log has one process at a time, on any machine."""
        return directory.former

    def tails(self, clock_s: Callable[[], float]) -> _NoTails:
        """Return what follows no log: nobody keeps copies."""
        return _NoTails()

    def membership(self, member: Member) -> _Alone:
        """Return the place of the only worker."""
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
        """Return nothing: nobody keeps copies."""
        return ()

    async def start(self) -> None:
        """Take all slots."""
        member = self._member
        self._owners = dict.fromkeys(range(member.slots), member.address)
        member.on_assigned(frozenset(self._owners))

    async def stop(self) -> None:
        """Do nothing: there is nobody to tell."""


class _NoTails:
    """What follows the logs of kept copies where none are kept, see ``Tails``."""

    def follow(self, topic: str, offset: int, follower: TailFollower) -> Tail:
        raise AssertionError("a worker for itself keeps no copies")

    def leave(self, tail: Tail) -> None:
        raise AssertionError("a worker for itself keeps no copies")

    async def run(self) -> None:
        await asyncio.Event().wait()
