"""Follows the ends of many logs, with one fetch per broker for all of them.

A fetch waits at the broker for the first new entry, so idle logs cost a few requests a
second, however many there are. Its answer has each log's end. A follower that has applied
everything up to that end has a view as of the moment when the fetch was *sent*: whatever
was acknowledged before that lies below the end.

A log that cannot be read is retried with growing pauses, while the others continue. A
fetch is bounded, and so is memory. Entries are passed on unchanged, void ones too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from rowtide.core.values.errors import LogTrimmed, StoreError, Unavailable
from rowtide.stream.log.kafka.brokers import LOST, Brokers
from rowtide.stream.log.kafka.connection import Address
from rowtide.stream.log.kafka.errors import BrokerError
from rowtide.stream.log.kafka.fetch import (
    EVERYTHING,
    OFFSET_OUT_OF_RANGE,
    FetchPartition,
    Place,
    fetch_many,
)
from rowtide.stream.log.kafka.fetch_bytes import FetchRequest, PartitionAnswer
from rowtide.stream.log.kafka.log import decode_entries
from rowtide.stream.log.log import Entry
from rowtide.stream.log.tails import Tail, TailFollower

__all__ = ["LogTails"]

logger = logging.getLogger(__name__)

WAIT_S = 0.25
"""Time for which a fetch waits for entries: views of idle logs are up to twice as old."""

GATHER_S = 0.01
"""Pause between two fetches with entries: a busy log is read in fewer, larger pieces."""

BYTES_EACH = 512 * 1024
BYTES_MAX = 4 * 1024 * 1024

PLACE_S = 2.0
"""Time for which the others wait for one log whose leader is not known."""

PAUSE_S = 0.1
PAUSE_S_MAX = 5.0


class LogTails:
    """The logs that a worker follows. ``clock_s`` is any clock that never goes back."""

    def __init__(self, brokers: Brokers, *, clock_s: Callable[[], float]) -> None:
        self._brokers = brokers
        self._clock_s = clock_s
        self._unplaced: list[Tail] = []
        self._groups: dict[Address, dict[str, Tail]] = {}
        self._wake = asyncio.Event()

    def follow(self, topic: str, offset: int, follower: TailFollower) -> Tail:
        """Report the entries of a topic's partition 0 from ``offset`` on to ``follower``."""
        tail = Tail(topic, offset, follower)
        self._unplaced.append(tail)
        self._wake.set()
        return tail

    def leave(self, tail: Tail) -> None:
        """Stop following: the follower gets no more calls."""
        tail.left = True

    async def run(self) -> None:
        """Follow until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                self._wake.clear()
                await self._place(tasks)
                due_s = min((tail.due_s for tail in self._unplaced), default=None)
                wait_s = None if due_s is None else max(0.0, due_s - self._clock_s())
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait_s):
                        await self._wake.wait()

    async def _place(self, tasks: asyncio.TaskGroup) -> None:
        """Assign the logs that are due to their leaders' groups."""
        now_s = self._clock_s()
        due = [tail for tail in self._unplaced if tail.due_s <= now_s]
        self._unplaced = [tail for tail in self._unplaced if tail.due_s > now_s]
        due = [tail for tail in due if not tail.left]
        if not due:
            return
        with suppress(*LOST):
            await self._brokers.metadata([tail.topic for tail in due])
        for tail in due:
            try:
                async with asyncio.timeout(PLACE_S):
                    tail.least = await FetchPartition(self._brokers, tail.topic, 0).end()
                    leader = await self._brokers.leader(tail.topic, 0)
            except (*LOST, BrokerError, StoreError) as error:
                self._later(tail, error)
                continue
            group = self._groups.get(leader)
            if group is None:
                group = self._groups[leader] = {}
                tasks.create_task(self._poll(leader, group), name=f"tails {leader}")
            group[tail.topic] = tail

    async def _poll(self, leader: Address, group: dict[str, Tail]) -> None:
        """Fetch from one broker again and again while it has a followed log."""
        try:
            while asked := {topic: tail for topic, tail in group.items() if not tail.left}:
                for topic in group.keys() - asked.keys():
                    del group[topic]
                asked_s = self._clock_s()
                try:
                    offsets = {(topic, 0): tail.offset for topic, tail in asked.items()}
                    wanted = FetchRequest(offsets, WAIT_S, BYTES_EACH, BYTES_MAX, EVERYTHING)
                    answers = await fetch_many(self._brokers, leader, wanted)
                except LOST as error:
                    for tail in asked.values():
                        self._part(group, tail, error)
                    continue
                if await self._tell(group, asked, answers, asked_s):
                    await asyncio.sleep(GATHER_S)
        finally:
            del self._groups[leader]

    async def _tell(
        self,
        group: dict[str, Tail],
        asked: dict[str, Tail],
        answers: dict[Place, PartitionAnswer],
        asked_s: float,
    ) -> bool:
        """Pass the answers of a fetch on; return True if there were entries."""
        any_entries = False
        for (topic, _), answer in answers.items():
            tail = asked[topic]
            try:
                entries = await self._entries(tail, answer)
            except LogTrimmed:
                _drop(group, tail)
                if not tail.left:
                    tail.follower.note_trim()
                continue
            except (StoreError, BrokerError) as error:
                self._part(group, tail, error)
                continue
            tail.pause_s = 0.0
            if tail.left:
                continue
            if entries:
                any_entries = True
                tail.offset = entries[-1].offset + 1
                group[topic] = group.pop(topic)  # The others come first in the next fetch.
            tail.follower.take(entries, max(answer.end, tail.least), asked_s)
            if entries:
                await asyncio.sleep(0)
        return any_entries

    async def _entries(self, tail: Tail, answer: PartitionAnswer) -> list[Entry]:
        if answer.error == OFFSET_OUT_OF_RANGE:
            await FetchPartition(self._brokers, tail.topic, 0).refuse(tail.offset)
            raise Unavailable(f"{tail.topic}: its bounds just moved")
        if answer.error:
            raise BrokerError(answer.error, tail.topic)
        return decode_entries(answer.batches, tail.offset, tail.topic)

    def _part(self, group: dict[str, Tail], tail: Tail, error: Exception) -> None:
        """Retry one log later, perhaps at another broker."""
        _drop(group, tail)
        self._brokers.forget_leader(tail.topic, 0)
        self._later(tail, error)

    def _later(self, tail: Tail, error: Exception) -> None:
        if tail.left:
            return
        logger.debug("cannot follow %s, retrying: %s", tail.topic, error)
        tail.pause_s = min(max(PAUSE_S, 2 * tail.pause_s), PAUSE_S_MAX)
        tail.due_s = self._clock_s() + tail.pause_s
        self._unplaced.append(tail)
        self._wake.set()


def _drop(group: dict[str, Tail], tail: Tail) -> None:
    if group.get(tail.topic) is tail:
        del group[tail.topic]
