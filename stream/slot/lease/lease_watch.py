"""Follows the leases of the slots of other workers: who has which, and which may be taken.

The leases that one broker leads are read by one request at a time, and a silent broker delays only
the leases that it leads. A *read* of the leases may be outdated, because a deposed broker that does
not know it continues to answer. So a later claim that we read is real, but only a successful append
proves that there is none (``lease_keeper.py``).
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from contextlib import contextmanager

from rowtide.core.cluster.lease import CorruptLease
from rowtide.core.values.errors import LogTrimmed, StoreError
from rowtide.stream.log.cluster import LogCluster
from rowtide.stream.log.log import Entry
from rowtide.stream.shard.appender import READ_BYTES
from rowtide.stream.slot.lease.held_leases import UNREAD, Watched
from rowtide.stream.slot.lease.lease_settings import LeaseSettings

__all__ = ["GATHER_S", "LeaseWatch"]

logger = logging.getLogger(__name__)

HELD_LOOK_S = 0.1
"""Delay until a slot that was given away is followed again, if its broker leads no other one."""

GATHER_S = 0.05
"""Pause between two reads of others' leases, so that one brings several. Delays crash detection.
"""

START_S = 2.0
"""Time limit for reading the start of a log; then its leader is looked up again."""


class LeaseWatch:
    """What one worker knows of all slots' leases.

    ``ended`` are owners that serve nothing any more. ``is_ours`` is true for a slot that this
    worker has claimed and not lost.
    """

    def __init__(
        self,
        cluster: LogCluster,
        topic: str,
        *,
        ended: Collection[bytes],
        settings: LeaseSettings,
        is_ours: Callable[[int], bool],
        clock_s: Callable[[], float],
    ) -> None:
        self._cluster = cluster
        self._topic = topic
        self._ended = ended
        self._settings = settings
        self._is_ours = is_ours
        self._clock_s = clock_s
        self._watched: dict[int, Watched] = {}
        self._followed: set[Hashable] = set()
        """The brokers that are being followed for others' leases."""
        self._left = asyncio.Event()
        """Set by each slot that stops being ours, and when the watch begins."""
        self.addresses: dict[int, str] = {}
        """The address of each slot's worker, as its lease says; replaced when it changes."""

    def find_watched(self, slot: int) -> Watched | None:
        """Return what was read of a slot's leases; None before the watch begins."""
        return self._watched.get(slot)

    def find_abandoned_s(self, slot: int) -> float | None:
        """Return for how long no worker can have served ``slot``; None if a worker may serve it.

        None also if we have not read its leases lately: then we are cut off.
        """
        watched = self._watched.get(slot)
        now_s = self._clock_s()
        if self._is_ours(slot) or watched is None:
            return None
        if now_s - watched.read_s > self._settings.lease_s / 2:
            return None
        free_s = watched.view.free_since(self._settings.lease_s)
        if free_s is None:
            return None
        free_s = max(free_s, watched.since_s + self._settings.lease_s)
        return None if free_s > now_s else now_s - free_s

    def next_end_s(self) -> float:
        """Return the seconds until a slot may be abandoned, as far as known; below 0: one
        may be now.
        """
        ends = [
            watched.view.free_since(self._settings.lease_s)
            for slot, watched in self._watched.items()
            if not self._is_ours(slot)
        ]
        return min((end for end in ends if end is not None), default=math.inf) - self._clock_s()

    async def wait_until_read(self, slot: int) -> None:
        """Wait until the leases of ``slot`` have been read, or it is ours."""
        while not self._is_ours(slot):
            watched = self._watched.get(slot)
            if watched is not None:
                await watched.looked.wait()
                return
            await asyncio.sleep(HELD_LOOK_S)  # The watch is about to begin.

    def holder(self, slot: int) -> str | None:
        """Return the address of another, live worker whose claim on ``slot`` is the last."""
        watched = self._watched.get(slot)
        last = None if watched is None or self._is_ours(slot) else watched.view.last
        if last is None or last.released or last.owner in self._ended:
            return None
        ended = self._clock_s() > last.end_s(self._settings.lease_s)
        return None if ended else last.address

    async def run(self, slots: int) -> None:
        """Follow the leases of every slot that is not ours, until cancelled."""
        for slot in range(slots):
            self._watched[slot] = Watched(self._cluster.log(self._topic, slot))
        self._left.set()
        async with asyncio.TaskGroup() as tasks:
            while True:
                for leader in {self._leader(slot) for slot in self._to_follow()} - self._followed:
                    self._followed.add(leader)
                    tasks.create_task(self._follow_leader(leader), name=f"leases of {leader}")
                await asyncio.sleep(HELD_LOOK_S)
                await self.wait_for_others()

    async def wait_for_others(self) -> None:
        """Return at once, or as soon as a slot is not ours. A worker alone sleeps here.

        Before the watch begins, no slot is known, and the caller sleeps too.
        """
        while all(map(self._is_ours, self._watched)):
            self._left.clear()
            await self._left.wait()

    def note_left(self) -> None:
        """Note that a slot stopped being ours: it was released, or another worker claimed it."""
        self._left.set()

    def _leader(self, slot: int) -> Hashable:
        return self._cluster.leader(self._watched[slot].log)

    def _to_follow(self) -> list[int]:
        """Return others' slots, except those that cannot be read now."""
        now_s = self._clock_s()
        return [
            slot
            for slot, watched in self._watched.items()
            if not watched.is_under_way and watched.due_s <= now_s and not self._is_ours(slot)
        ]

    async def _follow_leader(self, leader: Hashable) -> None:
        """Follow the logs that one broker leads, with one request at a time, while there
        are any.
        """
        try:
            while slots := [slot for slot in self._to_follow() if self._leader(slot) == leader]:
                with self._following(slots):
                    await self._find_starts(slots)
                    await self._follow(slots)
                    await asyncio.sleep(GATHER_S)
        finally:
            self._followed.discard(leader)

    @contextmanager
    def _following(self, slots: Sequence[int]) -> Iterator[None]:
        """Mark slots as followed, so that no other task follows them."""
        for slot in slots:
            self._watched[slot].is_under_way = True
        try:
            yield
        finally:
            for slot in slots:
                self._watched[slot].is_under_way = False

    async def _find_starts(self, slots: Sequence[int]) -> None:
        """Find the starts of logs that were not read yet, or were trimmed."""
        unread = [slot for slot in slots if self._watched[slot].view.end == UNREAD]
        if not unread:
            return
        async with asyncio.TaskGroup() as tasks:
            for slot in unread:
                tasks.create_task(self._find_start(slot), name=f"leases[{slot}]")

    async def _find_start(self, slot: int) -> None:
        watched = self._watched[slot]
        try:
            async with asyncio.timeout(START_S):
                watched.view.end, _ = await watched.log.bounds()
        except (StoreError, TimeoutError) as error:
            self._later(watched, error)

    async def _follow(self, slots: Sequence[int]) -> None:
        """Read the next records of all of them with one request, and record when."""
        found = [(s, w) for s in slots if (w := self._watched[s]).view.end != UNREAD]
        if not found:
            return
        answers = await self._answers([watched for _, watched in found])
        read_s = self._clock_s()
        for (slot, watched), answer in zip(found, answers, strict=True):
            try:
                if isinstance(answer, Exception):
                    raise answer
                self._learn(slot, watched, answer, read_s)
            except LogTrimmed:
                watched.view.end = UNREAD
            except (StoreError, TimeoutError, CorruptLease) as error:
                self._later(watched, error)

    async def _answers(self, following: Sequence[Watched]) -> Sequence[list[Entry] | Exception]:
        """Return the next records of each, or the error or time-out."""
        items = [(watched.log, watched.view.end) for watched in following]
        # A slot opens after the first read of its leases, which must not wait for new
        # records.
        looked = all(watched.looked.is_set() for watched in following)
        wait_s = self._settings.renew_s if looked else 0.0
        try:
            async with asyncio.timeout(wait_s + self._settings.answer_s):
                return await self._cluster.read_many(items, bytes_max=READ_BYTES, wait_s=wait_s)
        except TimeoutError as error:
            return [error] * len(items)

    def _later(self, watched: Watched, error: Exception) -> None:
        logger.debug("%s: cannot read leases, retrying: %s", watched.log.name, error)
        watched.due_s = self._clock_s() + self._settings.renew_s

    def _learn(self, slot: int, watched: Watched, entries: Sequence[Entry], read_s: float) -> None:
        """Fold the records that were read of a slot's leases."""
        view = watched.view
        if read_s - watched.read_s > self._settings.lease_s / 2:
            watched.since_s = read_s
        watched.read_s = read_s
        for offset, _, value in entries:
            view.read(offset, value, read_s)
        watched.looked.set()
        last = view.last
        if last is not None:
            view.forget_ended(read_s, self._settings.lease_s)
            if not self._is_ours(slot):  # Else its keeper knows more than was read before.
                self.place(slot, "" if last.released else last.address)

    def place(self, slot: int, address: str) -> None:
        """Note whose worker has a slot; an empty ``address``: none that its lease names."""
        if self.addresses.get(slot, "") != address:
            self.addresses = {**self.addresses, slot: address}
