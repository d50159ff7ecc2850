"""Writes one log into a cluster, at the same offsets as in the export.

A record is valid at one offset only, and a new topic begins at 0. So the offsets below
the start are filled with void records, which are then trimmed. A broker that crashes soon
after may forget how far a log was trimmed. Readers then skip the fillers.

Before writing, the existing records are read and compared. So whatever ended a former
call, the next one continues.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import TypeVar

from rowtide.core.cluster.lease import RELEASE, Lease, encode_lease
from rowtide.core.records import record
from rowtide.stream.log.changelog import ChangelogEntry
from rowtide.stream.log.log import Entry, Log

__all__ = ["APPEND_S", "Differs", "Report", "TargetLog", "batches", "entry_bytes", "filler"]

BATCH_BYTES = 512 << 10
BATCH_RECORDS = 2000
FILLED_AT_ONCE = 10_000
READ_BYTES = 4 << 20
APPEND_S = 60.0

_NOWHERE = -1
_NOBODY = bytes(8)
_VOID = record.Envelope(_NOWHERE, 0, _NOBODY, 0, record.SINGLE)
_RECORD = record.encode_record(_VOID, record.encode_body(record.NoOp()))
_LEASE = encode_lease(Lease(_NOWHERE, RELEASE, 0, _NOBODY, "", 0))

Report = Callable[[int, int], None]
"""Called with the numbers of records and bytes that are done."""

E = TypeVar("E", Entry, ChangelogEntry)


class Differs(Exception):
    """A topic has another content than the export, or more."""


def filler(*, lease: bool) -> tuple[bytes, bytes]:
    """Return key and value of a record that every reader of such a log skips."""
    return b"", _LEASE if lease else _RECORD


class TargetLog:
    """One log that is to have exactly ``entries``, from ``start`` to ``end``."""

    def __init__(self, log: Log, start: int, end: int, fills: tuple[bytes, bytes]) -> None:
        self._log = log
        self._start = start
        self._end = end
        self._fills = fills

    async def bring(self, entries: Iterator[Entry], report: Report, *, filled: Report) -> None:
        """Write the missing entries. Raises ``Differs`` and ``StoreError``.

        ``filled`` reports fillers, ``report`` entries.
        """
        start, end = await self._log.bounds()
        if start > self._start or end > self._end:
            raise Differs(
                f"{self._log.name} has offsets {start} to {end}, the export {self._start} to "
                f"{self._end}"
            )
        if start < self._start:
            await self._fill(start, end, filled)
            await self._log.trim(self._start)
            end = max(end, self._start)
        there = await self._compare(entries, end, report)
        await self._append(entries, end, there, report)

    async def verify(self, entries: Iterator[Entry], report: Report) -> None:
        """Read everything back. Raises ``Differs`` and ``StoreError``."""
        found = await self._log.bounds()
        if found != (self._start, self._end):
            raise Differs(
                f"{self._log.name} has offsets {found[0]} to {found[1]}, the export {self._start} "
                f"to {self._end}"
            )
        await self._compare(entries, self._end, report)

    async def _fill(self, start: int, end: int, filled: Report) -> None:
        """Fill every offset below ours with a filler."""
        async for entry in read_log(self._log, start, min(end, self._start)):
            if (entry.key, entry.value) != self._fills:
                raise Differs(f"{self._log.name} has a record at offset {entry.offset} already")
        while end < self._start:
            count = min(FILLED_AT_ONCE, self._start - end)
            await self._append_at(end, [self._fills] * count)
            end += count
            filled(end, end * sum(map(len, self._fills)))

    async def _compare(self, entries: Iterator[Entry], end: int, report: Report) -> tuple[int, int]:
        """Compare the log with the export; return how many records and bytes are there."""
        records = size = 0
        async for found in read_log(self._log, self._start, end):
            if found != next(entries, None):
                raise Differs(f"{self._log.name} differs from the export at offset {found.offset}")
            records += 1
            size += entry_bytes(found)
            if records % BATCH_RECORDS == 0:
                report(records, size)
        if records != end - self._start:
            raise Differs(f"{self._log.name} has {records} records from {self._start} to {end}")
        report(records, size)
        return records, size

    async def _append(
        self, entries: Iterator[Entry], end: int, there: tuple[int, int], report: Report
    ) -> None:
        """Append the rest, a batch at a time."""
        records, size = there
        for batch in batches(entries, bytes_max=BATCH_BYTES, count_max=BATCH_RECORDS):
            assert batch[0].offset == end, f"the export has offset {batch[0].offset} at {end}"
            await self._append_at(end, [(entry.key, entry.value) for entry in batch])
            end += len(batch)
            records += len(batch)
            size += sum(map(entry_bytes, batch))
            report(records, size)

    async def _append_at(self, offset: int, pairs: Sequence[tuple[bytes, bytes]]) -> None:
        base = await self._log.append(pairs, deadline_s=APPEND_S)
        if base != offset:
            raise Differs(f"{self._log.name}: another writer wrote at offset {offset}")


def batches(entries: Iterator[E], *, bytes_max: int, count_max: int) -> Iterator[list[E]]:
    """Yield entries in lists of bounded size; a single entry may exceed the bound."""
    batch: list[E] = []
    size = 0
    for entry in entries:
        more = entry_bytes(entry)
        if batch and (size + more > bytes_max or len(batch) == count_max):
            yield batch
            batch, size = [], 0
        batch.append(entry)
        size += more
    if batch:
        yield batch


def entry_bytes(entry: Entry | ChangelogEntry) -> int:
    """Return the size of an entry's key and value."""
    return len(entry.key) + len(entry.value or b"")


async def read_log(log: Log, start: int, end: int) -> AsyncIterator[Entry]:
    """Yield the entries with start <= offset < end."""
    while start < end:
        page = await log.read(start, bytes_max=READ_BYTES)
        if not page:
            return
        for entry in page:
            if entry.offset < end:
                yield entry
        start = page[-1].offset + 1
