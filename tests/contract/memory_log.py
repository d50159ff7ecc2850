"""A log in memory, with the faults a real one has, chosen by the caller.

Several handles may share one log, as several workers may write to one topic: ``twin`` makes
another. A handle's next append meets ``fault`` where one is set; nothing else fails. There is no
clock and no chance here: a wait uses the event loop's time, and whoever simulates owns that loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice
from typing import Self

from rowtide.core.values.errors import LogTrimmed, OutcomeUnknown, Rejected, Unavailable
from rowtide.stream.log.log import Entry

__all__ = ["Fault", "MemoryLog"]

Pairs = Sequence[tuple[bytes, bytes]]


class Fault(Enum):
    """What becomes of one append."""

    REFUSED = "refused, provably not written"
    LOST_REQUEST = "never arrives, and the writer cannot know"
    LOST_ANSWER = "written, and the writer cannot know"
    DELAYED = "arrives when land_late() is called, perhaps after others' appends"


@dataclass(slots=True)
class Storage:
    """What the handles of one log share. ``entries[0]`` has offset ``start``."""

    start: int = 0
    entries: list[Entry] = field(default_factory=list)
    late: list[Pairs] = field(default_factory=list)
    grown: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def end(self) -> int:
        return self.start + len(self.entries)

    def write(self, pairs: Pairs) -> int:
        base = self.end
        self.entries += [Entry(base + at, key, value) for at, (key, value) in enumerate(pairs)]
        # Wake the present waiters; later ones get a new event.
        self.grown.set()
        self.grown = asyncio.Event()
        return base


class MemoryLog:
    """One writer's handle on a log in memory."""

    def __init__(self, name: str = "memory", *, batch_bytes_max: int = 16 << 20) -> None:
        self.name = name
        self.fault: Fault | None = None
        self.batch_bytes_max = batch_bytes_max
        self._storage = Storage()
        self._outcome_open = False

    def twin(self) -> Self:
        """Return another writer's handle on the same log, without faults."""
        twin = type(self)(self.name, batch_bytes_max=self.batch_bytes_max)
        twin._storage = self._storage
        return twin

    async def append(self, entries: Pairs, *, deadline_s: float) -> int:
        """Append one batch, see ``Log.append``."""
        assert entries, "an append needs an entry"
        assert not self._outcome_open, "disconnect after an unknown outcome, before appending"
        size = sum(len(key) + len(value) for key, value in entries)
        if size > self.batch_bytes_max:
            message = f"append to {self.name}: {size} bytes, the limit is {self.batch_bytes_max}"
            raise Rejected("OTSRequestBodyTooLarge", message)
        # Others run between the call and the write, and between the write and its answer.
        await asyncio.sleep(0)
        fault, self.fault = self.fault, None
        base = self._meet(fault, entries)
        await asyncio.sleep(0)
        return base

    async def read(self, offset: int, *, bytes_max: int, wait_s: float = 0.0) -> list[Entry]:
        """Return entries from ``offset`` on, see ``Log.read``."""
        storage = self._storage
        if offset == storage.end and wait_s > 0:
            await self._growth(wait_s)
        if offset < storage.start:
            raise LogTrimmed(
                f"{self.name}: offset {offset} is trimmed, the log starts at {storage.start}"
            )
        if offset > storage.end:
            raise Unavailable(f"{self.name}: offset {offset} lies beyond the end {storage.end}")
        return _first_bytes(islice(storage.entries, offset - storage.start, None), bytes_max)

    async def bounds(self) -> tuple[int, int]:
        """Return (start, end), see ``Log.bounds``."""
        return self._storage.start, self._storage.end

    async def end(self) -> int:
        """Return the next offset, see ``Log.end``."""
        return self._storage.end

    async def trim(self, before: int) -> None:
        """Delete every entry below ``before``, see ``Log.trim``."""
        storage = self._storage
        if before > storage.end:
            raise Unavailable(f"{self.name}: offset {before} lies beyond the end {storage.end}")
        if before > storage.start:
            del storage.entries[: before - storage.start]
            storage.start = before

    async def disconnect(self) -> None:
        """Forget what was in flight, see ``Log.disconnect``. What is delayed still lands."""
        self._outcome_open = False

    def land_late(self) -> int:
        """Write the oldest delayed batch now and return its base offset."""
        return self._storage.write(self._storage.late.pop(0))

    @property
    def delayed(self) -> int:
        """Number of batches still under way."""
        return len(self._storage.late)

    def truncate(self, end: int) -> None:
        """Lose every entry at or above ``end``, as a broker without durability may."""
        storage = self._storage
        assert storage.start <= end <= storage.end, f"{end} lies outside the log"
        del storage.entries[end - storage.start :]

    def _meet(self, fault: Fault | None, entries: Pairs) -> int:
        if fault is Fault.REFUSED:
            raise Unavailable(f"append to {self.name}: refused")
        if fault is None:
            return self._storage.write(entries)
        self._outcome_open = True
        if fault is Fault.LOST_ANSWER:
            self._storage.write(entries)
        elif fault is Fault.DELAYED:
            self._storage.late.append(entries)
        raise OutcomeUnknown(f"append to {self.name}: no answer")

    async def _growth(self, wait_s: float) -> None:
        try:
            async with asyncio.timeout(wait_s):
                await self._storage.grown.wait()
        except TimeoutError:
            return


def _first_bytes(entries: Iterable[Entry], bytes_max: int) -> list[Entry]:
    """Return the leading entries that fit, and one at least."""
    found: list[Entry] = []
    size = 0
    for entry in entries:
        size += len(entry.key) + len(entry.value)
        if found and size > bytes_max:
            break
        found.append(entry)
    return found
